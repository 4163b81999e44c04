#include "dispatch/ops/trial.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "dispatch/device/native_device.h"
#include "dispatch/exec/replay.h"
#include "dispatch/ops/aliasing.h"
#include "dispatch/window/hash.h"

namespace torch_shark {
namespace {

struct Taken {
  std::mutex mutex;
  std::unordered_set<uint64_t> calls;
};

Taken& taken() {
  static auto* instance = new Taken();
  return *instance;
}

// What decides which kernel an operator asks, if any: dtypes, words such as `rounding_mode`, and
// for a tensor without elements its sizes. With one element, too, it may have its result without a
// kernel.
void add_kind(Hash128& hash, const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) {
      hash.add(0);
      return;
    }
    const auto count = std::min<uint64_t>(tensor.numel(), 2);
    hash.add(1 + static_cast<uint64_t>(tensor.scalar_type()) + 256 * count);
    if (count == 0) {
      for (int64_t size : tensor.sizes()) {
        hash.add(size);
      }
    }
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      add_kind(hash, element);
    }
  } else if (value.isString()) {
    hash.add(hash_text(value.toStringRef()));
  } else {
    // A scalar may carry a dtype of its own into the call.
    hash.add(value.isDouble() + 2 * value.isComplexDouble());
  }
}

bool overlaps_itself(const OpInfo& op, const torch::jit::Stack& args) {
  bool overlaps = false;
  for_each_written(op, args, [&](const at::Tensor& written) {
    overlaps |= written.defined() && at::has_internal_overlap(written) == at::MemOverlap::Yes;
  });
  return overlaps;
}

uint64_t trial_key(const OpInfo& op, const torch::jit::Stack& args) {
  Hash128 hash;
  hash.add(op.id);
  for (const c10::IValue& value : args) {
    add_kind(hash, value);
  }
  if (op.writes) {
    hash.add(overlaps_itself(op, args));
    add_aliasing(hash, op, args);
  }
  return hash.low();
}

// Zeros in place of a call's tensors.
class Zeros {
 public:
  // Tensors of one storage lie in one storage again if the call writes to some and reads others.
  // To a pointwise operator a few elements are like many.
  Zeros(bool aliasing, bool pointwise) : aliasing_(aliasing), few_(pointwise && !aliasing) {}

  c10::IValue like(const c10::IValue& value) {
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      return tensor.defined() && tensor.device().type() == kShark ? like(tensor) : tensor;
    }
    if (value.isTensorList() || value.isOptionalTensorList()) {
      auto list = value.toList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        list.set(i, like(list.get(i)));
      }
      return list;
    }
    return value;
  }

 private:
  // Laid out as the operand is: some kernels take that for granted and read past the end.
  at::Tensor like(const at::Tensor& tensor) {
    if (!aliasing_) {
      const Geometry geometry = few_ ? few_of(tensor) : all_of(tensor);
      const auto options = at::TensorOptions(native_device()).dtype(geometry.dtype);
      return at::empty_strided(geometry.sizes, geometry.strides, options).zero_();
    }
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    at::Tensor& bytes = storages_[storage];
    if (!bytes.defined()) {
      bytes = at::zeros({static_cast<int64_t>(storage->nbytes())},
                        at::TensorOptions(native_device()).dtype(at::kByte));
    }
    return native_tensor(bytes.storage(), tensor.sizes(), tensor.strides(), tensor.storage_offset(),
                         tensor.scalar_type());
  }

  static Geometry all_of(const at::Tensor& tensor) {
    return {at::DimVector(tensor.sizes()), at::DimVector(tensor.strides()), tensor.scalar_type()};
  }

  // Dimensions that broadcast do so still, and those that are expanded are.
  static Geometry few_of(const at::Tensor& tensor) {
    constexpr int64_t kFew = 2;
    Geometry geometry = all_of(tensor);
    for (int64_t& size : geometry.sizes) {
      size = std::min(size, kFew);
    }
    const auto dense = at::infer_dense_strides(geometry.sizes, geometry.strides);
    for (size_t i = 0; i < dense.size(); ++i) {
      geometry.strides[i] = geometry.strides[i] == 0 ? 0 : dense[i];
    }
    return geometry;
  }

  bool aliasing_;
  bool few_;
  std::unordered_map<const c10::StorageImpl*, at::Tensor> storages_;
};

bool succeeds(const OpInfo& op, const torch::jit::Stack& args) {
  ReplayScope scope;
  Zeros zeros(op.writes && writes_what_it_reads(op, args), op.handle.hasTag(at::Tag::pointwise));
  torch::jit::Stack stack;
  for (const c10::IValue& value : args) {
    stack.push_back(zeros.like(value));
  }
  try {
    op.handle.redispatchBoxed(c10::DispatchKeySet(native_key()), &stack);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

bool kernel_takes(const OpInfo& op, const torch::jit::Stack& args) {
  const uint64_t key = trial_key(op, args);
  if (op.last_taken.load(std::memory_order_relaxed) == key) {
    return true;
  }
  Taken& all = taken();
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    if (all.calls.contains(key)) {
      op.last_taken.store(key, std::memory_order_relaxed);
      return true;
    }
  }
  if (!succeeds(op, args)) {
    return false;
  }
  std::lock_guard<std::mutex> lock(all.mutex);
  all.calls.insert(key);
  return true;
}

}  // namespace torch_shark
