#include "dispatch/device/event.h"

#include <c10/util/Exception.h>

#include "dispatch/device/native_device.h"
#include "dispatch/window/recorder.h"

namespace torch_shark {
namespace {

using Handle = std::shared_ptr<EventMark>;

EventMark& mark_of(void* event) { return **static_cast<Handle*>(event); }

}  // namespace

void EventMark::stamp() {
  when = std::chrono::steady_clock::now();
  if (!native_is_cpu()) {
    const NativeStreamScope stream;
    // The flag asks for one that can be timed.
    native.emplace(native_device().type(), c10::EventFlag::BACKEND_DEFAULT);
    native->record(c10::Stream(c10::Stream::DEFAULT, native_device()));
  }
  passed.store(true, std::memory_order_release);
}

bool EventMark::is_done() const { return passed && (!native || native->query()); }

void record_event(void** event) {
  if (*event == nullptr) {
    *event = new Handle();
  }
  auto mark = std::make_shared<EventMark>();
  *static_cast<Handle*>(*event) = mark;
  Recorder::instance().mark(std::move(mark));
}

bool query_event(void* event) { return event == nullptr || mark_of(event).is_done(); }

void synchronize_event(void* event) {
  if (query_event(event)) {
    return;
  }
  if (!mark_of(event).passed) {
    Recorder::instance().synchronize();
  }
  if (const auto& native = mark_of(event).native) {
    native->synchronize();
  }
}

double elapsed_milliseconds(void* start, void* end) {
  TORCH_CHECK(start != nullptr && end != nullptr,
              "Both events must be recorded before calculating elapsed time.");
  TORCH_CHECK(query_event(start) && query_event(end),
              "Both events must be completed before calculating elapsed time.");
  if (const auto& native = mark_of(start).native) {
    return native->elapsedTime(*mark_of(end).native);
  }
  return std::chrono::duration<double, std::milli>(mark_of(end).when - mark_of(start).when).count();
}

void destroy_event(void* event) noexcept { delete static_cast<Handle*>(event); }

}  // namespace torch_shark
