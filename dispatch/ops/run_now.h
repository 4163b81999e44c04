#pragma once

#include <ATen/core/stack.h>

#include "dispatch/metrics.h"
#include "dispatch/ops/op_info.h"

namespace torch_shark {

// Runs an operator natively at once, after all that was recorded before it; replaces the arguments
// on `stack` by the results, as tensors of the shark device. Errors are the native device's own.
void run_now(OpInfo& op, torch::jit::Stack& stack, FlushReason reason);

}  // namespace torch_shark
