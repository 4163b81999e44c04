// LSTMs by oneDNN, as the CPU runs them.

#include "dispatch/ops/recurrent_onednn.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

#include "dispatch/device/native_device.h"
#include "dispatch/device/storage.h"

namespace torch_shark {
namespace {

bool ask(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<bool()>().call();
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mkldnn_rnn_layer", TORCH_FN(record_onednn_layer));
}

}  // namespace

bool takes_onednn(const at::Tensor& input, at::TensorList params, at::TensorList hx) {
  const auto on_shark = [](const at::Tensor& each) { return each.device().type() == kShark; };
  if (!native_is_cpu() || !at::globalContext().userEnabledMkldnn() || input.sym_numel() == 0 ||
      !on_shark(input) || !std::all_of(params.begin(), params.end(), on_shark) ||
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

std::tuple<at::Tensor, at::Tensor, at::Tensor> onednn_lstm(const at::Tensor& input,
                                                           at::TensorList hx, at::TensorList params,
                                                           bool biases, int64_t layers,
                                                           double dropout, bool train,
                                                           bool bidirectional, bool batch_first) {
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

}  // namespace torch_shark
