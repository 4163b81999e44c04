#include "dispatch/device/native_memory.h"

#include <c10/core/CPUAllocator.h>

#include "dispatch/device/pool.h"

namespace torch_shark {
namespace {

thread_local int pool_scope_depth = 0;

// What torch allocated with before; kept from the first use on.
c10::Allocator& previous_allocator() {
  static c10::Allocator* const previous = c10::GetCPUAllocator();
  return *previous;
}

void delete_native(void* data) {
  if (cpu_pool().owns(data)) {
    c10::profiledCPUMemoryReporter().Delete(data);
    cpu_pool().deallocate(data);
  } else {
    previous_allocator().raw_deallocate(data);
  }
}

c10::DataPtr allocate_from_previous(size_t nbytes) {
  c10::DataPtr data = previous_allocator().allocate(nbytes);
  (void)data.compare_exchange_deleter(previous_allocator().raw_deleter(), &delete_native);
  return data;
}

c10::DataPtr allocate_from_pool(size_t nbytes) {
  try {
    void* data = cpu_pool().allocate(nbytes);
    c10::profiledCPUMemoryReporter().New(data, nbytes);
    return {data, data, &delete_native, c10::kCPU};
  } catch (const c10::OutOfMemoryError&) {
    c10::profiledCPUMemoryReporter().OutOfMemory(nbytes);
    throw;
  }
}

class NativeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    return pool_scope_depth > 0 ? allocate_pooled(nbytes) : allocate_from_previous(nbytes);
  }
  // Every DataPtr of ours has this deleter, unless the previous allocator's have none in common.
  c10::DeleterFnPtr raw_deleter() const override {
    return previous_allocator().raw_deleter() == nullptr ? nullptr : &delete_native;
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }
};

}  // namespace

PoolScope::PoolScope() { ++pool_scope_depth; }
PoolScope::~PoolScope() { --pool_scope_depth; }

c10::Allocator* native_allocator() {
  static auto* const allocator = new NativeAllocator;
  return allocator;
}

void install_native_memory() {
  static const bool installed = [] {
    previous_allocator();
    c10::SetCPUAllocator(native_allocator());
    return true;
  }();
  (void)installed;
}

c10::DataPtr allocate_pooled(size_t nbytes) {
  // As torch's own, an empty allocation is a null pointer: the previous allocator makes it.
  return nbytes > 0 && cpu_pool().available() ? allocate_from_pool(nbytes)
                                              : allocate_from_previous(nbytes);
}

}  // namespace torch_shark
