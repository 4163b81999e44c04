// The CPU pool (dispatch/device/pool.h) and the allocator in front of torch's (native_memory.h).
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dispatch/device/native_memory.h"
#include "dispatch/device/pool.h"
#include "tests/cpp/check.h"

namespace torch_shark {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kAddressBytes = size_t{4} << 30;

size_t resident_bytes() {
  size_t total = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Runs a body in a forked child; a failed check there is one here.
void in_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQUAL(status, 0);
}

void test_size_classes() {
  CHECK_EQUAL(CpuPool::block_bytes(1), 64u);
  CHECK_EQUAL(CpuPool::block_bytes(512), 512u);
  CHECK_EQUAL(CpuPool::block_bytes(513), 576u);
  CHECK_EQUAL(CpuPool::block_bytes(1024), 1024u);
  CHECK_EQUAL(CpuPool::block_bytes(64 * kMiB), 64 * kMiB);
  CHECK_EQUAL(CpuPool::block_bytes(64 * kMiB + 1), 72 * kMiB);
  for (size_t nbytes = 1; nbytes < (size_t{1} << 40); nbytes += 1 + nbytes / 7) {
    const size_t block = CpuPool::block_bytes(nbytes);
    CHECK_TRUE(block >= nbytes);
    CHECK_EQUAL(block % CpuPool::kAlignment, 0u);
    CHECK_TRUE(nbytes <= 512 ? block - nbytes < 64 : (block - nbytes) * 9 <= block);
    CHECK_EQUAL(CpuPool::block_bytes(block), block);
  }
}

void test_blocks_are_aligned_distinct_and_owned() {
  CpuPool pool(kAddressBytes);
  CHECK_TRUE(pool.available());
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (size_t nbytes = 1; nbytes < 40 * kMiB; nbytes += 1 + nbytes / 3) {
    auto* block = static_cast<unsigned char*>(pool.allocate(nbytes));
    CHECK_EQUAL(reinterpret_cast<uintptr_t>(block) % CpuPool::kAlignment, 0u);
    CHECK_TRUE(pool.owns(block));
    std::memset(block, static_cast<int>(blocks.size()), nbytes);
    blocks.emplace_back(block, nbytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, nbytes] = blocks[i];
    CHECK_EQUAL(int{block[0]}, static_cast<int>(i & 255));
    CHECK_EQUAL(int{block[nbytes - 1]}, static_cast<int>(i & 255));
    pool.deallocate(block);
  }
  int on_the_stack = 0;
  CHECK_TRUE(!pool.owns(&on_the_stack));
  CHECK_TRUE(!pool.owns(nullptr));
  CHECK_EQUAL(pool.stats().live, 0u);
}

void test_a_freed_block_is_reused() {
  CpuPool pool(kAddressBytes);
  for (const size_t nbytes : {size_t{4}, size_t{5000}, 100 * kMiB}) {
    void* first = pool.allocate(nbytes);
    pool.deallocate(first);
    CHECK_EQUAL(pool.allocate(nbytes - 1), first);
    pool.deallocate(first);
  }
  CHECK_EQUAL(pool.stats().allocations, 6u);
  CHECK_EQUAL(pool.stats().reuses, 3u);
}

void test_statistics() {
  CpuPool pool(kAddressBytes);
  void* large = pool.allocate(8 * kMiB);
  void* small = pool.allocate(100);
  CHECK_EQUAL(pool.stats().live, 8 * kMiB + 128);
  pool.deallocate(large);
  CHECK_EQUAL(pool.stats().live, 128u);
  CHECK_EQUAL(pool.stats().reserved, 8 * kMiB + 128);
  pool.empty_cache();
  CHECK_EQUAL(pool.stats().reserved, 128u);
  CHECK_EQUAL(pool.stats().peak_live, 8 * kMiB + 128);
  CHECK_EQUAL(pool.stats().peak_reserved, 8 * kMiB + 128);
  pool.reset_peak_stats();
  CHECK_EQUAL(pool.stats().peak_live, 128u);
  CHECK_EQUAL(pool.stats().peak_reserved, 128u);
  pool.deallocate(small);
  pool.empty_cache();
  CHECK_EQUAL(pool.stats().reserved, 0u);
}

// Sizes that wander make every allocation a miss; the cache must shrink to let them in.
void test_reserved_stays_below_the_high_water_mark() {
  CpuPool pool(kAddressBytes);
  std::mt19937 random(1);
  std::vector<void*> blocks;
  for (int i = 0; i < 3000; ++i) {
    if (blocks.size() == 8) {
      std::swap(blocks[random() % 8], blocks.back());
      pool.deallocate(blocks.back());
      blocks.pop_back();
    }
    blocks.push_back(pool.allocate(40'000 + random() % (16 * kMiB)));
    const auto stats = pool.stats();
    CHECK_TRUE(stats.reserved <= stats.peak_live + stats.peak_live / 64 + CpuPool::kMostSlackBytes);
  }
  for (void* block : blocks) pool.deallocate(block);
}

void test_a_miss_gives_back_only_what_it_must() {
  CpuPool pool(kAddressBytes);
  void* first = pool.allocate(20 * kMiB);
  void* second = pool.allocate(20 * kMiB);
  pool.deallocate(first);
  pool.deallocate(second);
  pool.reset_peak_stats();  // statistics are not the mark
  void* third = pool.allocate(8 * kMiB);
  CHECK_EQUAL(pool.stats().reserved, 28 * kMiB);
  pool.deallocate(third);
}

void test_slabs_make_room_for_a_large_block() {
  CpuPool pool(kAddressBytes);
  std::vector<void*> small(40'000);
  for (auto& block : small) block = pool.allocate(1000);
  // One block keeps its slab.
  for (size_t i = 1; i < small.size(); ++i) pool.deallocate(small[i]);
  CHECK_EQUAL(pool.stats().reserved, 40'000u * 1024);
  void* large = pool.allocate(32 * kMiB);
  CHECK_EQUAL(pool.stats().reserved, 32 * kMiB + CpuPool::kGranuleBytes);
  pool.deallocate(large);
  pool.deallocate(small[0]);
}

// Blocks of many sizes, one alive at a time: what is taken again and again comes to be kept.
void test_a_loop_over_sizes_settles() {
  CpuPool pool(kAddressBytes);
  uint64_t fetched = 0;
  for (int step = 0; step < 20; ++step) {
    for (size_t size = 1; size <= 6; ++size) pool.deallocate(pool.allocate(size * kMiB));
    const auto stats = pool.stats();
    if (step >= 10) CHECK_EQUAL(stats.allocations - stats.reuses, fetched);
    fetched = stats.allocations - stats.reuses;
  }
  CHECK_EQUAL(pool.stats().reserved, 21 * kMiB);
  pool.empty_cache();
  CHECK_EQUAL(pool.stats().reserved, 0u);
}

// After its first turn a loop fetches nothing more.
void test_a_steady_loop_settles() {
  CpuPool pool(kAddressBytes);
  uint64_t fetched_before = 0;
  for (int step = 0; step < 5; ++step) {
    std::vector<void*> blocks;
    for (const size_t nbytes : {3 * kMiB, 5 * kMiB, 20 * kMiB, 3 * kMiB, size_t{700}}) {
      blocks.push_back(pool.allocate(nbytes));
    }
    for (void* block : blocks) pool.deallocate(block);
    const auto stats = pool.stats();
    CHECK_EQUAL(stats.reserved, stats.peak_live);
    if (step == 0) fetched_before = stats.allocations - stats.reuses;
    CHECK_EQUAL(stats.allocations - stats.reuses, fetched_before);
  }
}

void test_empty_cache_returns_memory_to_the_system() {
  CpuPool pool(kAddressBytes);
  const size_t before = resident_bytes();
  void* large = pool.allocate(64 * kMiB);
  std::memset(large, 1, 64 * kMiB);
  std::vector<void*> small(40'000);
  for (auto& block : small) std::memset(block = pool.allocate(1000), 1, 1000);
  CHECK_TRUE(resident_bytes() > before + 90 * kMiB);
  pool.deallocate(large);
  for (void* block : small) pool.deallocate(block);
  CHECK_TRUE(resident_bytes() > before + 90 * kMiB);
  pool.empty_cache();
  CHECK_TRUE(resident_bytes() < before + 16 * kMiB);
  auto* again = static_cast<char*>(pool.allocate(64 * kMiB));
  CHECK_EQUAL(int{again[kMiB]}, 0);
  pool.deallocate(again);
}

void test_threads_share_the_pool() {
  CpuPool pool(kAddressBytes);
  // Blocks change hands: each thread frees what its neighbour allocated.
  constexpr int kThreads = 4;
  std::mutex mutex;
  std::vector<std::pair<void*, uint32_t>> exchange;
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 5000; ++i) {
      const size_t nbytes = size_t{4} << (random() % 18);
      void* block = pool.allocate(nbytes);
      const uint32_t mark = random();
      std::memcpy(block, &mark, sizeof(mark));
      std::pair<void*, uint32_t> other{nullptr, 0};
      {
        const std::lock_guard lock(mutex);
        exchange.emplace_back(block, mark);
        std::swap(exchange[random() % exchange.size()], exchange.back());
        if (exchange.size() > 64) {
          other = exchange.back();
          exchange.pop_back();
        }
      }
      if (other.first != nullptr) {
        CHECK_EQUAL(std::memcmp(other.first, &other.second, sizeof(uint32_t)), 0);
        pool.deallocate(other.first);
      }
      if (i % 1000 == 999) pool.empty_cache();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
  for (const auto& [block, mark] : exchange) pool.deallocate(block);
  CHECK_EQUAL(pool.stats().live, 0u);
  CHECK_EQUAL(pool.stats().allocations, uint64_t{kThreads} * 5000);
  pool.empty_cache();
  CHECK_EQUAL(pool.stats().reserved, 0u);
}

void test_a_refused_address_range_makes_the_pool_unavailable() {
  CHECK_TRUE(!CpuPool(0).available());
  CHECK_TRUE(!CpuPool(size_t{1} << 62).available());
}

void test_exhaustion_throws_and_the_pool_lives_on() {
  CpuPool pool(64 * kMiB);
  void* held = pool.allocate(40 * kMiB);
  for (const size_t nbytes : {48 * kMiB, 200 * kMiB, SIZE_MAX}) {
    bool thrown = false;
    try {
      pool.allocate(nbytes);
    } catch (const c10::OutOfMemoryError& error) {
      thrown = std::string(error.what()).find(std::to_string(nbytes)) != std::string::npos;
    }
    CHECK_TRUE(thrown);
  }
  CHECK_EQUAL(pool.stats().live, 40 * kMiB);
  pool.deallocate(held);
  CHECK_EQUAL(pool.allocate(40 * kMiB), held);
  pool.deallocate(held);
}

size_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmData:") continue;
    size_t kib = 0;
    status >> kib;
    return kib * 1024;
  }
  return 0;
}

// The system refuses memory while blocks are cached: they make room.
void test_memory_pressure_empties_the_cache() {
  in_child([] {
    CpuPool pool(kAddressBytes);
    void* first = pool.allocate(48 * kMiB);
    void* second = pool.allocate(40 * kMiB);
    pool.deallocate(first);
    pool.deallocate(second);
    const rlim_t limit = data_bytes() - 20 * kMiB;
    const rlimit data_limit{limit, limit};
    CHECK_EQUAL(setrlimit(RLIMIT_DATA, &data_limit), 0);
    // The high-water rule gives 48 MiB back for 44, the limit asks for 20 less: 40 must go too.
    void* third = pool.allocate(44 * kMiB);
    CHECK_EQUAL(pool.stats().reserved, 44 * kMiB);
    std::memset(third, 1, 44 * kMiB);
    bool thrown = false;
    try {
      pool.allocate(60 * kMiB);
    } catch (const c10::OutOfMemoryError&) {
      thrown = true;
    }
    CHECK_TRUE(thrown);
    pool.deallocate(third);
    CHECK_EQUAL(pool.stats().live, 0u);
  });
}

void test_fork_while_another_thread_allocates() {
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) cpu_pool().deallocate(cpu_pool().allocate(5000));
  });
  void* inherited = cpu_pool().allocate(3 * kMiB);
  std::memset(inherited, 7, 3 * kMiB);
  for (int i = 0; i < 50; ++i) {
    in_child([&] {
      CHECK_EQUAL(int{static_cast<char*>(inherited)[kMiB]}, 7);
      cpu_pool().deallocate(inherited);
      CHECK_EQUAL(cpu_pool().allocate(3 * kMiB), inherited);
      cpu_pool().deallocate(cpu_pool().allocate(20));
    });
  }
  stop = true;
  busy.join();
  CHECK_EQUAL(int{static_cast<char*>(inherited)[kMiB]}, 7);
  cpu_pool().deallocate(inherited);
}

void test_tensors_in_a_scope_come_from_the_pool() {
  install_native_memory();
  c10::Allocator* allocator = c10::GetCPUAllocator();
  CHECK_TRUE(allocator == native_allocator());
  at::Tensor outside = at::empty({1000});
  CHECK_TRUE(!cpu_pool().owns(outside.data_ptr()));
  at::Tensor inside;
  {
    const PoolScope scope;
    const PoolScope nested;
    inside = at::empty({1000});
    std::thread([] { CHECK_TRUE(!cpu_pool().owns(at::empty({10}).data_ptr())); }).join();
    outside.resize_({5000});
    CHECK_TRUE(cpu_pool().owns(outside.data_ptr()));
    CHECK_TRUE(at::empty({0}).data_ptr() == nullptr);
  }
  CHECK_TRUE(cpu_pool().owns(inside.data_ptr()));
  CHECK_TRUE(!cpu_pool().owns(at::empty({10}).data_ptr()));
  const size_t live = cpu_pool().stats().live;
  std::thread([&] { inside.reset(); }).join();
  CHECK_EQUAL(cpu_pool().stats().live, live - CpuPool::block_bytes(4000));
}

void test_raw_pointers_of_both_kinds() {
  install_native_memory();
  c10::Allocator* allocator = c10::GetCPUAllocator();
  CHECK_TRUE(allocator->raw_deleter() != nullptr);
  const size_t live = cpu_pool().stats().live;
  for (const bool pooled : {false, true}) {
    void* raw = nullptr;
    {
      std::optional<PoolScope> scope;
      if (pooled) scope.emplace();
      raw = allocator->raw_allocate(300);
      c10::DataPtr data = allocator->allocate(300);
      CHECK_TRUE(data.get_deleter() == allocator->raw_deleter());
      CHECK_TRUE(allocator->is_simple_data_ptr(data));
      std::memset(data.mutable_get(), 9, 300);
      const c10::DataPtr copy = allocator->clone(data.get(), 300);
      CHECK_EQUAL(std::memcmp(copy.get(), data.get(), 300), 0);
    }
    CHECK_TRUE(cpu_pool().owns(raw) == pooled);
    allocator->raw_deallocate(raw);
  }
  const c10::DataPtr empty = allocate_pooled(0);
  CHECK_TRUE(empty.get() == nullptr);
  CHECK_TRUE(cpu_pool().owns(allocate_pooled(1).get()));
  CHECK_EQUAL(cpu_pool().stats().live, live);
}

}  // namespace
}  // namespace torch_shark

int main() {
  using namespace torch_shark;
  test_size_classes();
  test_blocks_are_aligned_distinct_and_owned();
  test_a_freed_block_is_reused();
  test_statistics();
  test_reserved_stays_below_the_high_water_mark();
  test_a_miss_gives_back_only_what_it_must();
  test_slabs_make_room_for_a_large_block();
  test_a_loop_over_sizes_settles();
  test_a_steady_loop_settles();
  test_empty_cache_returns_memory_to_the_system();
  test_threads_share_the_pool();
  test_a_refused_address_range_makes_the_pool_unavailable();
  test_exhaustion_throws_and_the_pool_lives_on();
  test_memory_pressure_empties_the_cache();
  test_fork_while_another_thread_allocates();
  test_tensors_in_a_scope_come_from_the_pool();
  test_raw_pointers_of_both_kinds();
  std::cout << "test_pool: passed\n";
}
