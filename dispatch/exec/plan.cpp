#include "dispatch/exec/plan.h"

#include <c10/core/DefaultDtype.h>

#include <cstring>

#include "dispatch/config.h"

namespace torch_shark {
namespace {

uint64_t bits(double value) {
  uint64_t result;
  static_assert(sizeof(result) == sizeof(value));
  std::memcpy(&result, &value, sizeof(result));
  return result;
}

void add_value(Hash128& hash, const c10::IValue& value, const OpInfo& op, const OpInfo::Arg& arg) {
  if (value.isNone()) {
    hash.add(1);
  } else if (value.isDouble()) {
    hash.add(2);
    hash.add(arg.lifted ? 0 : bits(value.toDouble()));
  } else if (value.isInt()) {
    hash.add(3);
    hash.add(op.policy.value_ints ? 0 : static_cast<uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    hash.add(4 + value.toBool());
  } else if (value.isComplexDouble()) {
    hash.add(6);
    hash.add(bits(value.toComplexDouble().real()));
    hash.add(bits(value.toComplexDouble().imag()));
  } else if (value.isString()) {
    hash.add(7);
    hash.add(hash_text(value.toStringView()));
  } else if (value.isList()) {
    const auto list = value.toListRef();
    hash.add(8);
    hash.add(list.size());
    for (const c10::IValue& element : list) {
      add_value(hash, element, op, arg);
    }
  } else {
    hash.add(9);  // generators: the native device draws from them, whichever they are
  }
}

void add_ref(Hash128& hash, const Window& window, const TensorRef& ref) {
  if (!ref.storage) {
    const bool absent = !ref.host.defined();
    hash.add(absent ? 10 : 11);
    if (!absent) {
      hash.add(static_cast<uint64_t>(ref.host.scalar_type()));
      hash.add(ref.host.unsafeGetTensorImpl()->is_wrapped_number());
    }
    return;
  }
  hash.add(12 + (uint64_t{ref.conj} << 8) + (uint64_t{ref.neg} << 9) +
           (static_cast<uint64_t>(ref.dtype) << 16) + (uint64_t{ref.number} << 32));
  hash.add(offset_in_piece(window, ref));
  hash.add(ref.dims.size());
  for (int64_t dim : ref.dims) {
    hash.add(dim);
  }
}

}  // namespace

Hash128 signature(const Window& window) {
  Hash128 hash;
  hash.add(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) +
           256 * config().settings.load(std::memory_order_relaxed));
  for (const Entry& entry : window.entries) {
    hash.add(entry.op->id);
    for (size_t i = 0; i < entry.args.size(); ++i) {
      add_value(hash, entry.args[i], *entry.op, entry.op->args[i]);
    }
    for (const TensorRef& ref : entry.operands) {
      add_ref(hash, window, ref);
    }
    for (const TensorRef& ref : entry.results) {
      add_ref(hash, window, ref);
    }
  }
  for (size_t i = 0; i < window.storages.size(); ++i) {
    const Window::StorageUse& use = window.storages[i];
    const Geometry& base = window.pieces[i].base;
    hash.add(window.pieces[i].nbytes);
    hash.add(static_cast<uint64_t>(base.dtype) + 256 * use.born + 512 * use.alive);
    for (const auto& dims : {base.sizes, base.strides}) {
      for (int64_t dim : dims) {
        hash.add(dim);
      }
    }
  }
  return hash;
}

uint64_t family(const Window& window) {
  Hash128 hash;
  for (const Entry& entry : window.entries) {
    hash.add(entry.op->id);
    for (const TensorRef& ref : entry.operands) {
      hash.add(static_cast<uint64_t>(ref.dtype) + (uint64_t{ref.number} << 32));
    }
  }
  return hash.low();
}

}  // namespace torch_shark
