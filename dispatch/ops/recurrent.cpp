// Recurrent layers. PyTorch takes other arithmetic for other devices than for the CPU (fused cells,
// one product for each step); here are the CPU's operators, in the CPU's order, so its bits.
// Compositions: autograd goes through their parts.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

#include "dispatch/device/storage.h"

namespace torch_shark {
namespace {

using Hidden = std::vector<at::Tensor>;  // the hidden state and, of an LSTM, the cell state

// One layer's parameters in one direction. Biases and the projection may be undefined.
struct Weights {
  at::Tensor input, hidden, input_bias, hidden_bias, projection;

  at::Tensor of_input(const at::Tensor& x) const { return at::linear(x, input, input_bias); }
  at::Tensor of_hidden(const at::Tensor& h) const { return at::linear(h, hidden, hidden_bias); }
};

// One step: from what the weights made of its input, and the state before it, the state after it.
using Cell = Hidden (*)(const at::Tensor& input, const Hidden& before, const Weights& weights);

Hidden lstm_step(const at::Tensor& input, const Hidden& before, const Weights& weights) {
  const at::Tensor gates = weights.of_hidden(before[0]).add_(input);
  auto parts = gates.unsafe_chunk(4, 1);
  const at::Tensor enter = parts[0].sigmoid_();
  const at::Tensor keep = parts[1].sigmoid_();
  const at::Tensor fresh = parts[2].tanh_();
  const at::Tensor leave = parts[3].sigmoid_();
  const at::Tensor cell = (keep * before[1]).add_(enter * fresh);
  at::Tensor hidden = leave * cell.tanh();
  if (weights.projection.defined()) {
    hidden = at::matmul(hidden, weights.projection.t());
  }
  return {hidden, cell};
}

Hidden gru_step(const at::Tensor& input, const Hidden& before, const Weights& weights) {
  const auto inputs = input.unsafe_chunk(3, 1);
  auto hiddens = weights.of_hidden(before[0]).unsafe_chunk(3, 1);
  const at::Tensor reset = hiddens[0].add_(inputs[0]).sigmoid_();
  const at::Tensor update = hiddens[1].add_(inputs[1]).sigmoid_();
  const at::Tensor fresh = inputs[2].add(hiddens[2].mul_(reset)).tanh_();
  return {(before[0] - fresh).mul_(update).add_(fresh)};
}

Hidden tanh_step(const at::Tensor& input, const Hidden& before, const Weights& weights) {
  return {at::tanh(weights.of_hidden(before[0]).add_(input))};
}

Hidden relu_step(const at::Tensor& input, const Hidden& before, const Weights& weights) {
  return {at::relu(weights.of_hidden(before[0]).add_(input))};
}

Hidden rows(const Hidden& hidden, int64_t start, int64_t end) {
  Hidden result;
  for (const at::Tensor& each : hidden) {
    result.push_back(each.narrow(0, start, end - start));
  }
  return result;
}

Hidden concatenate(const std::vector<Hidden>& hiddens) {
  Hidden result;
  for (size_t i = 0; i < hiddens.front().size(); ++i) {
    std::vector<at::Tensor> parts;
    for (const Hidden& each : hiddens) {
      parts.push_back(each[i]);
    }
    result.push_back(at::cat(parts, 0));
  }
  return result;
}

struct LayerResult {
  at::Tensor output;
  Hidden hidden;
};

// A layer in one direction over a padded batch, time first.
LayerResult run_padded(Cell cell, const at::Tensor& input, Hidden hidden, const Weights& weights,
                       bool reverse) {
  std::vector<at::Tensor> steps = weights.of_input(input).unbind(0);
  TORCH_CHECK(!steps.empty(), "Expected sequence length to be larger than 0 in RNN");
  if (reverse) {
    std::reverse(steps.begin(), steps.end());
  }
  for (at::Tensor& step : steps) {
    hidden = cell(step, hidden, weights);
    step = hidden[0];
  }
  if (reverse) {
    std::reverse(steps.begin(), steps.end());
  }
  return {at::stack(steps, 0), hidden};
}

// A layer over a packed batch, whose sequences end one by one.
LayerResult run_packed(Cell cell, const at::Tensor& input, c10::IntArrayRef batch_sizes,
                       Hidden hidden, const Weights& weights) {
  const at::Tensor inputs = weights.of_input(input);
  std::vector<at::Tensor> outputs;
  std::vector<Hidden> ended;
  int64_t offset = 0;
  int64_t running = batch_sizes.front();
  for (const int64_t size : batch_sizes) {
    const at::Tensor step = inputs.narrow(0, offset, size);
    offset += size;
    if (size < running) {
      ended.push_back(rows(hidden, size, running));
      hidden = rows(hidden, 0, size);
    }
    running = size;
    hidden = cell(step, hidden, weights);
    outputs.push_back(hidden[0]);
  }
  ended.push_back(hidden);
  std::reverse(ended.begin(), ended.end());
  return {at::cat(outputs, 0), concatenate(ended)};
}

// The same from the sequences' ends, where they begin one by one.
LayerResult run_packed_backwards(Cell cell, const at::Tensor& input, c10::IntArrayRef batch_sizes,
                                 const Hidden& first, const Weights& weights) {
  const at::Tensor inputs = weights.of_input(input);
  std::vector<at::Tensor> outputs;
  int64_t offset = input.size(0);
  int64_t running = batch_sizes.back();
  Hidden hidden = rows(first, 0, running);
  for (size_t i = batch_sizes.size(); i-- > 0;) {
    const int64_t size = batch_sizes[i];
    if (size > running) {
      hidden = concatenate({hidden, rows(first, running, size)});
    }
    offset -= size;
    running = size;
    hidden = cell(inputs.narrow(0, offset, size), hidden, weights);
    outputs.push_back(hidden[0]);
  }
  std::reverse(outputs.begin(), outputs.end());
  return {at::cat(outputs, 0), hidden};
}

// How a stack of layers is run; a batch is packed if it has sizes (on the CPU) for each step.
struct Stack {
  Cell cell;
  int64_t layers;
  double dropout;  // between layers; 0 when not training
  bool bidirectional;
  std::optional<at::Tensor> batch_sizes = std::nullopt;

  LayerResult run_layer(const at::Tensor& input, const Hidden& hidden, const Weights& weights,
                        bool reverse) const {
    if (!batch_sizes) {
      return run_padded(cell, input, hidden, weights, reverse);
    }
    const c10::IntArrayRef sizes(batch_sizes->const_data_ptr<int64_t>(), batch_sizes->numel());
    return reverse ? run_packed_backwards(cell, input, sizes, hidden, weights)
                   : run_packed(cell, input, sizes, hidden, weights);
  }
};

std::vector<Weights> gather_weights(at::TensorList params, bool biases, bool projections) {
  const size_t count = 2 + 2 * biases + projections;
  TORCH_CHECK(params.size() % count == 0, "got an incorrect number of RNN parameters");
  std::vector<Weights> result;
  for (size_t i = 0; i < params.size(); i += count) {
    result.push_back({params[i], params[i + 1], biases ? params[i + 2] : at::Tensor(),
                      biases ? params[i + 3] : at::Tensor(),
                      projections ? params[i + count - 1] : at::Tensor()});
  }
  return result;
}

// Runs all layers. `hidden` has a state for each layer and direction; so has the result.
std::pair<at::Tensor, std::vector<Hidden>> run_stack(const Stack& stack, at::Tensor input,
                                                     const std::vector<Hidden>& hidden,
                                                     const std::vector<Weights>& weights) {
  const size_t directions = stack.bidirectional ? 2 : 1;
  TORCH_CHECK(hidden.size() % directions == 0 && weights.size() % directions == 0,
              "Odd number of params or hiddens given to a bidirectional RNN");
  const size_t needed = stack.layers * directions;
  TORCH_CHECK(hidden.size() == needed, "Expected more hidden states in stacked_rnn");
  TORCH_CHECK(weights.size() == needed, "Expected more weights in stacked_rnn");
  std::vector<Hidden> last;
  for (size_t i = 0; i < needed; i += directions) {
    LayerResult result = stack.run_layer(input, hidden[i], weights[i], /*reverse=*/false);
    last.push_back(result.hidden);
    if (stack.bidirectional) {
      LayerResult back = stack.run_layer(input, hidden[i + 1], weights[i + 1], /*reverse=*/true);
      last.push_back(back.hidden);
      result.output = at::cat({result.output, back.output}, -1);
    }
    input = result.output;
    if (stack.dropout != 0 && i + directions < needed) {
      input = at::dropout(input, stack.dropout, /*train=*/true);
    }
  }
  return {input, last};
}

std::vector<Hidden> each_layer(at::TensorList states) {
  std::vector<Hidden> result;
  for (const at::Tensor& state : states) {
    const auto layers = state.unbind(0);
    result.resize(std::max(result.size(), layers.size()));
    for (size_t i = 0; i < layers.size(); ++i) {
      result[i].push_back(layers[i]);
    }
  }
  return result;
}

at::Tensor stack_states(const std::vector<Hidden>& layers, size_t which) {
  std::vector<at::Tensor> states;
  for (const Hidden& layer : layers) {
    states.push_back(layer[which]);
  }
  return at::stack(states, 0);
}

using OneState = std::tuple<at::Tensor, at::Tensor>;
using TwoStates = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

template <Cell cell>
OneState rnn(const at::Tensor& input, const at::Tensor& hx, at::TensorList params, bool biases,
             int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  at::native::check_attributes(input, params, hx);
  auto [output, last] = run_stack({cell, layers, train ? dropout : 0, bidirectional},
                                  batch_first ? input.transpose(0, 1) : input, each_layer(hx),
                                  gather_weights(params, biases, /*projections=*/false));
  at::Tensor state = stack_states(last, 0);
  if (batch_first) {
    output.transpose_(0, 1);
  }
  return {output, state};
}

template <Cell cell>
OneState packed_rnn(const at::Tensor& data, const at::Tensor& batch_sizes, const at::Tensor& hx,
                    at::TensorList params, bool biases, int64_t layers, double dropout, bool train,
                    bool bidirectional) {
  const auto [output, last] =
      run_stack({cell, layers, train ? dropout : 0, bidirectional, batch_sizes}, data,
                each_layer(hx), gather_weights(params, biases, /*projections=*/false));
  return {output, stack_states(last, 0)};
}

// Cells of another size than the hidden states are projected.
bool has_projections(at::TensorList hx) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  return hx[0].size(2) != hx[1].size(2);
}

bool ask(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<bool()>().call();
}

// Whether the CPU would take oneDNN's layers.
bool takes_onednn(const at::Tensor& input, at::TensorList params, at::TensorList hx) {
  const auto on_shark = [](const at::Tensor& each) { return each.device().type() == kShark; };
  if (!at::globalContext().userEnabledMkldnn() || input.sym_numel() == 0 || !on_shark(input) ||
      !std::all_of(params.begin(), params.end(), on_shark) ||
      !std::all_of(hx.begin(), hx.end(), on_shark)) {
    return false;
  }
  switch (input.scalar_type()) {
    case at::kFloat:
      return true;
    case at::kBFloat16:
      return ask("mkldnn::_is_mkldnn_bf16_supported");
    case at::kHalf:
      return !at::GradMode::is_enabled() && ask("mkldnn::_is_mkldnn_fp16_supported");
    default:
      return false;
  }
}

TwoStates onednn_lstm(const at::Tensor& input, at::TensorList hx, at::TensorList params,
                      bool biases, int64_t layers, double dropout, bool bidirectional,
                      bool batch_first, bool train) {
  constexpr int64_t kLstm = 2;  // among oneDNN's kinds of recurrent layers
  const int64_t directions = bidirectional ? 2 : 1;
  const size_t count = biases ? 4 : 2;
  const at::Tensor h = hx[0].contiguous(), c = hx[1].contiguous();
  at::Tensor x = (batch_first ? input.transpose(0, 1) : input).contiguous();
  std::vector<at::Tensor> last_h, last_c;
  for (int64_t i = 0; i < layers * directions; i += directions) {
    std::vector<at::Tensor> outputs;
    for (int64_t j = i; j < i + directions; ++j) {
      const at::TensorList w = params.slice(j * count, count);
      const at::Tensor input_bias = biases ? w[2] : at::zeros(w[0].sizes(), w[0].options());
      const at::Tensor hidden_bias = biases ? w[3] : at::zeros(w[1].sizes(), w[1].options());
      const auto result = at::mkldnn_rnn_layer(
          x, w[0], w[1], input_bias, hidden_bias, h[j], c[j], /*reverse=*/j > i,
          /*batch_sizes=*/{}, kLstm, h.size(2), layers, biases, bidirectional, batch_first, train);
      outputs.push_back(std::get<0>(result));
      last_h.push_back(std::get<1>(result));
      last_c.push_back(std::get<2>(result));
    }
    x = bidirectional ? at::cat(outputs, -1) : outputs[0];
    if (dropout != 0 && train && i + directions < layers * directions) {
      x = at::dropout(x, dropout, /*train=*/true);
    }
  }
  const at::Tensor hy = at::stack(last_h, 0);
  const at::Tensor cy = at::stack(last_c, 0);
  return {batch_first ? x.transpose(0, 1) : x, hy, cy};
}

TwoStates lstm(const at::Tensor& input, at::TensorList hx, at::TensorList params, bool biases,
               int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  const bool projections = has_projections(hx);
  if (!projections && takes_onednn(input, params, hx)) {
    return onednn_lstm(input, hx, params, biases, layers, dropout, bidirectional, batch_first,
                       train);
  }
  at::native::check_attributes(input, params, hx);
  const auto [output, last] = run_stack({lstm_step, layers, train ? dropout : 0, bidirectional},
                                        batch_first ? input.transpose(0, 1) : input, each_layer(hx),
                                        gather_weights(params, biases, projections));
  const at::Tensor hy = stack_states(last, 0);
  const at::Tensor cy = stack_states(last, 1);
  return {batch_first ? output.transpose(0, 1) : output, hy, cy};
}

TwoStates packed_lstm(const at::Tensor& data, const at::Tensor& batch_sizes, at::TensorList hx,
                      at::TensorList params, bool biases, int64_t layers, double dropout,
                      bool train, bool bidirectional) {
  const bool projections = has_projections(hx);
  const auto [output, last] =
      run_stack({lstm_step, layers, train ? dropout : 0, bidirectional, batch_sizes}, data,
                each_layer(hx), gather_weights(params, biases, projections));
  return {output, stack_states(last, 0), stack_states(last, 1)};
}

void check_cell_input(const at::Tensor& input, const at::Tensor& w_ih) {
  TORCH_CHECK(input.size(1) == w_ih.size(1), "input has inconsistent input_size: got ",
              input.size(1), " expected ", w_ih.size(1));
}

void check_cell_weights(const at::Tensor& w_ih, const at::Tensor& w_hh, int64_t gates) {
  const int64_t size = w_hh.size(1);
  const auto check = [&](const char* name, const at::Tensor& weight) {
    TORCH_CHECK(weight.size(0) == gates * size, name, " first dim must be ", gates,
                " * hidden_size = ", gates * size, ", but got ", weight.size(0));
  };
  check("weight_ih", w_ih);
  check("weight_hh", w_hh);
}

void check_cell_state(const at::Tensor& input, const at::Tensor& state, const at::Tensor& w_hh,
                      int64_t label) {
  TORCH_CHECK(input.size(0) == state.size(0), "Input batch size ", input.size(0),
              " doesn't match hidden", label, " batch size ", state.size(0));
  TORCH_CHECK(state.size(1) == w_hh.size(1), "hidden", label, " has inconsistent hidden_size: got ",
              state.size(1), ", expected ", w_hh.size(1));
}

Weights cell_weights(const at::Tensor& w_ih, const at::Tensor& w_hh,
                     const std::optional<at::Tensor>& b_ih, const std::optional<at::Tensor>& b_hh) {
  return {w_ih, w_hh, b_ih.value_or(at::Tensor()), b_hh.value_or(at::Tensor()), {}};
}

std::tuple<at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input, at::TensorList hx,
                                             const at::Tensor& w_ih, const at::Tensor& w_hh,
                                             const std::optional<at::Tensor>& b_ih,
                                             const std::optional<at::Tensor>& b_hh) {
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  check_cell_input(input, w_ih);
  check_cell_weights(w_ih, w_hh, 4);
  check_cell_state(input, hx[0], w_hh, 0);
  check_cell_state(input, hx[1], w_hh, 1);
  const Weights weights = cell_weights(w_ih, w_hh, b_ih, b_hh);
  const Hidden state = lstm_step(weights.of_input(input), {hx[0], hx[1]}, weights);
  return {state[0], state[1]};
}

at::Tensor gru_cell(const at::Tensor& input, const at::Tensor& hx, const at::Tensor& w_ih,
                    const at::Tensor& w_hh, const std::optional<at::Tensor>& b_ih,
                    const std::optional<at::Tensor>& b_hh) {
  check_cell_input(input, w_ih);
  check_cell_state(input, hx, w_hh, 0);
  check_cell_weights(w_ih, w_hh, 3);
  const Weights weights = cell_weights(w_ih, w_hh, b_ih, b_hh);
  return gru_step(weights.of_input(input), {hx}, weights)[0];
}

using RnnLayer = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// oneDNN's layer keeps a workspace if gradients are wanted, which its kernel asks of the thread it
// runs on: the answer is taken when the layer is recorded.
RnnLayer onednn_layer(const at::Tensor& input, const at::Tensor& w_ih, const at::Tensor& w_hh,
                      const at::Tensor& b_ih, const at::Tensor& b_hh, const at::Tensor& hx,
                      const at::Tensor& cx, bool reverse, c10::IntArrayRef batch_sizes,
                      int64_t mode, int64_t hidden_size, int64_t layers, bool biases,
                      bool bidirectional, bool batch_first, bool train, bool gradients) {
  const c10::AutoGradMode grad_mode(gradients);
  return at::mkldnn_rnn_layer(input, w_ih, w_hh, b_ih, b_hh, hx, cx, reverse, batch_sizes, mode,
                              hidden_size, layers, biases, bidirectional, batch_first, train);
}

RnnLayer record_onednn_layer(const at::Tensor& input, const at::Tensor& w_ih,
                             const at::Tensor& w_hh, const at::Tensor& b_ih, const at::Tensor& b_hh,
                             const at::Tensor& hx, const at::Tensor& cx, bool reverse,
                             c10::IntArrayRef batch_sizes, int64_t mode, int64_t hidden_size,
                             int64_t layers, bool biases, bool bidirectional, bool batch_first,
                             bool train) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("shark::rnn_layer", "")
                             .typed<decltype(onednn_layer)>();
  return op.call(input, w_ih, w_hh, b_ih, b_hh, hx, cx, reverse, batch_sizes, mode, hidden_size,
                 layers, biases, bidirectional, batch_first, train, at::GradMode::is_enabled());
}

TORCH_LIBRARY_FRAGMENT(shark, m) {
  m.def(
      "rnn_layer(Tensor input, Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh, Tensor hx, "
      "Tensor cx, bool reverse, int[] batch_sizes, int mode, int hidden_size, int layers, "
      "bool biases, bool bidirectional, bool batch_first, bool train, bool gradients) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(shark, CPU, m) { m.impl("rnn_layer", TORCH_FN(onednn_layer)); }

void implement(torch::Library& m) {
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("lstm.data", TORCH_FN(packed_lstm));
  m.impl("gru.input", TORCH_FN(rnn<gru_step>));
  m.impl("gru.data", TORCH_FN(packed_rnn<gru_step>));
  m.impl("rnn_tanh.input", TORCH_FN(rnn<tanh_step>));
  m.impl("rnn_tanh.data", TORCH_FN(packed_rnn<tanh_step>));
  m.impl("rnn_relu.input", TORCH_FN(rnn<relu_step>));
  m.impl("rnn_relu.data", TORCH_FN(packed_rnn<relu_step>));
  m.impl("lstm_cell", TORCH_FN(lstm_cell));
  m.impl("gru_cell", TORCH_FN(gru_cell));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  implement(m);
  m.impl("mkldnn_rnn_layer", TORCH_FN(record_onednn_layer));
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { implement(m); }

}  // namespace
}  // namespace torch_shark
