#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace torch_shark {

// Why a window ended. The names appear in torch.shark.metrics()["flushes"].
enum class FlushReason : uint8_t {
  sync,       // the program asked for a value, or for synchronize()
  oracle,     // an operator seen for the first time with these arguments runs at once
  optimizer,  // the end of an optimizer step
  graph,      // the edge of a graph of torch.compile
  operators,  // the operator count limit
  memory,     // the pending memory limit
  event,      // an event was recorded
  count_      // how many reasons there are
};

inline constexpr std::array<const char*, static_cast<size_t>(FlushReason::count_)>
    kFlushReasonNames{"sync", "oracle", "optimizer", "graph", "operators", "memory", "event"};

// Process-wide counters; each is only ever added to, or reset by the user.
// Native steps are counted per operator in OpInfo.
struct Metrics {
  std::atomic<uint64_t> recorded{0};          // operators appended to windows
  std::atomic<uint64_t> windows{0};           // windows submitted with at least one operator
  std::atomic<uint64_t> regions{0};           // region executions
  std::atomic<uint64_t> region_operators{0};  // recorded operators that ran inside regions
  std::atomic<uint64_t> inline_windows{0};    // windows run on the thread that waited for them
  std::atomic<uint64_t> running_nanoseconds{0};
  std::array<std::atomic<uint64_t>, static_cast<size_t>(FlushReason::count_)> flushes{};
};

Metrics& metrics();
void reset_metrics();

}  // namespace torch_shark
