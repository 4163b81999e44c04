// The CPU allocator that serves native replay from the pool.
//
// It stands in front of the allocator that torch had before: on a thread inside a PoolScope memory
// comes from `cpu_pool()`, elsewhere from the previous allocator. Both kinds carry one deleter,
// which tells them apart by address, so a tensor may be freed on any thread, in any scope.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace torch_shark {

// While one lives, CPU tensors that this thread makes take their memory from the pool. Nests.
class PoolScope {
 public:
  PoolScope();
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;
};

// Puts the allocator in front of torch's CPU allocator; later calls do nothing. An allocator that
// someone sets afterwards simply takes over: PoolScope then has no effect.
void install_native_memory();

// The allocator, installed or not.
c10::Allocator* native_allocator();

// CPU memory from the pool, in a scope or not, 64-byte aligned; its context is its data. From the
// previous allocator where the pool is unavailable.
c10::DataPtr allocate_pooled(size_t nbytes);

}  // namespace torch_shark
