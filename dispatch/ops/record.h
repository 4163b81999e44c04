#pragma once

#include <ATen/core/stack.h>

#include "dispatch/ops/op_info.h"

namespace torch_shark {

// The way of every operator: takes a call's arguments from the end of `stack`, works out its
// results' metadata, appends it to the window, and leaves the results. Operators whose metadata
// cannot be known without running them run at once instead.
void record_operator(OpInfo& op, torch::jit::Stack& stack);

// The recorder as a fallback: for operators that no registration named (custom namespaces).
void record_fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

}  // namespace torch_shark
