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

}  // namespace

at::Tensor lend_to_native(const at::Tensor& tensor) {
  at::Tensor native = read_native(tensor);
  // Whoever gets it may write it, which no operator will tell.
  device_storage(tensor).state = StorageState::written;
  return native;
}

at::Tensor borrow_from_native(const at::Tensor& native) {
  TORCH_CHECK(native.device().type() == kNative && native.layout() == at::kStrided,
              "[shark] expected a strided tensor on ", kNative, ", got one on ", native.device());
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
            [](void* whole) { delete static_cast<c10::Storage*>(whole); }, c10::Device(kNative)),
        /*allocator=*/nullptr, /*resizable=*/false);
  }
  storage.buffer = c10::make_intrusive<BorrowedBuffer>(std::move(memory));
  storage.state = StorageState::written;
  return tensor;
}

}  // namespace torch_shark
