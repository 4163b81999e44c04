#include "dispatch/ops/share.h"

#include <utility>

#include "dispatch/device/native_device.h"
#include "dispatch/device/storage.h"
#include "dispatch/ops/read.h"

namespace torch_shark {
namespace {

// Counts as a second user of its memory for as long as it lives, so that a region's result is
// written into the memory and does not replace it.
struct BorrowedBuffer final : NativeBuffer {
  explicit BorrowedBuffer(c10::Storage memory) : NativeBuffer(memory), lender(std::move(memory)) {}
  c10::Storage lender;
};

// What keeps lent memory, and the storage of the device that writes it: a write that is recorded
// is done although the program has let go of the tensor.
struct Loan {
  c10::Storage memory;
  c10::Storage device;
};

void end_loan(void* loan) { delete static_cast<Loan*>(loan); }

// As for every storage of the device, but it goes on counting as one that is read.
void drop_borrowed(void* context) {
  c10::intrusive_ptr<DeviceStorage>::reclaim(static_cast<DeviceStorage*>(context));
}

void keep_alive(const at::Tensor& tensor) {
  DeviceStorage& storage = device_storage(tensor);
  auto handle = c10::intrusive_ptr<DeviceStorage>::reclaim_copy(&storage);
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      c10::DataPtr(storage.address, handle.release(), &drop_borrowed, tensor.device()));
  storage.referenced = true;  // dropping the first handle said otherwise
}

}  // namespace

at::Tensor lend_to_native(const at::Tensor& tensor) {
  const at::Tensor native = read_native(tensor);
  // Whoever gets it may write it, which no operator will tell.
  device_storage(tensor).state = StorageState::written;
  c10::Storage memory = native.storage();
  void* data = memory.mutable_data();
  const size_t nbytes = memory.nbytes();
  c10::Storage lent(
      c10::Storage::use_byte_size_t(), nbytes,
      c10::DataPtr(data, new Loan{std::move(memory), tensor.storage()}, &end_loan, native_device()),
      /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor result = native_tensor(std::move(lent), native.sizes(), native.strides(),
                                    native.storage_offset(), native.scalar_type());
  result._set_conj(native.is_conj());
  result._set_neg(native.is_neg());
  return result;
}

at::Tensor borrow_from_native(const at::Tensor& native) {
  TORCH_CHECK(native.device() == native_device() && native.layout() == at::kStrided,
              "[shark] expected a strided tensor on ", native_device(), ", got one on ",
              native.device());
  TORCH_CHECK(!native.is_conj() && !native.is_neg(),
              "[shark] expected a tensor without the conjugate or the negative bit");
  at::Tensor tensor = make_device_tensor(native.sizes(), native.strides(), native.scalar_type());
  DeviceStorage& storage = device_storage(tensor);
  const size_t skipped = native.storage_offset() * native.itemsize();
  c10::Storage memory = native.storage();
  if (skipped != 0 || memory.nbytes() != storage.nbytes) {
    // Only the tensor's own part, kept alive by the whole.
    memory = c10::Storage(
        c10::Storage::use_byte_size_t(), storage.nbytes,
        c10::DataPtr(
            static_cast<char*>(native.storage().mutable_data()) + skipped,
            new c10::Storage(native.storage()),
            [](void* whole) { delete static_cast<c10::Storage*>(whole); }, native_device()),
        /*allocator=*/nullptr, /*resizable=*/false);
  }
  storage.buffer = c10::make_intrusive<BorrowedBuffer>(std::move(memory));
  storage.state = StorageState::written;
  keep_alive(tensor);
  return tensor;
}

}  // namespace torch_shark
