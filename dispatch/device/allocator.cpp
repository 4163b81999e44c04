#include "dispatch/device/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "dispatch/device/imports.h"
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
    cpu_pool().empty_cache();
    drop_forgotten_imports();
  }

  // One in-order queue serves all streams, so memory needs no per-stream tracking.
  void recordStream(const c10::DataPtr& /*ptr*/, c10::Stream /*stream*/) override {}

  // Free and total bytes. Virtual from torch 2.12 on; harmless before.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) {
    const size_t total = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    return {available_bytes(), total};
  }

  DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
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

  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override { cpu_pool().reset_peak_stats(); }
};

SharkAllocator allocator;

}  // namespace

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator)

c10::Allocator* device_allocator() { return &allocator; }

}  // namespace torch_shark
