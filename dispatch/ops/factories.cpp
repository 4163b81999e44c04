// `empty` and `empty_strided`: the factories that the others are built on.

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include "dispatch/device/storage.h"

namespace torch_shark {
namespace {

void check_options(std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                   std::optional<bool> pin_memory) {
  TORCH_CHECK(!device || device->index() <= 0, "[shark] expected a device index below 1, got ",
              int{device->index()});
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided,
                              "[shark] expected layout torch.strided, got ", *layout,
                              ", which the shark device does not have");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

// As the CPU does under torch.use_deterministic_algorithms.
at::Tensor filled_if_deterministic(at::Tensor tensor) {
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, device, pin_memory);
  at::detail::check_size_nonnegative(size);
  return filled_if_deterministic(make_device_tensor(size, stride, c10::dtype_or_default(dtype)));
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                 std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> memory_format) {
  check_options(layout, device, pin_memory);
  at::detail::check_size_nonnegative(size);
  at::DimVector strides(size.size());
  int64_t stride = 1;
  for (size_t i = size.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(size[i], 1);
  }
  at::Tensor tensor = make_device_tensor(size, strides, c10::dtype_or_default(dtype));
  if (memory_format && *memory_format != c10::MemoryFormat::Contiguous) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
    device_storage(tensor).base.strides = at::DimVector(tensor.strides());
  }
  return filled_if_deterministic(std::move(tensor));
}

// Zeros without memory, which autograd makes and PyTorch turns into memory before an operator that
// needs it gets here.
at::Tensor efficient_zeros(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                           std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                           std::optional<bool> pin_memory) {
  check_options(layout, device, pin_memory);
  at::native::ZeroTensorAllocator no_memory(c10::Device(kShark, 0));
  return at::detail::empty_generic(
      size, &no_memory,
      c10::DispatchKeySet(kSharkKey) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
      c10::dtype_or_default(dtype), std::nullopt);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zeros));
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
}

}  // namespace
}  // namespace torch_shark
