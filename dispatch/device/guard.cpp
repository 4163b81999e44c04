#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "dispatch/device/event.h"
#include "dispatch/device/native_device.h"
#include "dispatch/device/storage.h"
#include "dispatch/device/stream.h"
#include "dispatch/window/recorder.h"

namespace torch_shark {
namespace {

class SharkGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kShark; }

  c10::Device exchangeDevice(c10::Device device) const override {
    setDevice(device);
    return getDevice();
  }
  c10::Device getDevice() const override { return c10::Device(kShark, 0); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() <= 0, "[shark] expected a device index below ", int{deviceCount()},
                ", got ", int{device.index()});
  }
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device /*device*/) const override { return current_stream(); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kShark, std::max<int>(device.index(), 0)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device /*device*/,
                                      bool /*high_priority*/) const override {
    return new_stream();
  }
  c10::Stream getNewStream(c10::Device /*device*/, int /*priority*/) const override {
    return new_stream();
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  bool queryStream(const c10::Stream& /*stream*/) const override {
    return Recorder::instance().query() && native_is_idle();
  }
  void synchronizeStream(const c10::Stream& /*stream*/) const override { synchronize_device(); }
  void synchronizeDevice(const c10::DeviceIndex /*device*/) const override { synchronize_device(); }
  void recordDataPtrOnStream(const c10::DataPtr& /*ptr*/,
                             const c10::Stream& /*stream*/) const override {}

  void record(void** event, const c10::Stream& /*stream*/, const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    record_event(event);
  }
  // The queue is in order: whatever is recorded after this runs after the event anyway.
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* event) const override { return query_event(event); }
  void synchronizeEvent(void* event) const override { synchronize_event(event); }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    destroy_event(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*device*/) const override {
    return elapsed_milliseconds(start, end);
  }

  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override { return {}; }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, SharkGuard)

}  // namespace
}  // namespace torch_shark
