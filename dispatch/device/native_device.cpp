#include "dispatch/device/native_device.h"

#include <ATen/Context.h>
#include <c10/core/Event.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "dispatch/device/native_memory.h"

namespace torch_shark {
namespace {

c10::DeviceType chosen = c10::DeviceType::CPU;

c10::Stream native_stream() { return c10::Stream(c10::Stream::DEFAULT, native_device()); }

c10::Allocator* device_memory() {
  static c10::Allocator* const allocator = [] {
    at::globalContext().lazyInitDevice(native_device().type());
    return c10::GetAllocator(native_device().type());
  }();
  return allocator;
}

// Some libraries mind being the first to use the device on a thread.
void enter_context() {
  thread_local const bool once = [] {
    c10::Event(native_device().type()).record(native_stream());
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace

c10::Device native_device() {
  return chosen == c10::DeviceType::CPU ? c10::Device(chosen) : c10::Device(chosen, 0);
}

c10::DispatchKey native_key() {
  return chosen == c10::DeviceType::CPU ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
}

void choose_native_device(c10::DeviceType type) {
  TORCH_CHECK(type == c10::DeviceType::CPU || type == c10::DeviceType::CUDA,
              "[shark] expected cpu or cuda for native device, got ", type);
  chosen = type;
}

c10::Storage allocate_native(size_t nbytes) {
  if (native_is_cpu()) {
    return c10::Storage(c10::Storage::use_byte_size_t(), nbytes, allocate_pooled(nbytes),
                        native_allocator(), /*resizable=*/true);
  }
  return c10::Storage(c10::Storage::use_byte_size_t(), nbytes, device_memory()->allocate(nbytes),
                      device_memory(), /*resizable=*/true);
}

at::Tensor native_tensor(c10::Storage memory, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         int64_t offset, c10::ScalarType dtype) {
  const c10::DispatchKey key =
      memory.device_type() == c10::DeviceType::CPU ? c10::DispatchKey::CPU : native_key();
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(memory), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

NativeStreamScope::NativeStreamScope() {
  if (!native_is_cpu()) {
    device_memory();  // it has to be set up before anything else is asked of it
    guard_.emplace(native_stream());
    enter_context();
  }
}

void synchronize_native() {
  if (!native_is_cpu()) {
    native_stream().synchronize();
  }
}

bool native_is_idle() { return native_is_cpu() || native_stream().query(); }

}  // namespace torch_shark
