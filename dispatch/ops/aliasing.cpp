#include "dispatch/ops/aliasing.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

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

struct Written {
  const at::Tensor* tensor;
  size_t argument;
  size_t place;  // among all tensors that the call writes

  const c10::StorageImpl* storage() const { return tensor->storage().unsafeGetStorageImpl(); }
};

// What the call writes, by storage: foreach operators take thousands of tensors.
c10::SmallVector<Written, 4> written_tensors(const OpInfo& op, const Stack& args) {
  c10::SmallVector<Written, 4> written;
  for (size_t i = 0; i < args.size(); ++i) {
    if (op.args[i].written) {
      for_each_tensor(op, args, i, [&](const at::Tensor& tensor) {
        written.push_back({&tensor, i, written.size()});
      });
    }
  }
  std::stable_sort(written.begin(), written.end(), [](const Written& one, const Written& other) {
    return one.storage() < other.storage();
  });
  return written;
}

// Calls `visit` with each tensor that is written and each of another argument in its storage.
template <typename Visit>
void for_each_alias(const OpInfo& op, const Stack& args, Visit visit) {
  const auto written = written_tensors(op, args);
  size_t place = 0;  // among all tensors of the call
  for (size_t i = 0; i < args.size(); ++i) {
    for_each_tensor(op, args, i, [&](const at::Tensor& other) {
      const c10::StorageImpl* storage = other.storage().unsafeGetStorageImpl();
      auto each = std::lower_bound(written.begin(), written.end(), storage,
                                   [](const Written& one, const c10::StorageImpl* sought) {
                                     return one.storage() < sought;
                                   });
      for (; each != written.end() && each->storage() == storage; ++each) {
        if (each->argument != i) {
          visit(*each, other, place);
        }
      }
      ++place;
    });
  }
}

}  // namespace

bool writes_what_it_reads(const OpInfo& op, const Stack& args) {
  bool shared = false;
  for_each_alias(op, args, [&](const Written&, const at::Tensor&, size_t) { shared = true; });
  return shared;
}

bool reads_its_out(const OpInfo& op, const Stack& args) {
  bool shared = false;
  if (std::any_of(op.args.begin(), op.args.end(),
                  [](const OpInfo::Arg& arg) { return arg.written && !arg.in_place; })) {
    for_each_alias(op, args, [&](const Written& written, const at::Tensor&, size_t) {
      shared |= !op.args[written.argument].in_place;
    });
  }
  return shared;
}

void add_aliasing(Hash128& key, const OpInfo& op, const Stack& args) {
  for_each_alias(op, args, [&](const Written& written, const at::Tensor& other, size_t place) {
    key.add(written.place);
    key.add(place);
    key.add(other.storage_offset() * other.element_size() -
            written.tensor->storage_offset() * written.tensor->element_size());
  });
}

}  // namespace torch_shark
