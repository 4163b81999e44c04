// Operators that change a tensor's geometry or storage in place. They act at once.

#include "dispatch/ops/resize.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <torch/library.h>

#include "dispatch/window/recorder.h"

namespace torch_shark {
namespace {

void replace_storage(c10::StorageImpl& storage, c10::intrusive_ptr<DeviceStorage> replacement) {
  const size_t nbytes = replacement->nbytes;
  storage.set_data_ptr_noswap(make_data_ptr(std::move(replacement)));
  storage.set_nbytes(nbytes);
}

c10::intrusive_ptr<DeviceStorage> byte_storage(size_t nbytes) {
  return c10::make_intrusive<DeviceStorage>(
      nbytes, Geometry{at::DimVector{static_cast<int64_t>(nbytes)}, at::DimVector{1},
                       c10::ScalarType::Byte});
}

// Grows the storage until the tensor fits; never shrinks it, as on other devices.
void fit_storage(const at::Tensor& self) {
  if (self.numel() == 0) {
    return;
  }
  const size_t needed = at::detail::computeStorageNbytes(self.sizes(), self.strides(),
                                                         self.itemsize(), self.storage_offset());
  c10::StorageImpl& storage = *self.storage().unsafeGetStorageImpl();
  if (needed <= storage.nbytes()) {
    return;
  }
  const bool nothing_to_keep = device_storage(storage).window_serial == 0 &&
                               device_storage(storage).state == StorageState::unwritten;
  resize_storage(storage, needed);
  if (nothing_to_keep && self.storage_offset() == 0) {
    device_storage(storage).base = {at::DimVector(self.sizes()), at::DimVector(self.strides()),
                                    self.scalar_type()};
  }
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size,
                          std::optional<c10::MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(size);
  const auto old_nbytes = static_cast<int64_t>(self.storage().nbytes());
  if (self.sizes() != size) {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
    fit_storage(self);
  }
  if (memory_format) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format",
                *memory_format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, old_nbytes);
  }
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset,
                               c10::IntArrayRef size, c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  if (stride.data() != nullptr) {  // raises where a stride is negative
    at::detail::computeStorageNbytes(size, stride, self.itemsize(), offset);
  }
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  if (stride.data() != nullptr) {
    impl.set_sizes_and_strides(size, stride, offset);
  } else {
    impl.set_storage_offset(offset);
    impl.set_sizes_contiguous(size);
  }
  fit_storage(self);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto length = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_offset(self, std::move(source), 0, length, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) {
    return self;
  }
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(),
                            source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  at::Tensor fresh = make_device_tensor({0}, {1}, self.scalar_type());
  return set_storage_offset(self, fresh.storage(), 0, {0}, {});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("set_", TORCH_FN(set_empty));
  m.impl("is_set_to", TORCH_FN(is_set_to));
}

}  // namespace

void resize_storage(c10::StorageImpl& storage, size_t nbytes) {
  auto old = c10::intrusive_ptr<DeviceStorage>::reclaim_copy(&device_storage(storage));
  auto replacement = byte_storage(nbytes);
  const size_t common = std::min(old->nbytes, nbytes);
  if (common > 0 && old->state != StorageState::unwritten) {
    Recorder::instance().record_bytes(replacement, old, common);
  }
  replace_storage(storage, std::move(replacement));
}

void adopt_resized(const at::Tensor& tensor, const at::Tensor& native) {
  auto replacement = c10::make_intrusive<DeviceStorage>(
      native.storage().nbytes(), Geometry{at::DimVector(native.sizes()),
                                          at::DimVector(native.strides()), native.scalar_type()});
  const auto& buffer = device_storage(tensor).buffer;
  if (buffer && buffer->storage.is_alias_of(native.storage())) {
    replacement->buffer = buffer;  // what is borrowed stays so
  } else {
    replacement->adopt(native.storage());
  }
  replacement->state = StorageState::written;
  replace_storage(*tensor.storage().unsafeGetStorageImpl(), std::move(replacement));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(native.sizes(), native.strides(),
                                                      native.storage_offset());
}

}  // namespace torch_shark
