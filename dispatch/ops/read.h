#pragma once

#include <ATen/core/Tensor.h>

namespace torch_shark {

// The native tensor behind a shark tensor, over the same memory, once all recorded work is done.
// Raises the first error of recorded work, or the tensor's own.
at::Tensor read_native(const at::Tensor& tensor);

}  // namespace torch_shark
