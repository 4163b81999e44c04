// A caching pool for the CPU memory behind shark storages.
//
// Fresh pages cost more than most operators on large tensors: the kernel zeroes each on first
// touch. So freed blocks are kept and reused, but never so many that a program takes more memory
// than it would without the pool:
//
//   high-water rule: reserved (live and cached) bytes stay at or below the highest value that live
//   bytes ever had, plus a slack and 1/64. Before a block is fetched from the system, cached blocks
//   are given back, largest first, until it fits. The slack begins with kSlackBytes and grows by
//   what is fetched again after it was given back so, up to kMostSlackBytes: a small model's
//   activations, of many sizes and few alive at a time, come to fit into it.
//
// All blocks lie in one reserved range of addresses, so `owns` is two comparisons. The range is cut
// into granules. A block of more than kMaxSmallBytes is a run of granules of its own, given back to
// the system as a whole. Smaller ones are carved from slabs, each a granule of one size class; a
// slab is given back when all its blocks are free, so the rule does not bind scattered small
// blocks.
//
// The C library keeps freed memory as well: that of the host's tensors, where a model was moved to
// the device. Each time that the pool has grown by kTrimBytes and by 1/8, that is given back too.
//
// Lifetime and locking: all methods are thread-safe; one mutex guards everything but `granules_`'
// class numbers, which do not change while a block of theirs is live. fork() holds the mutex of
// `cpu_pool()`, so a child finds it consistent and goes on using its copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace torch_shark {

// All in bytes, of blocks (requests rounded up to their size class), but for the last two.
struct CpuPoolStats {
  size_t live = 0;           // in use
  size_t peak_live = 0;      // highest since reset_peak_stats
  size_t reserved = 0;       // in use or cached
  size_t peak_reserved = 0;  // highest since reset_peak_stats
  uint64_t allocations = 0;  // calls of allocate that returned a block
  uint64_t reuses = 0;       // those served with a cached block
};

class CpuPool {
 public:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kGranuleBytes = size_t{64} << 10;
  static constexpr size_t kMaxSmallBytes = size_t{32} << 10;
  static constexpr size_t kSlackBytes = size_t{1} << 20;
  static constexpr size_t kMostSlackBytes = size_t{64} << 20;
  static constexpr size_t kTrimBytes = size_t{64} << 20;

  // Reserves `address_bytes` of addresses, and no memory. Where the system refuses (a limit on
  // address space), the pool is unavailable.
  explicit CpuPool(size_t address_bytes);
  // Gives everything back; no block may be live.
  ~CpuPool();
  CpuPool(const CpuPool&) = delete;
  CpuPool& operator=(const CpuPool&) = delete;

  bool available() const { return base_ != nullptr; }

  // A block of at least `nbytes` (> 0), aligned to kAlignment, with undefined content.
  // Throws c10::OutOfMemoryError if the system has no memory even after the cache is emptied.
  void* allocate(size_t nbytes);
  void deallocate(void* block) noexcept;
  bool owns(const void* address) const {
    const auto* byte = static_cast<const char*>(address);
    return byte >= base_ && byte < end_;
  }

  // Gives all cached blocks back to the system and forgets the high-water mark and the slack.
  void empty_cache();
  CpuPoolStats stats() const;
  void reset_peak_stats();

  // The size of the block that serves a request: a multiple of kAlignment up to 512, then one of
  // eight sizes per power of two, so that at most 1/9 of a block is unused.
  static size_t block_bytes(size_t nbytes);

  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }

 private:
  static constexpr size_t kClasses = 8 + 8 * (48 - 9);

  struct SizeClass {
    std::vector<char*> cached;  // free blocks, committed
    std::vector<char*> vacant;  // addresses of blocks given back to the system; large classes only
    char* slab_cursor = nullptr;  // rest of the slab being carved; small classes only
    char* slab_end = nullptr;
  };
  struct Granule {
    uint16_t size_class;   // of the slab, or of the block that starts here
    uint16_t live_blocks;  // slabs only
  };

  static size_t class_of(size_t nbytes);
  static size_t class_bytes(size_t size_class);
  static bool is_small(size_t size_class) { return class_bytes(size_class) <= kMaxSmallBytes; }
  size_t granule_of(const void* address) const {
    return static_cast<size_t>(static_cast<const char*>(address) - base_) / kGranuleBytes;
  }

  // All below expect the mutex to be held. The first three return nullptr or false where the
  // system has no memory.
  char* fetch_block(size_t size_class);
  char* fetch_run(size_t size_class, std::vector<char*>& vacant, size_t nbytes);
  bool carve_from_new_slab(size_t size_class);
  void make_room(size_t size_class);
  void trim_host(size_t size_class);
  bool release_largest();
  void release_empty_slabs();
  void release_all();

  char* base_ = nullptr;
  char* end_ = nullptr;
  char* cursor_ = nullptr;       // addresses from here on were never used
  Granule* granules_ = nullptr;  // one per granule, in lazily committed memory

  mutable std::mutex mutex_;
  std::array<SizeClass, kClasses> classes_;
  std::vector<char*> vacant_slabs_;
  size_t high_water_ = 0;
  size_t slack_ = kSlackBytes;
  size_t evicted_ = 0;             // given back to make room, and not fetched again since
  size_t next_trim_ = kTrimBytes;  // reserved bytes; only ever rises, so trims are few
  CpuPoolStats stats_;
};

// The pool of this process; never destroyed, as tensors may outlive static objects.
CpuPool& cpu_pool();

}  // namespace torch_shark
