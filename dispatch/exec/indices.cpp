#include "dispatch/exec/indices.h"

#include <algorithm>

namespace torch_shark {
namespace {

// A plain loop that the compiler vectorises: at::aminmax is some ten times slower on a million.
template <typename T>
std::pair<int64_t, int64_t> bounds(const T* data, int64_t count, T ignored) {
  T lowest = std::numeric_limits<T>::max();
  T highest = std::numeric_limits<T>::min();
  for (int64_t i = 0; i < count; ++i) {
    const T value = data[i];
    lowest = std::min(lowest, value == ignored ? lowest : value);
    highest = std::max(highest, value == ignored ? highest : value);
  }
  return {lowest, highest};
}

template <typename T>
bool check(const at::Tensor& indices, int64_t low, int64_t high, std::optional<int64_t> ignored) {
  const at::Tensor dense = indices.contiguous();
  // Without a value to ignore, ignore one that is in range.
  const auto [lowest, highest] =
      bounds<T>(dense.const_data_ptr<T>(), dense.numel(), static_cast<T>(ignored.value_or(low)));
  const bool none = lowest > highest;
  return none || (lowest >= low && highest < high);
}

}  // namespace

bool are_in_range(const at::Tensor& indices, int64_t low, int64_t high,
                  std::optional<int64_t> ignored) {
  return indices.scalar_type() == at::kInt ? check<int32_t>(indices, low, high, ignored)
                                           : check<int64_t>(indices, low, high, ignored);
}

}  // namespace torch_shark
