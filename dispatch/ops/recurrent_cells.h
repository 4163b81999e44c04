#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_shark {

using Hidden = std::vector<at::Tensor>;  // the hidden state and, of an LSTM, the cell state

// One layer's parameters in one direction. Biases and the projection may be undefined.
struct Weights {
  at::Tensor input, hidden, input_bias, hidden_bias, projection;

  at::Tensor of_input(const at::Tensor& x) const;
  at::Tensor of_hidden(const at::Tensor& h) const;
};

// One step: from what the weights made of its input, and the state before it, the state after it.
using Cell = Hidden (*)(const at::Tensor& input, const Hidden& before, const Weights& weights);

Hidden lstm_step(const at::Tensor& input, const Hidden& before, const Weights& weights);
Hidden gru_step(const at::Tensor& input, const Hidden& before, const Weights& weights);
Hidden tanh_step(const at::Tensor& input, const Hidden& before, const Weights& weights);
Hidden relu_step(const at::Tensor& input, const Hidden& before, const Weights& weights);

}  // namespace torch_shark
