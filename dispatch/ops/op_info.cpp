#include "dispatch/ops/op_info.h"

#include <c10/util/hash.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "dispatch/ops/structured_metas.h"
#include "dispatch/window/hash.h"

namespace torch_shark {
namespace {

struct Table {
  std::mutex mutex;
  std::unordered_map<c10::OperatorName, std::unique_ptr<OpInfo>> infos;
};

Table& table() {
  static auto* instance = new Table();
  return *instance;
}

// `Tensor`, `Tensor?` and, through `list`, `Tensor[]` and `Tensor?[]`.
bool is_tensor_type(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) {
    return is_tensor_type(optional->getElementType());
  }
  return type->kind() == c10::TypeKind::TensorType;
}

c10::TypePtr strip_optional(const c10::TypePtr& type) {
  auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

bool is_tensor_list_type(const c10::TypePtr& type) {
  auto list = strip_optional(type)->cast<c10::ListType>();
  return list && is_tensor_type(list->getElementType());
}

ArgKind kind_of(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.type();
  if (is_tensor_type(type)) {
    return ArgKind::tensor;
  }
  if (is_tensor_list_type(type)) {
    return ArgKind::tensor_list;
  }
  switch (strip_optional(argument.type())->kind()) {
    case c10::TypeKind::GeneratorType:
      return ArgKind::generator;
    case c10::TypeKind::DeviceObjType:
      return ArgKind::device;
    default:
      return ArgKind::other;
  }
}

// `Scalar`, `float`, optional ones, and lists of `Scalar`.
bool takes_doubles(const c10::TypePtr& type) {
  const c10::TypePtr value = strip_optional(type);
  const auto list = value->cast<c10::ListType>();
  return value->kind() == c10::TypeKind::FloatType ||
         (list ? list->getElementType() : value)->kind() == c10::TypeKind::NumberType;
}

bool written_by_policy(const OpPolicy& policy, const std::string& argument) {
  const std::string padded = " " + std::string(policy.also_writes) + " ";
  return padded.find(" " + argument + " ") != std::string::npos;
}

bool depends_on_data(const c10::OperatorHandle& handle, const OpPolicy& policy) {
  // Those whose size only masks decide are tagged too; each call is looked at.
  return !policy.size_from_masks && (handle.hasTag(at::Tag::dynamic_output_shape) ||
                                     handle.hasTag(at::Tag::data_dependent_output));
}

}  // namespace

OpInfo::OpInfo(const c10::OperatorHandle& handle)
    : handle(handle),
      name(c10::toString(handle.operator_name())),
      id(hash_text(name)),
      policy(op_policy(name)),
      structured_meta(find_structured_meta(handle.operator_name())),
      shape_function(find_shape_function(name)) {
  const c10::FunctionSchema& schema = handle.schema();
  const bool lifting = lifts_doubles(name);
  for (const c10::Argument& argument : schema.arguments()) {
    const c10::AliasInfo* alias = argument.alias_info();
    const bool written =
        (alias != nullptr && alias->isWrite()) || written_by_policy(policy, argument.name());
    args.push_back({kind_of(argument), argument.type()->kind() == c10::TypeKind::OptionalType,
                    written, written && !argument.kwarg_only(),
                    lifting && takes_doubles(argument.type())});
  }
  for (const c10::Argument& result : schema.returns()) {
    const bool list = is_tensor_list_type(result.type());
    Result info{list, list || is_tensor_type(result.type()), std::nullopt};
    if (const c10::AliasInfo* alias = result.alias_info(); alias != nullptr && alias->isWrite()) {
      for (uint32_t i = 0; i < schema.arguments().size(); ++i) {
        const c10::AliasInfo* candidate = schema.arguments()[i].alias_info();
        if (candidate != nullptr && candidate->beforeSets() == alias->beforeSets()) {
          info.argument = i;
        }
      }
    }
    results.push_back(info);
  }
  writes = std::any_of(args.begin(), args.end(), [](const Arg& arg) { return arg.written; });
  counts_versions = writes && !handle.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView) &&
                    handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
  fresh_results = false;
  bool only_tensors = true;
  for (const Result& result : results) {
    fresh_results |= result.tensor && !result.argument;
    only_tensors &= result.tensor;
  }
  sync = policy.dispatch == OpPolicy::Dispatch::sync || !only_tensors ||
         depends_on_data(handle, policy) || (results.empty() && !writes && name != "shark::seed_");
}

OpInfo& op_info(const c10::OperatorHandle& handle) {
  Table& all = table();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto& slot = all.infos[handle.operator_name()];
  if (!slot) {
    slot = std::make_unique<OpInfo>(handle);
  }
  return *slot;
}

OpInfo& find_op_info(std::string_view name) {
  const size_t dot = name.find('.');
  c10::OperatorName key(std::string(name.substr(0, dot)),
                        dot == std::string_view::npos ? "" : std::string(name.substr(dot + 1)));
  return op_info(
      c10::Dispatcher::singleton().findSchemaOrThrow(key.name.c_str(), key.overload_name.c_str()));
}

void for_each_op_info(const std::function<void(OpInfo&)>& visit) {
  Table& all = table();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (auto& [name, info] : all.infos) {
    visit(*info);
  }
}

}  // namespace torch_shark
