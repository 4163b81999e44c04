#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace torch_shark {

struct DeviceStorage;

// Hands out addresses for shark storages: unique, never null, never readable.
//
// A shark tensor's bytes live on the native device and may not exist yet, but PyTorch compares,
// hashes and offsets data pointers. Each address comes from one reserved PROT_NONE mapping, so all
// of that works and a stray dereference faults instead of reading rubbish. The address names its
// storage, so code that only has a pointer finds its way back.
//
// The mapping is divided into one segment per power-of-two size class; freed slots are recycled.
// Locking: threads keep a few free slots of their own, since one thread reserves what another
// releases; `mutex_` guards the shared rest, and no other lock is taken under it.
class Arena {
 public:
  static Arena& instance();

  // Reserves `nbytes` (0 counts as 1) of address space for `owner`.
  // Throws OutOfMemoryError when the size class is exhausted.
  void* reserve(size_t nbytes, DeviceStorage* owner);
  void release(void* address);

  // The storage whose range holds `address`, or nullptr. The caller keeps that storage alive.
  DeviceStorage* find(const void* address) const;

#ifdef __SANITIZE_THREAD__
  static constexpr size_t kClasses = 29;  // to 16 GiB: it leaves a process 3 TiB of addresses
#else
  static constexpr size_t kClasses = 35;  // 64 bytes to 1 TiB
#endif

 private:
  struct Slot {
    size_t size_class;
    size_t index;
  };
  struct SizeClass {
    std::vector<uint32_t> free_slots;
    size_t unused = 0;       // slots from here on were never given out
    DeviceStorage** owners;  // by slot; lazily committed memory
  };
  struct LocalSlots;

  Arena();
  static LocalSlots& local_slots();
  bool contains(const void* address) const;
  Slot slot_of(const void* address) const;
  void take(size_t size_class, std::vector<uint32_t>& slots);
  void give(size_t size_class, std::vector<uint32_t>& slots, size_t keep);

  char* base_;
  std::mutex mutex_;
  std::array<SizeClass, kClasses> classes_;
};

}  // namespace torch_shark
