#include "dispatch/ops/run_now.h"

#include "dispatch/device/native_device.h"
#include "dispatch/exec/failures.h"
#include "dispatch/exec/profile.h"
#include "dispatch/exec/replay.h"
#include "dispatch/ops/resize.h"
#include "dispatch/window/recorder.h"

namespace torch_shark {
namespace {

// A tensor of the device that takes over a native result, laid out as it is.
at::Tensor adopt_result(const OpInfo& op, const at::Tensor& native) {
  if (!native.defined()) {
    return native;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(native.layout() == at::kStrided, "[shark] expected ", op.name,
                              " to give a strided tensor, got layout ", native.layout(),
                              ", which the shark device does not have");
  at::Tensor tensor = make_device_tensor(native.sizes(), native.strides(), native.scalar_type());
  DeviceStorage& storage = device_storage(tensor);
  const c10::Storage& memory = native.storage();
  if (native.storage_offset() == 0 && memory.nbytes() == storage.nbytes &&
      memory.use_count() == 1) {
    storage.adopt(memory);
  } else {
    storage.adopt(allocate_native(storage.nbytes));
    at::Tensor target = native_tensor(storage.buffer->storage, native.sizes(), native.strides(), 0,
                                      native.scalar_type());
    target._set_conj(native.is_conj());
    target._set_neg(native.is_neg());
    target.copy_(native);
  }
  storage.state.store(StorageState::written, std::memory_order_relaxed);
  tensor._set_conj(native.is_conj());
  tensor._set_neg(native.is_neg());
  return tensor;
}

// An argument that the operator wrote, and perhaps resized.
void settle_argument(const at::Tensor& argument, const at::Tensor& native) {
  if (!argument.defined() || argument.device().type() != kShark) {
    return;
  }
  device_storage(argument).state.store(StorageState::written, std::memory_order_relaxed);
  if (argument.sizes() != native.sizes() || argument.strides() != native.strides()) {
    adopt_resized(argument, native);
  }
}

void settle_arguments(const OpInfo& op, const torch::jit::Stack& args,
                      const torch::jit::Stack& natives) {
  c10::SmallVector<at::Tensor, 4> written;
  for_each_written(op, natives, [&](const at::Tensor& native) { written.push_back(native); });
  auto native = written.begin();
  for_each_written(op, args, [&](const at::Tensor& arg) { settle_argument(arg, *native++); });
}

c10::IValue wrap_result(const OpInfo& op, const OpInfo::Result& result,
                        const torch::jit::Stack& args, c10::IValue native) {
  if (!result.tensor) {
    return native;
  }
  if (result.argument) {
    return args[*result.argument];
  }
  if (!result.list) {
    at::Tensor tensor = std::move(native).toTensor();
    return adopt_result(op, tensor);
  }
  c10::List<at::Tensor> list;
  for (at::Tensor& element : std::move(native).toTensorVector()) {
    list.push_back(adopt_result(op, element));
  }
  return list;
}

}  // namespace

void run_now(OpInfo& op, torch::jit::Stack& stack, FlushReason reason) {
  Window window;  // its end lets go of the entry, also where something throws
  Entry& entry = window.entries.emplace_back();
  build_entry(entry, window.bump, op, stack, {});
  torch::jit::Stack results;
  Recorder::instance().run_exclusive(reason, [&] {
    if (const Failure failure = failure_of_operands(entry)) {
      raise_without_value(failure);
    }
    const StepSpan span(StepSpan::Kind::device, current_origin(), [&] { return op.name; });
    ReplayScope scope;
    results = bind_arguments(entry);
    const torch::jit::Stack natives = op.writes ? results : torch::jit::Stack();
    try {
      call_native(entry, results);
    } catch (...) {  // what it resized before it failed stays so, as on the native device
      settle_arguments(op, stack, natives);
      throw;
    }
    if (op.writes) {
      settle_arguments(op, stack, natives);
    }
    succeed(entry);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = wrap_result(op, op.results[i], stack, std::move(results[i]));
    }
  });
  stack = std::move(results);
}

}  // namespace torch_shark
