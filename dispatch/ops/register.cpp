#include "dispatch/ops/register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <unordered_map>

#include "dispatch/device/native_device.h"
#include "dispatch/ops/record.h"

namespace torch_shark {
namespace {

// Holds the operator's info, so that a call looks nothing up.
class RecordKernel final : public c10::OperatorKernel {
 public:
  explicit RecordKernel(OpInfo& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& /*handle*/, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    record_operator(op_, *stack);
  }

 private:
  OpInfo& op_;
};

bool is_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const auto& argument) {
                       const c10::AliasInfo* alias = argument.alias_info();
                       return alias != nullptr && !alias->isWrite();
                     });
}

// A decomposition that PyTorch chooses for every device, unless the native device has a kernel:
// then the decomposition would not give the native device's bits.
bool decomposes(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(native_key());
}

// Factories: they are built on `empty`, which is ours, and on operators that are recorded.
bool is_factory(const OpInfo& op) {
  const bool takes_tensor = std::any_of(op.args.begin(), op.args.end(), [](const auto& arg) {
    return arg.kind == ArgKind::tensor || arg.kind == ArgKind::tensor_list;
  });
  const bool takes_device = std::any_of(
      op.args.begin(), op.args.end(), [](const auto& arg) { return arg.kind == ArgKind::device; });
  return (!takes_tensor || takes_device) &&
         op.handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

bool records(const c10::OperatorHandle& handle) {
  const c10::OperatorName& name = handle.operator_name();
  if (!name.name.starts_with("aten::") || !handle.hasSchema() || decomposes(handle) ||
      is_view(handle.schema()) || handle.hasTag(at::Tag::inplace_view)) {
    return false;
  }
  const OpInfo& op = op_info(handle);
  const bool ours = op.policy.dispatch == OpPolicy::Dispatch::record ||
                    op.policy.dispatch == OpPolicy::Dispatch::sync ||
                    (op.policy.only_on_cpu && !native_is_cpu());
  return ours && !is_factory(op);
}

void record_stream(at::Tensor& /*self*/, c10::Stream /*stream*/) {}

bool has_compatible_shallow_copy_type(const at::Tensor& /*self*/, const at::Tensor& from) {
  return from.layout() == at::kStrided;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&record_fallback>());
}

}  // namespace

void register_operators() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten",
                                            c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto handle = dispatcher.findOp(name);
    if (handle && records(*handle)) {
      library->impl(c10::toString(name).c_str() + sizeof("aten::") - 1,
                    torch::CppFunction::makeFromBoxedFunctor(
                        std::make_unique<RecordKernel>(op_info(*handle))));
    }
  }
}

void record_always(const std::string& name) {
  static auto& libraries = *new std::unordered_map<std::string, torch::Library>;
  OpInfo& op = find_op_info(name);
  const auto end = name.find("::");
  auto [library, added] = libraries.try_emplace(name, torch::Library::IMPL, name.substr(0, end),
                                                c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  if (added) {
    library->second.impl(name.substr(end + 2).c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                                           std::make_unique<RecordKernel>(op)));
  }
}

}  // namespace torch_shark
