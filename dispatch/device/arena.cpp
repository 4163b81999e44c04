#include "dispatch/device/arena.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <bit>

namespace torch_shark {
namespace {

constexpr size_t kSmallestLog2 = 6;   // 64 bytes, the alignment IREE wants
constexpr size_t kLargestLog2 = 40;   // 1 TiB
constexpr size_t kSegmentLog2 = 40;   // address space per size class
constexpr size_t kClasses = kLargestLog2 - kSmallestLog2 + 1;
constexpr size_t kArenaBytes = kClasses << kSegmentLog2;  // 35 of the 128 TiB a process has

size_t log2_class(size_t nbytes) {
  size_t log2 = std::bit_width(nbytes > 1 ? nbytes - 1 : size_t{0});
  return log2 < kSmallestLog2 ? 0 : log2 - kSmallestLog2;
}

}  // namespace

Arena& Arena::instance() {
  // Leaked: storages are released during and after static destruction.
  static Arena* arena = new Arena();
  return *arena;
}

Arena::Arena() : classes_(kClasses) {
  void* base =
      mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(base != MAP_FAILED, "[shark] expected to reserve ", kArenaBytes >> 40,
              " TiB of address space (no memory is used), but mmap failed; lift `ulimit -v`");
  base_ = static_cast<char*>(base);
}

void* Arena::reserve(size_t nbytes, DeviceStorage* owner) {
  const size_t index = log2_class(nbytes);
  TORCH_CHECK_WITH(OutOfMemoryError, index < kClasses, "[shark] out of memory: tried to allocate ",
                   nbytes, " bytes");
  const size_t slot_log2 = index + kSmallestLog2;
  std::lock_guard<std::mutex> lock(mutex_);
  SizeClass& size_class = classes_[index];
  size_t slot;
  if (!size_class.free_slots.empty()) {
    slot = size_class.free_slots.back();
    size_class.free_slots.pop_back();
    size_class.owners[slot] = owner;
  } else {
    slot = size_class.owners.size();
    TORCH_CHECK_WITH(OutOfMemoryError, (slot + 1) << slot_log2 <= size_t{1} << kSegmentLog2,
                     "[shark] out of memory: tried to allocate ", nbytes, " bytes");
    size_class.owners.push_back(owner);
  }
  return base_ + (index << kSegmentLog2) + (slot << slot_log2);
}

size_t Arena::class_of(const void* address) const {
  const auto offset = static_cast<const char*>(address) - base_;
  if (offset < 0 || static_cast<size_t>(offset) >= kArenaBytes) {
    return kClasses;
  }
  return static_cast<size_t>(offset) >> kSegmentLog2;
}

void Arena::release(void* address) {
  const size_t index = class_of(address);
  const size_t within = (static_cast<char*>(address) - base_) & ((size_t{1} << kSegmentLog2) - 1);
  const size_t slot = within >> (index + kSmallestLog2);
  std::lock_guard<std::mutex> lock(mutex_);
  classes_[index].owners[slot] = nullptr;
  classes_[index].free_slots.push_back(static_cast<uint32_t>(slot));
}

DeviceStorage* Arena::find(const void* address) const {
  const size_t index = class_of(address);
  if (index == kClasses) {
    return nullptr;
  }
  const size_t within =
      (static_cast<const char*>(address) - base_) & ((size_t{1} << kSegmentLog2) - 1);
  const size_t slot = within >> (index + kSmallestLog2);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto& owners = classes_[index].owners;
  return slot < owners.size() ? owners[slot] : nullptr;
}

}  // namespace torch_shark
