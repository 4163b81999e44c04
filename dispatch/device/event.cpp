#include "dispatch/device/event.h"

#include <c10/util/Exception.h>

#include "dispatch/window/recorder.h"

namespace torch_shark {
namespace {

using Handle = std::shared_ptr<EventMark>;

EventMark& mark_of(void* event) { return **static_cast<Handle*>(event); }

}  // namespace

void record_event(void** event) {
  if (*event == nullptr) {
    *event = new Handle();
  }
  auto mark = std::make_shared<EventMark>();
  *static_cast<Handle*>(*event) = mark;
  Recorder::instance().mark(std::move(mark));
}

bool query_event(void* event) { return event == nullptr || mark_of(event).passed; }

void synchronize_event(void* event) {
  if (!query_event(event)) {
    Recorder::instance().synchronize();
  }
}

double elapsed_milliseconds(void* start, void* end) {
  TORCH_CHECK(start != nullptr && end != nullptr,
              "Both events must be recorded before calculating elapsed time.");
  TORCH_CHECK(query_event(start) && query_event(end),
              "Both events must be completed before calculating elapsed time.");
  return std::chrono::duration<double, std::milli>(mark_of(end).when - mark_of(start).when).count();
}

void destroy_event(void* event) noexcept { delete static_cast<Handle*>(event); }

}  // namespace torch_shark
