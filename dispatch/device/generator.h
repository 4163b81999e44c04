#pragma once

#include <ATen/core/Generator.h>

namespace torch_shark {

// The device's default generator.
const at::Generator& default_generator();
at::Generator new_generator();

// The native generator inside a shark generator; the default one's when `generator` is undefined.
// Random operators take it at replay, in program order, so a seed gives what the native device
// gives.
at::Generator native_generator(const std::optional<at::Generator>& generator);

}  // namespace torch_shark
