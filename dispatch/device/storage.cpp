#include "dispatch/device/storage.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/TensorImpl.h>

#include "dispatch/device/allocator.h"
#include "dispatch/device/arena.h"
#include "dispatch/device/imports.h"
#include "dispatch/device/native_device.h"
#include "dispatch/device/pool.h"
#include "dispatch/device/process.h"

namespace torch_shark {
namespace {

// A profiler of memory sees what the program holds; when the memory itself is taken and given back
// is up to the executor.
void report_memory(const DeviceStorage& storage, int64_t change) {
  if (c10::memoryProfilingEnabled()) {
    const CpuPoolStats stats = cpu_pool().stats();
    c10::reportMemoryUsageToProfiler(storage.address, change, stats.live, stats.reserved,
                                     c10::Device(kShark, 0));
  }
}

void drop_handle(void* context) {
  auto storage = c10::intrusive_ptr<DeviceStorage>::reclaim(static_cast<DeviceStorage*>(context));
  report_memory(*storage, -static_cast<int64_t>(storage->nbytes));
  storage->referenced.store(false, std::memory_order_relaxed);
}

// Backward passes run on the thread that calls them, as the CPU's do: recording is work for the
// host. On a thread of the device's own, PyTorch would begin with what it is handed first, and so
// add up gradients in another order, with other bits.
void keep_backward_on_this_thread() {
  thread_local const bool once = [] {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace

NativeBuffer::~NativeBuffer() {
  const void* address = storage.data();
  if (imported && storage.unique() && cpu_pool().owns(address)) {
    keep_import(address, storage.nbytes(), std::move(imported));
  }
}

DeviceStorage::DeviceStorage(size_t nbytes, Geometry base)
    : nbytes(nbytes), base(std::move(base)), address(Arena::instance().reserve(nbytes, this)) {}

DeviceStorage::~DeviceStorage() { Arena::instance().release(address); }

NativeBuffer& DeviceStorage::native() {
  if (!buffer) {
    adopt(allocate_native(nbytes));
  }
  return *buffer;
}

void DeviceStorage::adopt(c10::Storage memory) {
  buffer = c10::make_intrusive<NativeBuffer>(std::move(memory));
}

void DeviceStorage::fail(std::shared_ptr<const std::string> why) {
  failure = std::move(why);
  state.store(StorageState::failed, std::memory_order_release);
}

c10::DataPtr make_data_ptr(c10::intrusive_ptr<DeviceStorage> storage) {
  void* address = storage->address;
  report_memory(*storage, static_cast<int64_t>(storage->nbytes));
  return {address, storage.release(), &drop_handle, c10::Device(kShark, 0)};
}

at::Tensor make_device_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                              c10::ScalarType dtype) {
  check_process();
  keep_backward_on_this_thread();
  const auto meta = c10::scalarTypeToTypeMeta(dtype);
  const size_t nbytes = at::detail::computeStorageNbytes(sizes, strides, meta.itemsize());
  auto storage = c10::make_intrusive<DeviceStorage>(
      nbytes, Geometry{at::DimVector(sizes), at::DimVector(strides), dtype});
  auto storage_impl = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), nbytes, make_data_ptr(std::move(storage)),
      device_allocator(), /*resizable=*/true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage_impl)),
                                                         c10::DispatchKeySet(kSharkKey), meta);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

DeviceStorage& device_storage(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() == &drop_handle) {
    return *static_cast<DeviceStorage*>(data.get_context());
  }
  DeviceStorage* found = Arena::instance().find(data.get());
  TORCH_CHECK(found != nullptr, "[shark] expected a storage of the shark device, got the pointer ",
              data.get());
  return *found;
}

}  // namespace torch_shark
