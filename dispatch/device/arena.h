#pragma once

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
// Locking: `mutex_` guards the free lists and owners; no other lock is taken under it.
class Arena {
 public:
  static Arena& instance();

  // Reserves `nbytes` (0 counts as 1) of address space for `owner`.
  // Throws OutOfMemoryError when the size class is exhausted.
  void* reserve(size_t nbytes, DeviceStorage* owner);
  void release(void* address);

  // The storage whose range holds `address`, or nullptr. The caller keeps that storage alive.
  DeviceStorage* find(const void* address) const;

 private:
  struct SizeClass {
    std::vector<DeviceStorage*> owners;
    std::vector<uint32_t> free_slots;
  };

  Arena();
  size_t class_of(const void* address) const;

  char* base_;
  mutable std::mutex mutex_;
  std::vector<SizeClass> classes_;
};

}  // namespace torch_shark
