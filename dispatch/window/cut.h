#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace torch_shark {

// Chooses where a window that nothing else ends is cut, by its content alone.
//
// A rolling hash covers the last few operators. Once a limit is reached, the window ends as soon as
// the hash is again the smallest that the window has seen. In a loop of any period the smallest
// hash comes back once per turn, so from the second cut inside the loop on, windows hold whole
// turns and begin at the same place, wherever the loop began; what does not repeat is cut at twice
// the limit.
class ContentCut {
 public:
  // `fingerprint` identifies the recorded operator. `reached` says whether a limit has been
  // reached, `exceeded` whether twice the limit has. Returns whether the window ends after this
  // operator.
  bool add(uint64_t fingerprint, bool reached, bool exceeded) {
    // Each step shifts by 8, so an operator leaves the hash after eight more.
    rolling_ = (rolling_ << 8) + fingerprint;
    const bool smallest = rolling_ <= smallest_;
    if (smallest) {
      smallest_ = rolling_;
    }
    return exceeded || (reached && smallest);
  }
  void restart() { smallest_ = std::numeric_limits<uint64_t>::max(); }

 private:
  uint64_t rolling_ = 0;
  uint64_t smallest_ = std::numeric_limits<uint64_t>::max();
};

}  // namespace torch_shark
