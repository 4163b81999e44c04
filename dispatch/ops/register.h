#pragma once

#include <string>

namespace torch_shark {

// Registers the recorder for every operator that records (see ops/op_policy.h). Called once, when
// the module loads; operators of libraries that load later reach it as a fallback.
void register_operators();

// Registers the recorder for one operator, whatever PyTorch would call in its place.
void record_always(const std::string& name);

}  // namespace torch_shark
