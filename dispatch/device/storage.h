#pragma once

#include <ATen/DimVector.h>
#include <ATen/core/TensorBase.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <memory>
#include <string>

namespace torch_shark {

inline constexpr c10::DeviceType kShark = c10::DeviceType::PrivateUse1;
inline constexpr c10::DispatchKey kSharkKey = c10::DispatchKey::PrivateUse1;

// Sizes and strides are in elements of `dtype`.
struct Geometry {
  at::DimVector sizes;
  at::DimVector strides;
  c10::ScalarType dtype = c10::ScalarType::Byte;
};

// Memory of the native device, with what the IREE runtime made of it.
// A region's results arrive in a fresh buffer that is swapped into the storage, so whatever was
// imported goes away exactly with the memory it describes, or back to the pool with it
// (device/imports.h).
struct NativeBuffer : c10::intrusive_ptr_target {
  explicit NativeBuffer(c10::Storage memory) : storage(std::move(memory)) {}
  ~NativeBuffer() override;
  c10::Storage storage;
  std::shared_ptr<void> imported;  // opaque to dispatch/; csrc_py keeps the buffer view here
};

enum class StorageState : uint8_t {
  unwritten,  // nothing was ever recorded or copied into it: a host copy may become its memory
  written,    // at least one recorded operator, or a host copy, gives its content
  failed,     // the operator that should have given its content raised; reading it raises again
};

// What stands behind the DataPtr of a shark StorageImpl.
//
// Lifetime: the DataPtr holds one reference; each recorded entry that names the storage holds
// another until it has run, so memory is freed right after its last use.
// Locking: `buffer` and `failure` belong to whoever runs entries (the executor's exclusive
// section); the `window_*` fields to the recorder's lock; the atomics to nobody.
struct DeviceStorage : c10::intrusive_ptr_target {
  DeviceStorage(size_t nbytes, Geometry base);
  ~DeviceStorage() override;

  // The native memory, allocated on first use.
  NativeBuffer& native();
  void adopt(c10::Storage memory);
  void fail(std::shared_ptr<const std::string> why);

  size_t nbytes;
  Geometry base;  // of the tensor the storage was created for
  void* address;
  c10::intrusive_ptr<NativeBuffer> buffer;
  std::shared_ptr<const std::string> failure;
  std::atomic<StorageState> state{StorageState::unwritten};
  std::atomic<bool> referenced{true};  // false once the StorageImpl is gone

  uint64_t window_serial = 0;  // the window that named this storage last
  uint32_t window_number = 0;  // its number there, by first use
};

// A tensor on the shark device over a new, unwritten storage.
at::Tensor make_device_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                              c10::ScalarType dtype);

// The DataPtr that keeps `storage` alive; takes the caller's reference.
c10::DataPtr make_data_ptr(c10::intrusive_ptr<DeviceStorage> storage);

// The storage behind a shark tensor or StorageImpl; also finds storages that were built over a bare
// arena pointer (legacy load, DLPack).
DeviceStorage& device_storage(const c10::StorageImpl& storage);
inline DeviceStorage& device_storage(const at::TensorBase& tensor) {
  return device_storage(*tensor.storage().unsafeGetStorageImpl());
}

}  // namespace torch_shark
