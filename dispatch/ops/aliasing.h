#pragma once

#include <ATen/core/stack.h>

#include "dispatch/ops/op_info.h"
#include "dispatch/window/hash.h"

namespace torch_shark {

// Whether two arguments, one of which the call writes, lie in one storage.
bool writes_what_it_reads(const OpInfo& op, const torch::jit::Stack& args);

// Whether an operand that the call reads lies in the storage of one of its `out` tensors.
bool reads_its_out(const OpInfo& op, const torch::jit::Stack& args);

// Names how the tensors that a call writes lie in memory to the others of the same storage: kernels
// refuse some ways. Adds nothing where they share none.
void add_aliasing(Hash128& key, const OpInfo& op, const torch::jit::Stack& args);

}  // namespace torch_shark
