#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace torch_shark {

// Whether the CPU would take oneDNN's layers for an LSTM without projections.
bool takes_onednn(const at::Tensor& input, at::TensorList params, at::TensorList hx);

// aten::lstm.input by oneDNN: one operator for each layer and direction.
std::tuple<at::Tensor, at::Tensor, at::Tensor> onednn_lstm(const at::Tensor& input,
                                                           at::TensorList hx, at::TensorList params,
                                                           bool biases, int64_t layers,
                                                           double dropout, bool train,
                                                           bool bidirectional, bool batch_first);

}  // namespace torch_shark
