#include "dispatch/device/pool.h"

#include <c10/util/Exception.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "dispatch/device/imports.h"

namespace torch_shark {
namespace {

// Runs of at least a huge page are aligned to huge pages and ask for them: one fault in place of
// 512 makes the first touch of a 64 MiB tensor 2-5 times faster.
constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Addresses without memory; nullptr where the system refuses.
char* reserve_addresses(size_t nbytes) {
  void* address =
      mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : static_cast<char*>(address);
}

bool commit(char* address, size_t nbytes) {
  if (mprotect(address, nbytes, PROT_READ | PROT_WRITE) != 0) return false;
#ifdef MADV_HUGEPAGE
  if (nbytes >= kHugePageBytes) madvise(address, nbytes, MADV_HUGEPAGE);
#endif
  return true;
}

// Mapping anew drops the pages and the commit charge on every system, which madvise does not.
void decommit(char* address, size_t nbytes) {
  forget_imports(address, address + nbytes);
  void* mapped = mmap(address, nbytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  TORCH_CHECK(mapped == address, "[shark] expected to give back ", nbytes, " bytes of memory");
}

// Addresses are not shared among size classes, so the range is several times what memory can hold.
// A limit on address space leaves none to spare for that.
size_t address_bytes_of_this_machine() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return 0;
  const auto memory =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return 16 * round_up(memory, CpuPool::kGranuleBytes);
}

}  // namespace

CpuPool::CpuPool(size_t address_bytes) {
  const size_t granules = address_bytes / kGranuleBytes;
  if (granules == 0) return;
  const size_t table_bytes = granules * sizeof(Granule);
  // The table lies before the blocks; both are aligned by hand to huge pages.
  const size_t first_block = round_up(table_bytes, kHugePageBytes);
  char* start = reserve_addresses(first_block + granules * kGranuleBytes + kHugePageBytes);
  if (start == nullptr) return;
  char* aligned =
      reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(start), kHugePageBytes));
  if (mprotect(aligned, table_bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(start, first_block + granules * kGranuleBytes + kHugePageBytes);
    return;
  }
  munmap(start, static_cast<size_t>(aligned - start));
  granules_ = reinterpret_cast<Granule*>(aligned);
  base_ = cursor_ = aligned + first_block;
  end_ = base_ + granules * kGranuleBytes;
  munmap(end_, static_cast<size_t>(start + kHugePageBytes - aligned));
}

CpuPool::~CpuPool() {
  if (!available()) return;
  char* table = reinterpret_cast<char*>(granules_);
  munmap(table, static_cast<size_t>(end_ - table));
}

size_t CpuPool::class_of(size_t nbytes) {
  if (nbytes <= 512) return (nbytes - 1) / kAlignment;
  // Below 2^(p+1), sizes are (9..16) * 2^(p-3); p and the step are read off the bits of nbytes - 1.
  const size_t power = static_cast<size_t>(std::bit_width(nbytes - 1)) - 1;
  const size_t step = ((nbytes - 1) >> (power - 3)) & 7;
  return 8 + 8 * (power - 9) + step;
}

size_t CpuPool::class_bytes(size_t size_class) {
  if (size_class < 8) return (size_class + 1) * kAlignment;
  const size_t power = (size_class - 8) / 8 + 9;
  return ((size_class - 8) % 8 + 9) << (power - 3);
}

size_t CpuPool::block_bytes(size_t nbytes) { return class_bytes(class_of(nbytes)); }

void* CpuPool::allocate(size_t nbytes) {
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(nbytes > 0);
  const auto range = static_cast<size_t>(end_ - base_);
  TORCH_CHECK_WITH(OutOfMemoryError, nbytes <= range, "[shark] expected at most ", range,
                   " bytes in one CPU allocation, got ", nbytes);
  const size_t size_class = class_of(nbytes);
  const size_t bytes = class_bytes(size_class);
  const std::lock_guard lock(mutex_);
  auto& cached = classes_[size_class].cached;
  char* block = nullptr;
  if (!cached.empty()) {
    block = cached.back();
    cached.pop_back();
    ++stats_.reuses;
  } else {
    make_room(size_class);
    trim_host(size_class);
    block = fetch_block(size_class);
    if (block == nullptr) {
      release_all();
      block = fetch_block(size_class);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "[shark] expected ", nbytes,
                     " bytes of CPU memory, but the system has no more; shark holds ", stats_.live,
                     " bytes");
    stats_.reserved += bytes;
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  }
  if (is_small(size_class)) ++granules_[granule_of(block)].live_blocks;
  ++stats_.allocations;
  stats_.live += bytes;
  stats_.peak_live = std::max(stats_.peak_live, stats_.live);
  high_water_ = std::max(high_water_, stats_.live);
  return block;
}

void CpuPool::deallocate(void* block) noexcept {
  Granule& granule = granules_[granule_of(block)];
  const size_t size_class = granule.size_class;
  const std::lock_guard lock(mutex_);
  classes_[size_class].cached.push_back(static_cast<char*>(block));
  if (is_small(size_class)) --granule.live_blocks;
  stats_.live -= class_bytes(size_class);
}

char* CpuPool::fetch_block(size_t size_class) {
  SizeClass& blocks = classes_[size_class];
  const size_t bytes = class_bytes(size_class);
  if (!is_small(size_class)) return fetch_run(size_class, blocks.vacant, bytes);
  const bool slab_is_used_up = static_cast<size_t>(blocks.slab_end - blocks.slab_cursor) < bytes;
  if (slab_is_used_up && !carve_from_new_slab(size_class)) return nullptr;
  char* block = blocks.slab_cursor;
  blocks.slab_cursor += bytes;
  return block;
}

bool CpuPool::carve_from_new_slab(size_t size_class) {
  char* slab = fetch_run(size_class, vacant_slabs_, kGranuleBytes);
  if (slab == nullptr) return false;
  classes_[size_class].slab_cursor = slab;
  classes_[size_class].slab_end = slab + kGranuleBytes;
  return true;
}

char* CpuPool::fetch_run(size_t size_class, std::vector<char*>& vacant, size_t nbytes) {
  const size_t run_bytes = round_up(nbytes, kGranuleBytes);
  char* run = nullptr;
  if (!vacant.empty()) {
    run = vacant.back();
    vacant.pop_back();
    const size_t missed_bytes = std::min(run_bytes, evicted_);
    evicted_ -= missed_bytes;
    slack_ = std::min(slack_ + missed_bytes, kMostSlackBytes);
  } else {
    const size_t alignment = run_bytes >= kHugePageBytes ? kHugePageBytes : kGranuleBytes;
    const size_t offset = round_up(static_cast<size_t>(cursor_ - base_), alignment);
    if (offset + run_bytes > static_cast<size_t>(end_ - base_)) return nullptr;
    run = base_ + offset;
    cursor_ = run + run_bytes;
  }
  if (!commit(run, run_bytes)) {
    vacant.push_back(run);
    return nullptr;
  }
  granules_[granule_of(run)] = {static_cast<uint16_t>(size_class), 0};
  return run;
}

void CpuPool::make_room(size_t size_class) {
  const size_t bytes = class_bytes(size_class);
  const size_t mark = std::max(high_water_, stats_.live + bytes);
  const size_t limit = mark + mark / 64 + slack_;
  const auto fits = [&] { return stats_.reserved + bytes <= limit; };
  const size_t reserved = stats_.reserved;
  while (!fits() && release_largest()) {
  }
  evicted_ += reserved - stats_.reserved;
  // Looking through all small blocks pays for a large block only.
  if (!fits() && !is_small(size_class)) release_empty_slabs();
}

void CpuPool::trim_host(size_t size_class) {
  const size_t reserved = stats_.reserved + class_bytes(size_class);
  if (reserved < next_trim_) return;
  next_trim_ = reserved + std::max(kTrimBytes, reserved / 8);
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

bool CpuPool::release_largest() {
  for (size_t size_class = kClasses; size_class-- > 0 && !is_small(size_class);) {
    SizeClass& blocks = classes_[size_class];
    if (blocks.cached.empty()) continue;
    char* block = blocks.cached.back();
    blocks.cached.pop_back();
    decommit(block, round_up(class_bytes(size_class), kGranuleBytes));
    blocks.vacant.push_back(block);
    stats_.reserved -= class_bytes(size_class);
    return true;
  }
  return false;
}

void CpuPool::release_empty_slabs() {
  for (size_t size_class = 0; is_small(size_class); ++size_class) {
    SizeClass& blocks = classes_[size_class];
    std::vector<size_t> slabs;
    std::erase_if(blocks.cached, [&](const char* block) {
      const size_t slab = granule_of(block);
      if (granules_[slab].live_blocks > 0) return false;
      slabs.push_back(slab);
      return true;
    });
    stats_.reserved -= slabs.size() * class_bytes(size_class);
    std::sort(slabs.begin(), slabs.end());
    slabs.erase(std::unique(slabs.begin(), slabs.end()), slabs.end());
    for (const size_t granule : slabs) {
      char* slab = base_ + granule * kGranuleBytes;
      if (blocks.slab_end == slab + kGranuleBytes) blocks.slab_cursor = blocks.slab_end = nullptr;
      decommit(slab, kGranuleBytes);
      vacant_slabs_.push_back(slab);
    }
  }
}

void CpuPool::release_all() {
  while (release_largest()) {
  }
  release_empty_slabs();
}

void CpuPool::empty_cache() {
  const std::lock_guard lock(mutex_);
  release_all();
  high_water_ = stats_.live;
  slack_ = kSlackBytes;
  evicted_ = 0;
}

CpuPoolStats CpuPool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CpuPool::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  stats_.peak_live = stats_.live;
  stats_.peak_reserved = stats_.reserved;
}

CpuPool& cpu_pool() {
  static CpuPool* const pool = [] {
    auto* made = new CpuPool(address_bytes_of_this_machine());
    pthread_atfork([] { cpu_pool().lock_for_fork(); }, [] { cpu_pool().unlock_after_fork(); },
                   [] { cpu_pool().unlock_after_fork(); });
    return made;
  }();
  return *pool;
}

}  // namespace torch_shark
