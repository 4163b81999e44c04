#include "dispatch/exec/buffers.h"

#include <cstring>

#include "dispatch/device/native_device.h"
#include "dispatch/device/pool.h"

namespace torch_shark {
namespace {

Buffer copied(const c10::Storage& memory) {
  Buffer copy = fresh(memory.nbytes());
  std::memcpy(copy->storage.mutable_data(), memory.data(), memory.nbytes());
  return copy;
}

// Memory within other memory, which it keeps.
c10::Storage part_of(const c10::Storage& memory, const Piece& piece) {
  auto* kept = new c10::Storage(memory);
  auto* first = static_cast<std::byte*>(memory.mutable_data()) + piece.offset;
  return {c10::Storage::use_byte_size_t(), piece.nbytes,
          c10::DataPtr(
              first, kept, [](void* memory) { delete static_cast<c10::Storage*>(memory); },
              memory.device())};
}

}  // namespace

Buffer fresh(size_t nbytes) { return c10::make_intrusive<NativeBuffer>(allocate_native(nbytes)); }

bool is_readable(DeviceStorage& storage, const Piece& piece) {
  const auto first = reinterpret_cast<uintptr_t>(storage.native().storage.data()) + piece.offset;
  return first % CpuPool::kAlignment == 0;
}

Buffer content(DeviceStorage& storage, const Piece& piece) {
  const c10::Storage& memory = storage.native().storage;
  const bool readable = is_readable(storage, piece);
  if (piece.nbytes == storage.nbytes) {
    return readable ? storage.buffer : copied(memory);
  }
  const c10::Storage part = part_of(memory, piece);
  return readable ? c10::make_intrusive<NativeBuffer>(part) : copied(part);
}

Buffer copy_of(DeviceStorage& storage) {
  if (!storage.buffer) {
    std::memset(storage.native().storage.mutable_data(), 0, storage.nbytes);
  }
  return copied(storage.buffer->storage);
}

at::Tensor flat(const c10::Storage& memory, c10::ScalarType dtype) {
  const auto count = static_cast<int64_t>(memory.nbytes() / c10::elementSize(dtype));
  return native_tensor(memory, {count}, {1}, 0, dtype);
}

Buffer fresh_for(const Place& part) {
  const auto& [sizes, strides, dtype] = part.geometry;
  return fresh(c10::multiply_integers(sizes) * c10::elementSize(dtype));
}

at::Tensor elements(const Place& part, const NativeBuffer& result) {
  const auto& [sizes, strides, dtype] = part.geometry;
  return flat(result.storage, dtype).slice(0, 0, c10::multiply_integers(sizes)).view(sizes);
}

void give(DeviceStorage& storage, Buffer result) {
  if (result == storage.buffer) {
    return;
  }
  if (storage.buffer && storage.buffer->storage.use_count() > 1) {
    std::memcpy(storage.buffer->storage.mutable_data(), result->storage.data(), storage.nbytes);
  } else {
    storage.buffer = std::move(result);
  }
}

}  // namespace torch_shark
