#include "dispatch/exec/failures.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace torch_shark {
namespace {

// Storages that kept an older content, and why.
std::unordered_map<c10::intrusive_ptr<DeviceStorage>, Failure>& stale() {
  static auto* storages = new std::unordered_map<c10::intrusive_ptr<DeviceStorage>, Failure>();
  return *storages;
}

// Failures whose error is still to be raised.
std::unordered_set<Failure>& unraised() {
  static auto* failures = new std::unordered_set<Failure>();
  return *failures;
}

bool has_failed(const DeviceStorage& storage) {
  return storage.state.load(std::memory_order_acquire) == StorageState::failed;
}

Failure failure_of(const TensorRef& ref) {
  if (!ref.storage) {
    return nullptr;
  }
  if (has_failed(*ref.storage)) {
    return ref.storage->failure;
  }
  const auto found = stale().find(ref.storage);
  return found == stale().end() ? nullptr : found->second;
}

// In-place operators that do not look at what they overwrite.
bool only_writes(const OpInfo& op) {
  static const std::unordered_set<std::string_view> names{
      "aten::zero_",        "aten::fill_.Scalar",     "aten::fill_.Tensor", "aten::copy_",
      "aten::normal_",      "aten::uniform_",         "aten::random_",      "aten::random_.from",
      "aten::random_.to",   "aten::bernoulli_.float", "aten::log_normal_",  "aten::cauchy_",
      "aten::exponential_", "aten::geometric_",
  };
  return names.contains(op.name);
}

bool covers_storage(const TensorRef& ref) {
  size_t count = 1;
  for (size_t i = 0; i < ref.sizes().size(); ++i) {
    count *= ref.strides()[i] == 0 ? 1 : ref.sizes()[i];
  }
  return count * c10::elementSize(ref.dtype) >= ref.storage->nbytes;
}

// Calls `visit` with each operand that the entry writes and whether it overwrites its storage
// whole, without having read it.
template <typename Visit>
void for_each_written_operand(const Entry& entry, Visit visit) {
  for (size_t i = 0; i < entry.op->args.size(); ++i) {
    const OpInfo::Arg& arg = entry.op->args[i];
    if (!arg.written) {
      continue;
    }
    const bool blind = !arg.in_place || only_writes(*entry.op);
    for (const TensorRef& ref : entry.operands_of(i)) {
      if (ref.storage) {
        visit(ref, blind && covers_storage(ref));
      }
    }
  }
}

bool overwrites(const Entry& entry, const TensorRef& operand) {
  bool found = false;
  for_each_written_operand(
      entry, [&](const TensorRef& ref, bool whole) { found |= &ref == &operand && whole; });
  return found;
}

}  // namespace

Failure failure_of_operands(const Entry& entry) {
  for (const TensorRef& ref : entry.operands) {
    if (Failure failure = failure_of(ref); failure && !overwrites(entry, ref)) {
      return failure;
    }
  }
  return nullptr;
}

bool fail(const Entry& entry, const Failure& failure) {
  for (const TensorRef& ref : entry.results) {
    if (ref.storage) {
      ref.storage->fail(failure);
    }
  }
  bool keeps = false;
  for_each_written_operand(entry, [&](const TensorRef& ref, bool) {
    if (!has_failed(*ref.storage)) {
      stale().emplace(ref.storage, failure);
      keeps = true;
    }
  });
  return keeps;
}

void succeed(const Entry& entry) {
  if (!entry.op->writes) {
    return;
  }
  for_each_written_operand(entry, [](const TensorRef& ref, bool whole) {
    if (whole && has_failed(*ref.storage)) {
      ref.storage->state.store(StorageState::written, std::memory_order_release);
      ref.storage->failure.reset();
    }
    if (whole && !stale().empty()) {
      stale().erase(ref.storage);
    }
  });
}

void await_raise(const Failure& failure) { unraised().insert(failure); }

bool awaits_raise(const Failure& failure) { return unraised().contains(failure); }

void forget_failed_writes() {
  stale().clear();
  unraised().clear();
}

void raise_without_value(const Failure& failure) {
  TORCH_CHECK(false, "[shark] expected a tensor with a value, but ", *failure);
}

void check_readable(const DeviceStorage& storage) {
  if (has_failed(storage)) {
    raise_without_value(storage.failure);
  }
}

}  // namespace torch_shark
