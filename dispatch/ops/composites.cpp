// Composite operators that PyTorch decomposes by device: here, as for the native device.

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "dispatch/device/native_device.h"
#include "dispatch/device/storage.h"
#include "dispatch/ops/record.h"

namespace torch_shark {
namespace {

// The native device's arithmetic. The CPU's differs from the fused kernel that other devices take:
// the noise has the input's own layout, so the mask of a permuted input is the CPU's.
at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || input.numel() == 0) {
    return input;
  }
  if (!native_is_cpu() && p < 1) {
    return std::get<0>(at::native_dropout(input, p, train));
  }
  if (p == 1) {
    return input.mul(at::zeros({}, input.options()));
  }
  at::Tensor noise = at::empty_like(input);
  noise.bernoulli_(1 - p);
  noise.div_(1 - p);
  return input.mul(noise);
}

using Dropped = std::tuple<at::Tensor, at::Tensor>;

Dropped record_native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  static OpInfo& op = find_op_info("aten::native_dropout");
  torch::jit::Stack stack{input, p, train};
  record_operator(op, stack);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

// As the CPU's kernel, which would draw from the CPU's generator. A GPU's draws from ours.
Dropped native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (!native_is_cpu()) {
    return record_native_dropout(input, p, train);
  }
  at::Tensor mask = at::empty(input.sizes(), input.options().dtype(at::kBool));
  if (input.numel() == 0) {
    return {input, mask};
  }
  if (!train.value_or(true)) {
    return {input.clone(), mask.fill_(true)};
  }
  const double kept = 1 - p;
  mask.bernoulli_(kept);
  return {input.mul(mask).mul_(kept == 0 ? 0 : 1 / kept), mask};
}

// The device has no nested tensors, so a padded batch is not made into one.
bool is_left_aligned(const at::Tensor& /*batch*/, const at::Tensor& /*mask*/) { return false; }

// A native tensor with the metadata of `tensor` and no memory, for code that only asks questions.
at::Tensor phantom(const at::Tensor& tensor) {
  at::Tensor native = native_tensor(
      c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, native_device()),
                   nullptr, /*resizable=*/false),
      C10_AS_INTARRAYREF_SLOW_ALLOC(tensor.sym_sizes()),
      C10_AS_INTARRAYREF_SLOW_ALLOC(tensor.sym_strides()), 0, tensor.scalar_type());
  if (tensor.requires_grad()) {
    native.requires_grad_();
  }
  return native;
}

// Which attention kernel the native device would choose.
int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  // A graph of torch.compile is traced under a mode of fake tensors, which takes no phantoms.
  const c10::impl::ExcludeDispatchKeyGuard no_modes(
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  std::optional<at::Tensor> native_mask;
  if (mask && mask->defined()) {
    native_mask = phantom(*mask);
  }
  const int64_t choice =
      at::_fused_sdp_choice(phantom(query), phantom(key), phantom(value), native_mask, dropout_p,
                            is_causal, scale, enable_gqa);
  // A GPU's flash attention and cuDNN's give integers beside tensors, which cannot be recorded.
  const bool records = native_is_cpu() || choice == static_cast<int64_t>(sdp::SDPBackend::math);
  return records ? choice : static_cast<int64_t>(sdp::SDPBackend::efficient_attention);
}

// Compositions: autograd goes through their parts.
void implement(torch::Library& m) { m.impl("dropout", TORCH_FN(dropout)); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  implement(m);
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(is_left_aligned));
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { implement(m); }

}  // namespace
}  // namespace torch_shark

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_shark::choose_attention)

}  // namespace at::native
