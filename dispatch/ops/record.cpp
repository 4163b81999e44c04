#include "dispatch/ops/record.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include <iterator>

#include "dispatch/device/generator.h"
#include "dispatch/device/native_device.h"
#include "dispatch/ops/aliasing.h"
#include "dispatch/ops/oracle.h"
#include "dispatch/ops/run_now.h"
#include "dispatch/ops/trial.h"
#include "dispatch/window/recorder.h"

namespace torch_shark {
namespace {

using torch::jit::Stack;
using Results = c10::SmallVector<at::Tensor, 4>;

Stack take_arguments(Stack& stack, size_t count) {
  Stack args;
  if (stack.size() == count) {
    args.swap(stack);
  } else {
    args.assign(std::make_move_iterator(stack.end() - count), std::make_move_iterator(stack.end()));
    stack.erase(stack.end() - count, stack.end());
  }
  return args;
}

// What the device accepts as an operand: its own tensors, and CPU tensors without dimensions that
// are only read. Gives the tensor to use in place of `tensor`.
at::Tensor place_operand(const OpInfo& op, size_t index, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() == kShark) {
    return tensor;
  }
  const OpInfo::Arg& arg = op.args[index];
  const bool readable = tensor.is_cpu() && !arg.written;
  if (readable && tensor.dim() == 0) {
    return tensor;
  }
  if (readable && op.policy.cpu_operands) {
    return tensor.to(c10::Device(kShark, 0));
  }
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but got ",
              op.handle.schema().arguments()[index].name(), " is on ", tensor.device(),
              ", different from other tensors on shark:0 (when checking argument in method ",
              op.name, ")");
}

void place_list(const OpInfo& op, size_t index, c10::IValue& value) {
  for (const c10::IValue& element : value.toListRef()) {
    if (element.isTensor() && element.toTensor().defined() &&
        element.toTensor().device().type() != kShark) {
      auto list = value.toList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        const c10::IValue each = list.get(i);
        if (each.isTensor()) {
          list.set(i, place_operand(op, index, each.toTensor()));
        }
      }
      value = list;
      return;
    }
  }
}

// Makes the arguments such that the native device can take them at replay.
void place_arguments(const OpInfo& op, Stack& args) {
  for (size_t i = 0; i < args.size(); ++i) {
    switch (op.args[i].kind) {
      case ArgKind::tensor:
        if (args[i].isTensor()) {
          const at::Tensor& tensor = args[i].toTensor();
          if (tensor.defined() && tensor.device().type() != kShark) {
            args[i] = place_operand(op, i, tensor);
          }
        }
        break;
      case ArgKind::tensor_list:
        if (!args[i].isNone()) {
          place_list(op, i, args[i]);
        }
        break;
      case ArgKind::generator:
        args[i] = native_generator(args[i].toOptional<at::Generator>());
        break;
      case ArgKind::device:
        if (!args[i].isNone()) {
          args[i] = native_device();
        }
        break;
      case ArgKind::other:
        break;
    }
  }
}

// The size of `x[mask]` depends on the mask.
bool size_depends_on_data(const OpInfo& op, const Stack& args) {
  if (!op.policy.size_from_masks) {
    return false;
  }
  const auto indices = args[1].toListRef();
  return std::any_of(indices.begin(), indices.end(), [](const c10::IValue& index) {
    return index.isTensor() && index.toTensor().defined() &&
           (index.toTensor().scalar_type() == at::kBool ||
            index.toTensor().scalar_type() == at::kByte);
  });
}

// The `out` tensors of a call as they are before it, since whoever infers its results resizes them.
class OutGeometries {
 public:
  OutGeometries(const OpInfo& op, const Stack& args) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (op.args[i].written && !op.args[i].in_place && args[i].isTensor()) {
        const at::Tensor& out = args[i].toTensor();
        before_.push_back({out, at::DimVector(out.sizes()), at::DimVector(out.strides())});
      }
    }
  }

  bool changed() const {
    return std::any_of(before_.begin(), before_.end(), [](const Before& each) {
      return each.out.sizes() != c10::IntArrayRef(each.sizes) ||
             each.out.strides() != c10::IntArrayRef(each.strides);
    });
  }

  void restore() const {
    for (const Before& each : before_) {
      each.out.unsafeGetTensorImpl()->set_sizes_and_strides(each.sizes, each.strides,
                                                            each.out.storage_offset());
    }
  }

 private:
  struct Before {
    at::Tensor out;
    at::DimVector sizes;
    at::DimVector strides;
  };
  c10::SmallVector<Before, 2> before_;
};

// Kernels lay out a tensor without elements as they like, whatever the rules say.
bool writes_odd_empty(const OpInfo& op, const Stack& args) {
  bool found = false;
  for_each_written(op, args, [&](const at::Tensor& written) {
    found |=
        written.defined() && written.numel() == 0 && written.dim() > 1 && written.stride(-1) != 1;
  });
  return found;
}

// PyTorch's own shape and dtype rules, with their checks, called directly. Leaves the results, on
// the meta device, in `metas`. Nothing if the call is wrong, or reads what it is about to resize:
// the native device then runs it at once, and says what is wrong in its own words.
bool infer_structured(const OpInfo& op, const Stack& args, Stack& metas) {
  metas = args;
  const OutGeometries outs(op, args);
  try {
    op.structured_meta->callBoxed(op.handle, c10::DispatchKeySet(), &metas);
    if (kernel_takes(op, args) && !(outs.changed() && reads_its_out(op, args)) &&
        !writes_odd_empty(op, args)) {
      return true;
    }
  } catch (const c10::Error&) {
  }
  outs.restore();
  return false;
}

bool infer_by_shape(const OpInfo& op, const Stack& args, Results& results) {
  Geometries geometries;
  if (!op.shape_function(args, geometries)) {
    return false;
  }
  for (const Geometry& geometry : geometries) {
    results.push_back(make_device_tensor(geometry.sizes, geometry.strides, geometry.dtype));
  }
  return true;
}

at::Tensor make_result(const Inferred::Result& result) {
  at::Tensor tensor =
      make_device_tensor(result.geometry.sizes, result.geometry.strides, result.geometry.dtype);
  tensor._set_conj(result.conj);
  tensor._set_neg(result.neg);
  return tensor;
}

void apply(const OpInfo& op, const Inferred& inferred, const Stack& args, Results& results) {
  for (const auto& result : inferred.results) {
    results.push_back(result ? make_result(*result) : at::Tensor());
  }
  auto settled = inferred.arguments.begin();
  for_each_written(op, args, [&](const at::Tensor& out) {
    const std::optional<Geometry>& geometry = *settled++;
    if (!geometry) {
      return;
    }
    if (out.sizes() != c10::IntArrayRef(geometry->sizes)) {
      at::native::resize_output(out, geometry->sizes);
    }
    if (out.strides() != c10::IntArrayRef(geometry->strides)) {
      out.as_strided_(geometry->sizes, geometry->strides);
    }
  });
}

// Records the call and leaves its results on `stack`.
void finish(OpInfo& op, const Stack& args, Results& results,
            const std::vector<size_t>& list_lengths, Stack& stack) {
  Recorder::instance().record(op, args, results);
  auto next = results.begin();
  auto length = list_lengths.begin();
  for (const OpInfo::Result& result : op.results) {
    if (result.argument) {
      stack.push_back(args[*result.argument]);
    } else if (result.list) {
      c10::List<at::Tensor> list;
      for (size_t i = *length++; i > 0; --i) {
        list.push_back(std::move(*next++));
      }
      stack.emplace_back(std::move(list));
    } else {
      stack.emplace_back(std::move(*next++));
    }
  }
}

void push_all(Stack& stack, Stack& results) {
  stack.insert(stack.end(), std::make_move_iterator(results.begin()),
               std::make_move_iterator(results.end()));
}

void run_at_once(OpInfo& op, Stack& args, Stack& stack, FlushReason reason) {
  run_now(op, args, reason);
  push_all(stack, args);
}

// What the results of such a call are known to be; nullptr if that has to be found out by running
// it.
std::shared_ptr<const Inferred> infer_from_metadata(const OpInfo& op, const Hash128& key,
                                                    const Stack& args) {
  std::shared_ptr<const Inferred> known = recall(key);
  Stack metas;
  if (!known && op.structured_meta != nullptr && infer_structured(op, args, metas)) {
    known = remember(key, op, args, metas);
  }
  return known;
}

bool resizes_out(const OpInfo& op, const Inferred& inferred, const Stack& args) {
  bool resizes = false;
  auto settled = inferred.arguments.begin();
  for_each_written(op, args, [&](const at::Tensor& out) {
    const std::optional<Geometry>& geometry = *settled++;
    resizes |= geometry && (out.sizes() != c10::IntArrayRef(geometry->sizes) ||
                            out.strides() != c10::IntArrayRef(geometry->strides));
  });
  return resizes;
}

// A number that the tensor's dtype cannot hold: whether that is an error is for the kernel to say.
bool has_number_out_of_range(const Stack& args) {
  if (args.empty() || !args[0].isTensor() || !args[0].toTensor().defined()) {
    return false;
  }
  const c10::ScalarType dtype = args[0].toTensor().scalar_type();
  if (dtype == at::kLong || dtype == at::kDouble || dtype == at::kBool ||
      c10::isComplexType(dtype)) {
    return false;
  }
  return std::any_of(args.begin(), args.end(), [dtype](const c10::IValue& value) {
    if (!value.isDouble() && !value.isInt()) {
      return false;
    }
    const c10::Scalar number = value.toScalar();
    return AT_DISPATCH_V2(dtype, "shark", AT_WRAP([&] {
                            // Negative integers wrap around in unsigned dtypes.
                            return number.isFloatingPoint()
                                       ? c10::overflows<scalar_t>(number.toDouble())
                                       : c10::overflows<scalar_t>(number.toLong());
                          }),
                          AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_FLOAT8_TYPES),
                          AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kHalf, at::kBFloat16);
  });
}

// An operator that writes its arguments: what is wrong with a call can depend on which tensors
// share memory, so a structured meta checks each.
bool checks_each_call(const OpInfo& op) { return op.writes && op.structured_meta != nullptr; }

// Records the call, or runs it at once where its result cannot be foretold.
void record_call(OpInfo& op, Stack& args, Stack& stack) {
  if (op.sync || size_depends_on_data(op, args) || has_number_out_of_range(args)) {
    run_at_once(op, args, stack, FlushReason::sync);
    return;
  }
  Results results;
  Stack unused;
  if ((op.shape_function != nullptr && infer_by_shape(op, args, results)) ||
      (checks_each_call(op) && infer_structured(op, args, unused))) {
    finish(op, args, results, {}, stack);
    return;
  }
  // What is read and then resized, as addbmm_ and `out` may be, must not be resized beforehand.
  const bool keeps_out = op.writes && reads_its_out(op, args);
  const Hash128 key = metadata_key(op, args);
  const auto known = infer_from_metadata(op, key, args);
  if (known && !(keeps_out && resizes_out(op, *known, args))) {
    apply(op, *known, args, results);
    finish(op, args, results, known->list_lengths, stack);
    return;
  }
  // The first call with this metadata runs at once; its result tells all later ones.
  const Hash128 before = in_place_key(op, args);
  Stack outcome = args;
  run_now(op, outcome, FlushReason::oracle);
  if (!keeps_out && in_place_key(op, args) == before) {
    remember(key, op, args, outcome);
  }
  push_all(stack, outcome);
}

}  // namespace

void record_operator(OpInfo& op, Stack& stack) {
  Stack args = take_arguments(stack, op.args.size());
  place_arguments(op, args);
  if (!op.counts_versions) {
    record_call(op, args, stack);
    return;
  }
  Stack written = args;
  record_call(op, args, stack);
  for_each_written(op, written,
                   [](const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); });
}

void record_fallback(const c10::OperatorHandle& handle, Stack* stack) {
  record_operator(op_info(handle), *stack);
}

}  // namespace torch_shark
