#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <string_view>

#include "dispatch/device/storage.h"

namespace torch_shark {

using Geometries = c10::SmallVector<Geometry, 3>;

// Works out the geometries of an operator's results from its arguments (in schema order).
// Returns false where it does not know, or where the arguments are wrong: the oracle then runs the
// operator, which gives the native device's own result or its own error.
using ShapeFunction = bool (*)(const torch::jit::Stack& args, Geometries& results);

// The hand-written shape function of an operator, or nullptr.
ShapeFunction find_shape_function(std::string_view name);

}  // namespace torch_shark
