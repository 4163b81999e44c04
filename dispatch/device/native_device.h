#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace torch_shark {

// The native device: whose kernels replay operators and whose allocator owns the memory.
inline constexpr c10::DeviceType kNative = c10::DeviceType::CPU;
inline constexpr c10::DispatchKey kNativeKey = c10::DispatchKey::CPU;

// Uninitialised native memory from the caching pool, 64-byte aligned.
c10::Storage allocate_native(size_t nbytes);

// A native tensor over `memory`, no copy.
at::Tensor native_tensor(c10::Storage memory, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         int64_t offset, c10::ScalarType dtype);

}  // namespace torch_shark
