#include "dispatch/window/window.h"

#include "dispatch/window/bounds.h"

namespace torch_shark {
namespace {

size_t count_operands(const OpInfo& op, std::span<const c10::IValue> args) {
  size_t count = 0;
  for (size_t i = 0; i < op.args.size(); ++i) {
    if (op.args[i].kind == ArgKind::tensor) {
      ++count;
    } else if (op.args[i].kind == ArgKind::tensor_list && !args[i].isNone()) {
      count += args[i].toListRef().size();
    }
  }
  return count;
}

// A host operand's value is taken when it is recorded. Python numbers arrive as tensors that nobody
// else holds; others may be written to afterwards.
at::Tensor snapshot(const at::Tensor& host) {
  return host.unsafeGetTensorImpl()->is_wrapped_number() ? host : host.detach().clone();
}

void reference(TensorRef& ref, Bump& bump, const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) {
    return;
  }
  const at::Tensor& tensor = value.toTensor();
  if (tensor.device().type() != kShark) {
    ref.host = snapshot(tensor);
    return;
  }
  const size_t dim = tensor.dim();
  ref.dims = bump.make<int64_t>(2 * dim);
  std::copy_n(tensor.sizes().data(), dim, ref.dims.data());
  std::copy_n(tensor.strides().data(), dim, ref.dims.data() + dim);
  ref.offset = tensor.storage_offset();
  ref.dtype = tensor.scalar_type();
  ref.conj = tensor.is_conj();
  ref.neg = tensor.is_neg();
  DeviceStorage& storage = device_storage(tensor);
  check_bounds(tensor, storage);
  ref.storage = c10::intrusive_ptr<DeviceStorage>::reclaim_copy(&storage);
}

}  // namespace

void build_entry(Entry& entry, Bump& bump, OpInfo& op, std::span<const c10::IValue> args,
                 std::span<const at::Tensor> results) {
  entry.op = &op;
  entry.args = bump.make<c10::IValue>(args.size());
  entry.operands = bump.make<TensorRef>(count_operands(op, args));
  entry.results = bump.make<TensorRef>(results.size());
  TensorRef* next = entry.operands.data();
  for (size_t i = 0; i < args.size(); ++i) {
    if (op.args[i].kind == ArgKind::tensor) {
      reference(*next++, bump, args[i]);
    } else if (op.args[i].kind == ArgKind::tensor_list && !args[i].isNone()) {
      const auto list = args[i].toListRef();
      entry.args[i] = static_cast<int64_t>(list.size());
      for (const c10::IValue& element : list) {
        reference(*next++, bump, element);
      }
    } else {
      entry.args[i] = args[i];
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    reference(entry.results[i], bump, results[i]);
  }
}

void reference_bytes(TensorRef& ref, Bump& bump, c10::intrusive_ptr<DeviceStorage> storage,
                     size_t nbytes) {
  ref.dims = bump.make<int64_t>(2);
  ref.dims[0] = static_cast<int64_t>(nbytes);
  ref.dims[1] = 1;
  ref.dtype = c10::ScalarType::Byte;
  ref.storage = std::move(storage);
}

void* Bump::allocate(size_t nbytes) {
  nbytes = (nbytes + alignof(std::max_align_t) - 1) & ~(alignof(std::max_align_t) - 1);
  if (used_ + nbytes > size_) {
    size_ = std::max(std::min(kLargestChunk, kFirstChunk << chunks_.size()), nbytes);
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size_));
    used_ = 0;
  }
  void* result = chunks_.back().get() + used_;
  used_ += nbytes;
  return result;
}

std::span<TensorRef> Entry::operands_of(size_t index) const {
  size_t first = 0;
  for (size_t i = 0;; ++i) {
    const ArgKind kind = op->args[i].kind;
    size_t count = kind == ArgKind::tensor ? 1 : 0;
    if (kind == ArgKind::tensor_list && !args[i].isNone()) {
      count = args[i].toInt();
    }
    if (i == index) {
      return operands.subspan(first, count);
    }
    first += count;
  }
}

void Entry::release() {
  std::destroy(args.begin(), args.end());
  std::destroy(operands.begin(), operands.end());
  std::destroy(results.begin(), results.end());
  args = {};
  operands = {};
  results = {};
}

Window::~Window() {
  for (Entry& entry : entries) {
    entry.release();
  }
}

}  // namespace torch_shark
