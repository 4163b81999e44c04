#include "dispatch/device/native_device.h"

#include <c10/core/TensorImpl.h>

#include "dispatch/device/native_memory.h"

namespace torch_shark {

c10::Storage allocate_native(size_t nbytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), nbytes, allocate_pooled(nbytes),
                      native_allocator(), /*resizable=*/true);
}

at::Tensor native_tensor(c10::Storage memory, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         int64_t offset, c10::ScalarType dtype) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(memory), c10::DispatchKeySet(kNativeKey), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

}  // namespace torch_shark
