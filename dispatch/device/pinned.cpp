#include "dispatch/device/pinned.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>

#include <map>
#include <mutex>

namespace torch_shark {
namespace {

// On the CPU target every host page is as good as a pinned one, so this is the CPU allocator plus a
// register of what it gave out, which is what `Tensor.is_pinned()` asks.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    c10::DataPtr data = c10::GetDefaultCPUAllocator()->allocate(nbytes);
    void* address = data.get();
    if (address == nullptr) {
      return data;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_.insert_or_assign(static_cast<const char*>(address), Block{nbytes, std::move(data)});
    return {address, address, &forget, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }

  bool contains(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto after = blocks_.upper_bound(static_cast<const char*>(data));
    if (after == blocks_.begin()) {
      return false;
    }
    const auto& [address, block] = *std::prev(after);
    return static_cast<const char*>(data) < address + block.nbytes;
  }

  bool record_event(void* /*ptr*/, void* /*ctx*/, c10::Stream /*stream*/) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  struct Block {
    size_t nbytes;
    c10::DataPtr data;
  };

  static void forget(void* address);

  std::mutex mutex_;
  std::map<const char*, Block> blocks_;
};

PinnedAllocator& allocator() {
  static auto* instance = new PinnedAllocator();
  return *instance;
}

void PinnedAllocator::forget(void* address) {
  PinnedAllocator& self = allocator();
  std::lock_guard<std::mutex> lock(self.mutex_);
  self.blocks_.erase(static_cast<const char*>(address));
}

REGISTER_HOST_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator())

}  // namespace

bool is_pinned(const void* data) { return allocator().contains(data); }

}  // namespace torch_shark
