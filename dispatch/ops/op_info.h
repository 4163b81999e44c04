#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "dispatch/ops/op_policy.h"
#include "dispatch/ops/shapes.h"

namespace torch_shark {

enum class ArgKind : uint8_t { tensor, tensor_list, generator, device, other };

// What the recorder needs to know of one operator, worked out once from its schema.
struct OpInfo {
  struct Arg {
    ArgKind kind;
    bool optional;
    bool written;
    bool in_place;  // written, and no `out`: read first, perhaps
    bool lifted;    // its doubles are inputs of plans
  };
  struct Result {
    bool list;
    bool tensor;
    std::optional<uint32_t> argument;  // the argument that this result is; nullopt if it is fresh
  };

  explicit OpInfo(const c10::OperatorHandle& handle);

  c10::OperatorHandle handle;
  std::string name;  // "aten::add.Tensor"
  uint64_t id;       // hash of the name
  c10::SmallVector<Arg, 8> args;
  c10::SmallVector<Result, 2> results;
  const OpPolicy& policy;
  const c10::KernelFunction* structured_meta;  // nullptr if the operator is not structured
  ShapeFunction shape_function;                // nullptr if there is none
  bool sync;                                   // run natively at once, always
  bool writes;                                 // writes at least one argument
  bool fresh_results;                          // makes at least one tensor
  // On other devices its kernel is made of in-place operators, which count the versions of what
  // they write; nothing above a kernel does. So it is for the recorder to count (some out= forms).
  bool counts_versions;
  mutable std::atomic<uint64_t> native_steps{0};
  mutable std::atomic<uint64_t> last_taken{0};  // see ops/trial.cpp
};

// Calls `visit` with each tensor that a call writes to, in the order of its arguments. `args` in
// schema order.
template <typename Visit>
void for_each_written(const OpInfo& op, const std::vector<c10::IValue>& args, Visit visit) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (!op.args[i].written || args[i].isNone()) {
      continue;
    }
    if (op.args[i].kind == ArgKind::tensor) {
      visit(args[i].toTensor());
    } else {
      for (const c10::IValue& element : args[i].toListRef()) {
        visit(element.toTensor());
      }
    }
  }
}

// The OpInfo of an operator; made on first use. References stay valid for the process.
OpInfo& op_info(const c10::OperatorHandle& handle);
// `name` like "aten::add.Tensor". Throws if there is no such operator.
OpInfo& find_op_info(std::string_view name);
void for_each_op_info(const std::function<void(OpInfo&)>& visit);

}  // namespace torch_shark
