#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace torch_shark {

// Which of several ways to do the same work is the fastest, found by timing each on live turns.
//
// The ways take turns. Interference only ever adds time, so a way is judged by the least that it
// took. It is dropped as soon as it is clearly slower, and of what is left after `kTurns` turns
// each the fastest is kept; the first way wins unless another gains by more than `kMargin`.
//
// Used in the executor's exclusive section only.
class Choice {
 public:
  using Duration = std::chrono::duration<double, std::micro>;
  static constexpr size_t kTurns = 4;
  static constexpr double kMargin = 0.03;  // of the first way's time
  static constexpr double kClear = 1.5;    // of the fastest's time, after one turn that counts

  explicit Choice(size_t ways) : ways_(ways) {}

  // Called once, with the way that is kept and the least time of each that was timed.
  std::function<void(size_t, const std::vector<Duration>&)> on_decided;

  // The way to go this time.
  size_t next() const;
  // How long that took. Of the first turn of a way nothing is kept: it pages memory in.
  void add(size_t way, Duration duration);
  // A way that does not work.
  void drop(size_t way);
  bool is_decided() const { return decided_.has_value(); }
  size_t ways() const { return ways_.size(); }

 private:
  struct Way {
    size_t turns = 0;
    Duration least = Duration::max();
    bool dropped = false;
  };

  void decide();

  std::vector<Way> ways_;
  std::optional<size_t> decided_;
};

}  // namespace torch_shark
