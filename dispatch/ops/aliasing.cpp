#include "dispatch/ops/aliasing.h"

#include <ATen/core/Tensor.h>

namespace torch_shark {
namespace {

using Stack = torch::jit::Stack;

template <typename Visit>
void for_each_tensor(const OpInfo& op, const Stack& args, size_t index, Visit visit) {
  const c10::IValue& value = args[index];
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (op.args[index].kind == ArgKind::tensor_list && !value.isNone()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor() && element.toTensor().defined()) {
        visit(element.toTensor());
      }
    }
  }
}

// Calls `visit` with each pair of an argument that is written, its index, and a tensor of another
// argument in the same storage, with its index.
template <typename Visit>
void for_each_alias(const OpInfo& op, const Stack& args, Visit visit) {
  for (size_t target = 0; target < args.size(); ++target) {
    if (!op.args[target].written) {
      continue;
    }
    for_each_tensor(op, args, target, [&](const at::Tensor& written) {
      for (size_t i = 0; i < args.size(); ++i) {
        if (i == target) {
          continue;
        }
        for_each_tensor(op, args, i, [&](const at::Tensor& other) {
          if (other.is_alias_of(written)) {
            visit(target, written, i, other);
          }
        });
      }
    });
  }
}

}  // namespace

bool writes_what_it_reads(const OpInfo& op, const Stack& args) {
  bool shared = false;
  for_each_alias(op, args, [&](size_t, const auto&, size_t, const auto&) { shared = true; });
  return shared;
}

bool reads_its_out(const OpInfo& op, const Stack& args) {
  bool shared = false;
  for_each_alias(op, args, [&](size_t target, const auto&, size_t, const auto&) {
    shared |= !op.args[target].in_place;
  });
  return shared;
}

void add_aliasing(Hash128& key, const OpInfo& op, const Stack& args) {
  for_each_alias(
      op, args,
      [&](size_t target, const at::Tensor& written, size_t index, const at::Tensor& other) {
        key.add(target);
        key.add(index);
        key.add(other.storage_offset() * other.element_size() -
                written.storage_offset() * written.element_size());
      });
}

}  // namespace torch_shark
