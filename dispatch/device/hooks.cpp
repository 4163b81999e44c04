#include "dispatch/device/hooks.h"

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>

#include "dispatch/device/generator.h"
#include "dispatch/device/native_device.h"
#include "dispatch/device/pinned.h"
#include "dispatch/device/storage.h"
#include "dispatch/ops/resize.h"

namespace torch_shark {
namespace {

class SharkHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  void init() const override {}

  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    TORCH_CHECK(device == 0, "[shark] expected device index 0, got ", int{device});
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    setCurrentDevice(device);
    return 0;
  }
  // A negative index means "leave it", as CUDA has it.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? device : exchangeDevice(device);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    TORCH_CHECK(device <= 0, "[shark] expected a device index below ", int{deviceCount()}, ", got ",
                int{device});
    return new_generator();
  }

  at::Device getDeviceFromPtr(void* /*data*/) const override { return at::Device(kShark, 0); }
  bool isPinnedPtr(const void* data) const override {
    return native_is_cpu() ? is_pinned(data)
                           : at::globalContext().isPinnedPtr(data, native_device().type());
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return native_is_cpu() ? at::getHostAllocator(kShark)
                           : at::globalContext().getPinnedMemoryAllocator(native_device().type());
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), nbytes);
  }

  // Virtual from torch 2.14 on; harmless before.
  bool hasCompatibleShallowCopyType() const { return true; }
};

}  // namespace

void register_hooks() {
  c10::register_privateuse1_backend("shark");
  // Owned by PyTorch for the life of the process.
  at::RegisterPrivateUse1HooksInterface(new SharkHooks());
}

}  // namespace torch_shark
