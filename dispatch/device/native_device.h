#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/StreamGuard.h>

#include <optional>

namespace torch_shark {

// The native device: whose kernels replay operators and whose allocator owns the memory. The CPU,
// unless `choose_native_device` named another.
c10::Device native_device();
c10::DispatchKey native_key();
inline bool native_is_cpu() { return native_device().is_cpu(); }

// To be called once, before operators are registered: which of them record depends on it. Nothing
// is asked of the device until its memory is wanted.
void choose_native_device(c10::DeviceType type);

// Uninitialised native memory: on the CPU from the caching pool, 64-byte aligned; elsewhere from
// the device's own caching allocator.
c10::Storage allocate_native(size_t nbytes);

// A native tensor over `memory`, no copy. It lives where the memory does: kernels of a GPU return
// seeds, say, on the CPU.
at::Tensor native_tensor(c10::Storage memory, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         int64_t offset, c10::ScalarType dtype);

// While one lives, the thread's native work goes to the one stream that all of ours goes to, so
// that it runs in the order in which it was handed over. On the CPU it does nothing.
class NativeStreamScope {
 public:
  NativeStreamScope();

 private:
  std::optional<c10::StreamGuard> guard_;
};

// Waits until the native device has done what it was handed; on the CPU it has when calls return.
void synchronize_native();
// Whether it has.
bool native_is_idle();

}  // namespace torch_shark
