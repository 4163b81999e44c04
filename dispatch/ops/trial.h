#pragma once

#include <ATen/core/stack.h>

#include "dispatch/ops/op_info.h"

namespace torch_shark {

// Whether the native device has code for such a call. A structured meta knows shapes and promotion;
// that an operator has no kernel for some dtypes, or wants them equal, only the kernel knows.
//
// The first call of each operator, dtypes, words and aliasing is tried on zeros of the same
// geometry; nothing that was recorded is touched.
bool kernel_takes(const OpInfo& op, const torch::jit::Stack& args);

}  // namespace torch_shark
