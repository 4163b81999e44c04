// Recurrent layers. PyTorch takes other arithmetic for other devices than for the CPU (fused cells,
// one product for each step); here are the CPU's operators, in the CPU's order, so its bits.
// Compositions: autograd goes through their parts.

#include <ATen/core/Tensor.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <algorithm>

#include "dispatch/ops/recurrent_cells.h"
#include "dispatch/ops/recurrent_onednn.h"

namespace torch_shark {
namespace {

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

TwoStates lstm(const at::Tensor& input, at::TensorList hx, at::TensorList params, bool biases,
               int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  const bool projections = has_projections(hx);
  if (!projections && takes_onednn(input, params, hx)) {
    return onednn_lstm(input, hx, params, biases, layers, dropout, train, bidirectional,
                       batch_first);
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

void implement(torch::Library& m) {
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("lstm.data", TORCH_FN(packed_lstm));
  m.impl("gru.input", TORCH_FN(rnn<gru_step>));
  m.impl("gru.data", TORCH_FN(packed_rnn<gru_step>));
  m.impl("rnn_tanh.input", TORCH_FN(rnn<tanh_step>));
  m.impl("rnn_tanh.data", TORCH_FN(packed_rnn<tanh_step>));
  m.impl("rnn_relu.input", TORCH_FN(rnn<relu_step>));
  m.impl("rnn_relu.data", TORCH_FN(packed_rnn<relu_step>));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { implement(m); }
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { implement(m); }

}  // namespace
}  // namespace torch_shark
