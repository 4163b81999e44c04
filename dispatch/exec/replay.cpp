#include "dispatch/exec/replay.h"

#include <ATen/Parallel.h>
#include <ATen/core/List.h>

#include "dispatch/config.h"
#include "dispatch/device/native_device.h"

namespace torch_shark {
namespace {

c10::impl::LocalDispatchKeySet replay_keys() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  keys.included_ = c10::default_included_set.remove(c10::DispatchKey::ADInplaceOrView);
  keys.excluded_ = c10::default_excluded_set | c10::autograd_dispatch_keyset |
                   c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView);
  return keys;
}

bool has_lazy_bits(const Entry& entry) {
  return std::any_of(entry.operands.begin(), entry.operands.end(),
                     [](const TensorRef& ref) { return ref.conj || ref.neg; });
}

// A kernel may leave what it writes conjugated lazily, in a bit that only the native tensor has:
// then the memory is conjugated instead.
class WrittenBits {
 public:
  WrittenBits(const OpInfo& op, const torch::jit::Stack& args) {
    if (op.writes) {
      for_each_written(op, args, [this](const at::Tensor& written) {
        if (written.defined() && written.is_complex()) {
          before_.emplace_back(written, written.is_conj());
        }
      });
    }
  }

  void settle() const {
    for (const auto& [tensor, conj] : before_) {
      if (tensor.is_conj() != conj) {
        tensor._set_conj(conj);
        tensor.conj_physical_();
      }
    }
  }

 private:
  c10::SmallVector<std::pair<at::Tensor, bool>, 2> before_;
};

// An absent list element stays absent: only optional lists (indices) have them.
c10::IValue bind_list(std::span<const TensorRef> refs, const c10::TypePtr& type) {
  auto element = type->kind() == c10::TypeKind::OptionalType
                     ? type->expectRef<c10::OptionalType>().getElementType()
                     : type;
  if (element->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> list;
    list.reserve(refs.size());
    for (const TensorRef& ref : refs) {
      at::Tensor tensor = bind(ref);
      list.push_back(tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt);
    }
    return list;
  }
  c10::List<at::Tensor> list;
  list.reserve(refs.size());
  for (const TensorRef& ref : refs) {
    list.push_back(bind(ref));
  }
  return list;
}

// A dimension of size 1 may carry any stride.
bool same_strides(const TensorRef& ref, const at::Tensor& tensor) {
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (ref.sizes()[i] != 1 && ref.strides()[i] != tensor.stride(i)) {
      return false;
    }
  }
  return true;
}

// Takes over the memory of a native result where it is laid out as was foretold; else copies.
void store(const TensorRef& ref, const at::Tensor& result) {
  if (!ref.storage || !result.defined()) {
    return;
  }
  TORCH_INTERNAL_ASSERT(ref.sizes() == result.sizes() && ref.dtype == result.scalar_type(),
                        "[shark] expected a result of sizes ", ref.sizes(), " and dtype ",
                        ref.dtype, ", got ", result.sizes(), " and ", result.scalar_type());
  const c10::Storage& memory = result.storage();
  if (result.storage_offset() == 0 && memory.nbytes() == ref.storage->nbytes &&
      memory.use_count() == 1 && result.is_conj() == ref.conj && result.is_neg() == ref.neg &&
      same_strides(ref, result)) {
    ref.storage->adopt(memory);
  } else {
    bind(ref).copy_(result);
  }
}

}  // namespace

ReplayScope::ReplayScope() : keys_(replay_keys()) {
  const int threads = config().native_threads.load(std::memory_order_relaxed);
  if (threads != 0 && threads != at::get_num_threads()) {
    at::set_num_threads(threads);
  }
}

at::Tensor bind(const TensorRef& ref) {
  if (!ref.storage) {
    return ref.host;
  }
  at::Tensor tensor = native_tensor(ref.storage->native().storage, ref.sizes(), ref.strides(),
                                    ref.offset, ref.dtype);
  if (ref.conj) {
    tensor._set_conj(true);
  }
  if (ref.neg) {
    tensor._set_neg(true);
  }
  return tensor;
}

torch::jit::Stack bind_arguments(const Entry& entry) {
  const OpInfo& op = *entry.op;
  torch::jit::Stack stack;
  stack.reserve(op.args.size());
  const TensorRef* next = entry.operands.data();
  for (size_t i = 0; i < op.args.size(); ++i) {
    switch (op.args[i].kind) {
      case ArgKind::tensor: {
        at::Tensor tensor = bind(*next++);
        stack.emplace_back(tensor.defined() || !op.args[i].optional ? c10::IValue(std::move(tensor))
                                                                    : c10::IValue());
        break;
      }
      case ArgKind::tensor_list: {
        if (entry.args[i].isNone()) {
          stack.emplace_back();
          break;
        }
        const size_t count = entry.args[i].toInt();
        stack.push_back(bind_list({next, count}, op.handle.schema().arguments()[i].type()));
        next += count;
        break;
      }
      default:
        stack.push_back(entry.args[i]);
    }
  }
  return stack;
}

void call_native(const Entry& entry, torch::jit::Stack& stack) {
  const OpInfo& op = *entry.op;
  op.native_steps.fetch_add(1, std::memory_order_relaxed);
  const WrittenBits bits(op, stack);
  if (has_lazy_bits(entry)) {
    op.handle.callBoxed(stack);
  } else {
    op.handle.redispatchBoxed(c10::DispatchKeySet(native_key()), &stack);
  }
  bits.settle();
}

void replay(const Entry& entry) {
  torch::jit::Stack stack = bind_arguments(entry);
  call_native(entry, stack);
  const TensorRef* next = entry.results.data();
  for (size_t i = 0; i < entry.op->results.size(); ++i) {
    const OpInfo::Result& result = entry.op->results[i];
    if (!result.tensor || result.argument) {
      continue;
    }
    if (result.list) {
      // Each element is taken out of the list, so that its memory has one owner.
      std::vector<at::Tensor> elements = std::move(stack[i]).toTensorVector();
      stack[i] = c10::IValue();
      for (at::Tensor& element : elements) {
        store(*next++, element);
        element.reset();
      }
    } else {
      store(*next++, stack[i].toTensor());
    }
  }
}

}  // namespace torch_shark
