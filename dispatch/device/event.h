#pragma once

#include <atomic>
#include <chrono>
#include <memory>

namespace torch_shark {

// A mark in the device's queue. The executor stamps it when all work before it has run.
struct EventMark {
  std::atomic<bool> passed{false};
  std::chrono::steady_clock::time_point when;  // valid once `passed`
};

// Bodies of c10's event interface; `event` is the opaque handle that c10::Event keeps.
void record_event(void** event);
bool query_event(void* event);
void synchronize_event(void* event);
double elapsed_milliseconds(void* start, void* end);
void destroy_event(void* event) noexcept;

}  // namespace torch_shark
