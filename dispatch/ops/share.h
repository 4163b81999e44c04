// Memory that the device and others use at the same time, without a copy.
//
// The device writes it in order with everything else; a `synchronize` makes what it wrote visible
// outside, and what was written outside visible to operators recorded afterwards.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_shark {

// A native tensor over the memory of a shark tensor, once all recorded work is done. It keeps the
// memory alive, and while it does, the memory stays the tensor's.
at::Tensor lend_to_native(const at::Tensor& tensor);

// A shark tensor over the memory of a native one, which it keeps alive.
at::Tensor borrow_from_native(const at::Tensor& native);

}  // namespace torch_shark
