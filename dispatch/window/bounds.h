#pragma once

#include <ATen/core/TensorBase.h>

#include "dispatch/device/storage.h"

namespace torch_shark {

// Raises if the tensor reaches past the end of its storage: `untyped_storage().resize_()` may have
// made that smaller than the tensors over it.
inline void check_bounds(const at::TensorBase& tensor, const DeviceStorage& storage) {
  if (tensor.numel() == 0) {
    return;
  }
  int64_t last = tensor.storage_offset();
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  const size_t needed = (last + 1) * tensor.itemsize();
  TORCH_CHECK(needed <= storage.nbytes, "[shark] expected a storage of at least ", needed,
              " bytes, got one that was resized to ", storage.nbytes);
}

}  // namespace torch_shark
