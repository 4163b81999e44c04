#include "dispatch/device/stream.h"

#include <atomic>

#include "dispatch/device/native_device.h"
#include "dispatch/device/storage.h"
#include "dispatch/window/recorder.h"

namespace torch_shark {
namespace {

thread_local c10::StreamId current = 0;

c10::Stream stream_of(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kShark, 0), id);
}

}  // namespace

c10::Stream current_stream() { return stream_of(current); }

c10::Stream exchange_stream(c10::Stream stream) {
  return stream_of(std::exchange(current, stream.id()));
}

c10::Stream new_stream() {
  static std::atomic<c10::StreamId> next{1};
  return stream_of(next.fetch_add(1));
}

void synchronize_device() {
  Recorder::instance().synchronize();
  synchronize_native();
}

}  // namespace torch_shark
