// What torch.profiler sees of the device: a span for each step that the executor runs, by the name
// of its operator or region, linked to the call that recorded it.
//
// Nothing is kept and no clock is read unless a profiler asks for the device's activity.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "dispatch/window/window.h"

namespace torch_shark {

namespace profile {
extern std::atomic<bool> running;
}  // namespace profile

inline bool profiling() { return profile::running.load(std::memory_order_relaxed); }

// The operator that this thread is inside of, by the profiler's id; 0 if there is none.
int32_t current_origin();

// The last entry of `window` was recorded by `current_origin()`. Called with the recorder's lock
// held.
void note_recorded(const Window& window);

// Who recorded each entry of a window; taken from what was noted when the window runs.
class WindowOrigins {
 public:
  explicit WindowOrigins(const Window& window);
  // 0 where it is not known.
  int32_t of(const Entry& entry) const;

 private:
  const Entry* first_;
  std::vector<int32_t> ids_;
};

// Times a step from construction to destruction. `kind` says whether it is work of the device or
// something that the host does for it.
class StepSpan {
 public:
  enum class Kind : uint8_t { device, host };

  // `name()` gives the step's name; it is called if someone is profiling.
  template <typename Name>
  StepSpan(Kind kind, int32_t origin, Name name) {
    if (profiling()) {
      begin(kind, origin, name());
    }
  }
  ~StepSpan() {
    if (start_ != 0) {
      end();
    }
  }
  StepSpan(const StepSpan&) = delete;
  StepSpan& operator=(const StepSpan&) = delete;

 private:
  void begin(Kind kind, int32_t origin, std::string name);
  void end();

  Kind kind_ = Kind::device;
  int32_t origin_ = 0;
  int64_t start_ = 0;  // nanoseconds since the epoch; 0 while nobody is profiling
  std::string name_;
};

}  // namespace torch_shark
