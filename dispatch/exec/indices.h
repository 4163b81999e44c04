#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace torch_shark {

// Whether every integer of `indices` (int64 or int32, any strides) lies in [low, high) or is
// `ignored`.
bool are_in_range(const at::Tensor& indices, int64_t low, int64_t high,
                  std::optional<int64_t> ignored);

}  // namespace torch_shark
