// One step of each kind of recurrent layer, and the operators that are one step.

#include "dispatch/ops/recurrent_cells.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tanh.h>
#include <torch/library.h>

namespace torch_shark {

at::Tensor Weights::of_input(const at::Tensor& x) const { return at::linear(x, input, input_bias); }

at::Tensor Weights::of_hidden(const at::Tensor& h) const {
  return at::linear(h, hidden, hidden_bias);
}

namespace {

Hidden pass_gates(const at::Tensor& gates, const Hidden& before, const Weights& weights) {
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

}  // namespace

Hidden lstm_step(const at::Tensor& input, const Hidden& before, const Weights& weights) {
  return pass_gates(weights.of_hidden(before[0]).add_(input), before, weights);
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

namespace {

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
  // The hidden state's product comes first: gradients add up in the order of the operators.
  const at::Tensor gates = weights.of_hidden(hx[0]).add_(weights.of_input(input));
  const Hidden state = pass_gates(gates, {hx[0], hx[1]}, weights);
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

void implement(torch::Library& m) {
  m.impl("lstm_cell", TORCH_FN(lstm_cell));
  m.impl("gru_cell", TORCH_FN(gru_cell));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { implement(m); }
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { implement(m); }

}  // namespace
}  // namespace torch_shark
