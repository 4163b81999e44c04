#include "dispatch/device/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "dispatch/device/imports.h"
#include "dispatch/device/native_device.h"
#include "dispatch/device/pool.h"
#include "dispatch/device/process.h"
#include "dispatch/device/storage.h"
#include "dispatch/window/recorder.h"

namespace torch_shark {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

// Bytes that the system could give to a process now, by Linux's own estimate.
size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name, unit; file >> name; std::getline(file, unit)) {
    size_t kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) {
      return kibibytes << 10;
    }
  }
  return static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// The native device's own caching allocator, which holds our memory too; nullptr on the CPU.
c10::DeviceAllocator* native_memory() {
  return native_is_cpu() ? nullptr : c10::getDeviceAllocator(native_device().type());
}

// Free and total bytes, where this torch can tell.
template <typename Allocator>
std::pair<size_t, size_t> memory_info(Allocator& native) {
  if constexpr (requires { native.getMemoryInfo(0); }) {
    return native.getMemoryInfo(native_device().index());
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "[shark] expected torch 2.12 or newer to tell of memory");
  }
}

class SharkAllocator final : public c10::DeviceAllocator {
 public:
  // Called where PyTorch makes a storage without a tensor (UntypedStorage, legacy load): its base
  // geometry is the bytes themselves.
  c10::DataPtr allocate(size_t nbytes) override {
    check_process();
    Geometry bytes{at::DimVector{static_cast<int64_t>(nbytes)}, at::DimVector{1},
                   c10::ScalarType::Byte};
    return make_data_ptr(c10::make_intrusive<DeviceStorage>(nbytes, std::move(bytes)));
  }

  void copy_data(void* /*dest*/, const void* /*src*/, std::size_t /*count*/) const override {
    TORCH_CHECK(false, "[shark] expected tensor copies; raw copies between storages do not exist");
  }

  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t /*mempool*/) override {
    Recorder::instance().synchronize();
    if (auto* native = native_memory()) {
      native->emptyCache();
    }
    cpu_pool().empty_cache();
    drop_forgotten_imports();
  }

  // One in-order queue serves all streams, so memory needs no per-stream tracking.
  void recordStream(const c10::DataPtr& /*ptr*/, c10::Stream /*stream*/) override {}

  // Free and total bytes. Virtual from torch 2.12 on; harmless before.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) {
    if (auto* native = native_memory()) {
      return memory_info(*native);
    }
    const size_t total = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    return {available_bytes(), total};
  }

  DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    if (auto* native = native_memory()) {
      return native->getDeviceStats(native_device().index());
    }
    const CpuPoolStats pool = cpu_pool().stats();
    DeviceStats stats;
    constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    auto& allocated = stats.allocated_bytes[kAggregate];
    allocated.current = static_cast<int64_t>(pool.live);
    allocated.peak = static_cast<int64_t>(pool.peak_live);
    auto& reserved = stats.reserved_bytes[kAggregate];
    reserved.current = static_cast<int64_t>(pool.reserved);
    reserved.peak = static_cast<int64_t>(pool.peak_reserved);
    stats.active_bytes[kAggregate] = allocated;
    stats.requested_bytes[kAggregate] = allocated;
    stats.allocation[kAggregate].allocated = static_cast<int64_t>(pool.allocations);
    stats.num_device_alloc = static_cast<int64_t>(pool.allocations - pool.reuses);
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {
    if (auto* native = native_memory()) {
      native->resetAccumulatedStats(native_device().index());
    }
  }
  void resetPeakStats(c10::DeviceIndex /*device*/) override {
    if (auto* native = native_memory()) {
      native->resetPeakStats(native_device().index());
    }
    cpu_pool().reset_peak_stats();
  }
};

SharkAllocator allocator;

}  // namespace

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator)

c10::Allocator* device_allocator() { return &allocator; }

}  // namespace torch_shark
