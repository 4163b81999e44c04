// torch.autocast("shark"): which operators cast their inputs, and to what. The lists are PyTorch's
// own for CUDA, so a program gets the dtypes that it would get there.

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace torch_shark {
namespace {

using namespace at;  // PyTorch's list of other signatures names its types without at::

Tensor binary_cross_entropy_banned(const Tensor& /*self*/, const Tensor& /*target*/,
                                   const std::optional<Tensor>& /*weight*/, int64_t /*reduction*/) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
      "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
      "In this case, combine the two layers using "
      "torch.nn.functional.binary_cross_entropy_with_logits\n"
      "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
      "safe to autocast.");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER_PRECISION_FP(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION_FP)

#define FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FP32)

#define FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET_OPT_DTYPE)

  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)

#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(PROMOTE)

  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy_banned));

  // The fast way of attention, which other devices do not take under autocast and the CPU does.
  KERNEL_PRIVATEUSEONE(_native_multi_head_attention, lower_precision_fp)

  // On CUDA these become an operator of cuDNN, which casts all that it is given.
  KERNEL_PRIVATEUSEONE(lstm, input, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(lstm, data, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(gru, input, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(gru, data, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(rnn_tanh, input, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(rnn_tanh, data, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(rnn_relu, input, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(rnn_relu, data, lower_precision_fp)
}

}  // namespace
}  // namespace torch_shark
