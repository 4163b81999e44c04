#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace torch_shark {

// 128 bits from two independently mixed 64-bit lanes: wide enough that equal means the same.
// The mixer is that of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014).
class Hash128 {
 public:
  void add(uint64_t value) {
    low_ = mix(low_ ^ value);
    high_ = mix(high_ + value * 0x9e3779b97f4a7c15ull + 1);
  }
  uint64_t low() const { return low_; }
  uint64_t high() const { return high_; }
  bool operator==(const Hash128&) const = default;

  static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }

 private:
  uint64_t low_ = 0x243f6a8885a308d3ull;
  uint64_t high_ = 0x13198a2e03707344ull;
};

inline uint64_t hash_text(std::string_view text) {
  return Hash128::mix(std::hash<std::string_view>{}(text));
}

}  // namespace torch_shark

template <>
struct std::hash<torch_shark::Hash128> {
  size_t operator()(const torch_shark::Hash128& hash) const { return hash.low(); }
};
