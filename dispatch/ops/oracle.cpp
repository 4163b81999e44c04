#include "dispatch/ops/oracle.h"

#include <ATen/core/Tensor.h>

#include <mutex>
#include <unordered_map>

#include "dispatch/ops/aliasing.h"

namespace torch_shark {
namespace {

constexpr size_t kMaxRemembered = size_t{1} << 16;

struct Memory {
  std::mutex mutex;
  std::unordered_map<Hash128, std::shared_ptr<const Inferred>> calls;
};

Memory& memory() {
  static auto* instance = new Memory();
  return *instance;
}

void add(Hash128& key, const OpInfo& op, const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) {
      key.add(1);
      return;
    }
    key.add(2 + 256 * static_cast<uint64_t>(tensor.scalar_type()) +
            (uint64_t{tensor.is_conj()} << 16) + (uint64_t{tensor.is_neg()} << 17) +
            (uint64_t{tensor.is_cpu()} << 18) +
            (uint64_t{tensor.unsafeGetTensorImpl()->is_wrapped_number()} << 19));
    key.add(tensor.dim());
    for (int64_t size : tensor.sizes()) {
      key.add(size);
    }
    for (int64_t stride : tensor.strides()) {
      key.add(stride);
    }
  } else if (value.isNone()) {
    key.add(3);
  } else if (value.isInt()) {
    key.add(4);
    key.add(value.toInt());
  } else if (value.isBool()) {
    key.add(5 + value.toBool());
  } else if (value.isDouble()) {
    key.add(7);
    if (op.policy.shape_from_doubles) {
      key.add(static_cast<uint64_t>(c10::bit_cast<int64_t>(value.toDouble())));
    }
  } else if (value.isString()) {
    key.add(8);
    key.add(hash_text(value.toStringView()));
  } else if (value.isList()) {
    const auto list = value.toListRef();
    key.add(9);
    key.add(list.size());
    for (const c10::IValue& element : list) {
      add(key, op, element);
    }
  } else {
    key.add(10);
  }
}

Geometry geometry_of(const at::Tensor& tensor) {
  return {at::DimVector(tensor.sizes()), at::DimVector(tensor.strides()), tensor.scalar_type()};
}

std::optional<Geometry> geometry_if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(geometry_of(tensor)) : std::nullopt;
}

std::optional<Inferred::Result> result_if_defined(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return std::nullopt;
  }
  return Inferred::Result{geometry_of(tensor), tensor.is_conj(), tensor.is_neg()};
}

}  // namespace

Hash128 metadata_key(const OpInfo& op, const torch::jit::Stack& args) {
  Hash128 key;
  key.add(op.id);
  key.add(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  for (const c10::IValue& value : args) {
    add(key, op, value);
  }
  if (op.writes) {
    add_aliasing(key, op, args);
  }
  return key;
}

Hash128 in_place_key(const OpInfo& op, const torch::jit::Stack& args) {
  Hash128 key;
  for (size_t i = 0; i < args.size(); ++i) {
    if (op.args[i].in_place) {
      add(key, op, args[i]);
    }
  }
  return key;
}

std::shared_ptr<const Inferred> recall(const Hash128& key) {
  Memory& all = memory();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.calls.find(key);
  return found == all.calls.end() ? nullptr : found->second;
}

std::shared_ptr<const Inferred> remember(const Hash128& key, const OpInfo& op,
                                         const torch::jit::Stack& args,
                                         const torch::jit::Stack& results) {
  auto inferred = std::make_shared<Inferred>();
  for_each_written(op, args, [&](const at::Tensor& written) {
    inferred->arguments.push_back(geometry_if_defined(written));
  });
  for (size_t i = 0; i < op.results.size(); ++i) {
    const OpInfo::Result& result = op.results[i];
    if (result.argument) {
      continue;
    }
    if (result.list) {
      const auto list = results[i].toTensorVector();
      inferred->list_lengths.push_back(list.size());
      for (const at::Tensor& element : list) {
        inferred->results.push_back(result_if_defined(element));
      }
    } else {
      inferred->results.push_back(result_if_defined(results[i].toTensor()));
    }
  }
  Memory& all = memory();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.calls.size() >= kMaxRemembered) {
    all.calls.clear();
  }
  return all.calls.insert_or_assign(key, std::move(inferred)).first->second;
}

}  // namespace torch_shark
