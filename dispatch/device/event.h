#pragma once

#include <c10/core/Event.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

namespace torch_shark {

// A mark in the device's queue. The executor stamps it when all work before it has run, or, on a
// native device that works on its own, has been handed to that.
struct EventMark {
  void stamp();
  bool is_done() const;

  std::atomic<bool> passed{false};
  // Valid once `passed`:
  std::chrono::steady_clock::time_point when;
  std::optional<c10::Event> native;  // unless that is the CPU
};

// Bodies of c10's event interface; `event` is the opaque handle that c10::Event keeps.
void record_event(void** event);
bool query_event(void* event);
void synchronize_event(void* event);
double elapsed_milliseconds(void* start, void* end);
void destroy_event(void* event) noexcept;

}  // namespace torch_shark
