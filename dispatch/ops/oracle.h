#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <vector>

#include "dispatch/device/storage.h"
#include "dispatch/ops/op_info.h"
#include "dispatch/window/hash.h"

namespace torch_shark {

// What one call of an operator, or its structured meta, gave: for all calls with arguments of the
// same metadata.
struct Inferred {
  struct Result {
    Geometry geometry;
    bool conj;
    bool neg;
  };
  // Fresh results, lists flattened; nullopt for an undefined tensor.
  std::vector<std::optional<Result>> results;
  // How many tensors each list result has, in order.
  std::vector<size_t> list_lengths;
  // Geometries, after the call, of the tensors that it writes to: `out=` may be resized.
  std::vector<std::optional<Geometry>> arguments;
};

// Names the metadata of a call: everything of the arguments that results' metadata can depend on.
Hash128 metadata_key(const OpInfo& op, const torch::jit::Stack& args);

// Names the metadata of the arguments that a call writes in place.
Hash128 in_place_key(const OpInfo& op, const torch::jit::Stack& args);

std::shared_ptr<const Inferred> recall(const Hash128& key);
// `args` as they are after the call.
std::shared_ptr<const Inferred> remember(const Hash128& key, const OpInfo& op,
                                         const torch::jit::Stack& args,
                                         const torch::jit::Stack& results);

}  // namespace torch_shark
