#include "dispatch/device/arena.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace torch_shark {
namespace {

constexpr size_t kSmallestLog2 = 6;  // 64 bytes, the alignment IREE wants
constexpr size_t kSegmentLog2 = kSmallestLog2 + Arena::kClasses - 1;  // holds the largest class
constexpr size_t kArenaBytes = Arena::kClasses << kSegmentLog2;  // 35 of the 128 TiB of a process
constexpr size_t kMaxSlots = size_t{1} << 24;                    // storages of one class
size_t class_of(size_t nbytes) {
  const size_t log2 = std::bit_width(nbytes > 1 ? nbytes - 1 : size_t{0});
  return log2 < kSmallestLog2 ? 0 : log2 - kSmallestLog2;
}

size_t slot_limit(size_t size_class) {
  return std::min(kMaxSlots, size_t{1} << (kSegmentLog2 - kSmallestLog2 - size_class));
}

// How many slots move between a thread and the rest at a time. Large classes have few slots, and no
// thread may hoard them.
size_t batch_of(size_t size_class) {
  return std::clamp<size_t>(slot_limit(size_class) / 1024, 1, 64);
}

// Address space without memory; what is touched of a readable one reads as zero.
void* map(size_t nbytes, int protection) {
  void* base =
      mmap(nullptr, nbytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(base != MAP_FAILED, "[shark] expected to reserve ", nbytes >> 30,
              " GiB of address space (no memory is used), but mmap failed; lift `ulimit -v`");
  return base;
}

}  // namespace

// A thread's own free slots; they go back to the rest when the thread ends.
struct Arena::LocalSlots {
  std::array<std::vector<uint32_t>, kClasses> classes;

  // Null before first use, and again after the thread's destructors have run: storages that static
  // objects release later get a new one, which is leaked.
  static thread_local LocalSlots* current;
  struct Return {
    ~Return() {
      for (size_t i = 0; i < kClasses; ++i) {
        Arena::instance().give(i, current->classes[i], 0);
      }
      delete std::exchange(current, nullptr);
    }
  };
};

thread_local Arena::LocalSlots* Arena::LocalSlots::current = nullptr;

Arena& Arena::instance() {
  // Leaked: storages are released during and after static destruction.
  static Arena* arena = new Arena();
  return *arena;
}

Arena::Arena() : base_(static_cast<char*>(map(kArenaBytes, PROT_NONE))) {
  for (SizeClass& size_class : classes_) {
    size_class.owners = static_cast<DeviceStorage**>(
        map(kMaxSlots * sizeof(DeviceStorage*), PROT_READ | PROT_WRITE));
  }
}

Arena::LocalSlots& Arena::local_slots() {
  if (LocalSlots::current == nullptr) {
    LocalSlots::current = new LocalSlots();
    thread_local LocalSlots::Return at_thread_end;
    static_cast<void>(at_thread_end);
  }
  return *LocalSlots::current;
}

void Arena::take(size_t size_class, std::vector<uint32_t>& slots) {
  std::lock_guard<std::mutex> lock(mutex_);
  SizeClass& from = classes_[size_class];
  const size_t batch = batch_of(size_class);
  const size_t recycled = std::min(batch, from.free_slots.size());
  slots.assign(from.free_slots.end() - recycled, from.free_slots.end());
  from.free_slots.resize(from.free_slots.size() - recycled);
  while (slots.size() < batch && from.unused < slot_limit(size_class)) {
    slots.push_back(static_cast<uint32_t>(from.unused++));
  }
}

void Arena::give(size_t size_class, std::vector<uint32_t>& slots, size_t keep) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& free_slots = classes_[size_class].free_slots;
  free_slots.insert(free_slots.end(), slots.begin() + keep, slots.end());
  slots.resize(keep);
}

void* Arena::reserve(size_t nbytes, DeviceStorage* owner) {
  const size_t size_class = class_of(nbytes);
  TORCH_CHECK_WITH(OutOfMemoryError, size_class < kClasses,
                   "[shark] out of memory: tried to allocate ", nbytes, " bytes");
  std::vector<uint32_t>& slots = local_slots().classes[size_class];
  if (slots.empty()) {
    take(size_class, slots);
    TORCH_CHECK_WITH(OutOfMemoryError, !slots.empty(), "[shark] out of memory: tried to allocate ",
                     nbytes, " bytes");
  }
  const size_t index = slots.back();
  slots.pop_back();
  classes_[size_class].owners[index] = owner;
  return base_ + (size_class << kSegmentLog2) + (index << (size_class + kSmallestLog2));
}

bool Arena::contains(const void* address) const {
  const auto* byte = static_cast<const char*>(address);
  return byte >= base_ && byte < base_ + kArenaBytes;
}

Arena::Slot Arena::slot_of(const void* address) const {
  const size_t offset = static_cast<const char*>(address) - base_;
  const size_t size_class = offset >> kSegmentLog2;
  const size_t within = offset & ((size_t{1} << kSegmentLog2) - 1);
  return {size_class, within >> (size_class + kSmallestLog2)};
}

void Arena::release(void* address) {
  const Slot slot = slot_of(address);
  classes_[slot.size_class].owners[slot.index] = nullptr;
  std::vector<uint32_t>& slots = local_slots().classes[slot.size_class];
  slots.push_back(static_cast<uint32_t>(slot.index));
  const size_t batch = batch_of(slot.size_class);
  if (slots.size() >= 2 * batch) {
    give(slot.size_class, slots, batch);
  }
}

DeviceStorage* Arena::find(const void* address) const {
  if (!contains(address)) {
    return nullptr;
  }
  const Slot slot = slot_of(address);
  return slot.index < kMaxSlots ? classes_[slot.size_class].owners[slot.index] : nullptr;
}

}  // namespace torch_shark
