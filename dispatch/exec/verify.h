#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace torch_shark {

// What is wrong with a compiled result, or nothing: how far it is from native replay's. Integers
// and bools have to be equal; floats may differ by their dtype's tolerance, taken of the largest
// that is finite, and are equal where they are not.
std::optional<std::string> difference(const at::Tensor& native, const at::Tensor& compiled);

}  // namespace torch_shark
