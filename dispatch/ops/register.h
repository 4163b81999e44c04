#pragma once

namespace torch_shark {

// Registers the recorder for every operator that records (see ops/op_policy.h). Called once, when
// the module loads; operators of libraries that load later reach it as a fallback.
void register_operators();

}  // namespace torch_shark
