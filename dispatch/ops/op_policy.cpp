#include "dispatch/ops/op_policy.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace torch_shark {
namespace {

using enum OpPolicy::Dispatch;

const std::vector<OpPolicy>& table() {
  static const std::vector<OpPolicy> rows{
      // Kernels of our own.
      {.name = "aten::empty.memory_format", .dispatch = custom, .why = "makes a storage"},
      {.name = "aten::empty_strided", .dispatch = custom, .why = "makes a storage"},
      {.name = "aten::_efficientzerotensor", .dispatch = custom, .why = "has no memory"},
      {.name = "aten::copy_", .dispatch = custom, .why = "crosses devices"},
      {.name = "aten::_copy_from", .dispatch = custom, .why = "crosses devices"},
      {.name = "aten::_copy_from_and_resize", .dispatch = custom, .why = "crosses devices"},
      {.name = "aten::_local_scalar_dense", .dispatch = custom, .why = "reads a value"},
      {.name = "aten::resize_", .dispatch = custom, .why = "changes geometry at once"},
      {.name = "aten::set_*", .dispatch = custom, .why = "changes geometry at once"},
      {.name = "aten::is_set_to", .dispatch = custom, .why = "compares geometry"},
      {.name = "aten::as_strided", .dispatch = custom, .why = "view"},
      {.name = "aten::view", .dispatch = custom, .why = "view"},
      {.name = "aten::_reshape_alias", .dispatch = custom, .why = "view"},
      {.name = "aten::unfold", .dispatch = custom, .why = "view"},
      {.name = "aten::view_as_real", .dispatch = custom, .why = "view"},
      {.name = "aten::view_as_complex", .dispatch = custom, .why = "view"},
      {.name = "aten::record_stream", .dispatch = custom, .why = "one queue serves all streams"},
      {.name = "aten::_has_compatible_shallow_copy_type",
       .dispatch = custom,
       .why = "shark tensors are plain, so Module.to keeps Parameters"},
      {.name = "aten::dropout",
       .dispatch = custom,
       .why = "other devices decompose it with other arithmetic than the CPU"},
      {.name = "aten::native_dropout",
       .dispatch = custom,
       .why = "takes no generator, so the CPU would draw from its own"},
      {.name = "aten::_nested_tensor_from_mask_left_aligned",
       .dispatch = custom,
       .why = "the device has no nested tensors"},
      {.name = "aten::mkldnn_rnn_layer",
       .dispatch = custom,
       .why = "asks the thread it runs on whether gradients are wanted"},

      // PyTorch's decompositions, which are exact here and record fewer or simpler operators.
      {.name = "aten::lift", .dispatch = decompose},
      {.name = "aten::_to_copy", .dispatch = decompose},
      {.name = "aten::clone", .dispatch = decompose, .why = "an empty tensor and a copy"},
      {.name = "aten::resize_as_", .dispatch = decompose},
      {.name = "aten::empty_like", .dispatch = decompose},
      {.name = "aten::new_empty", .dispatch = decompose},
      {.name = "aten::new_empty_strided", .dispatch = decompose},
      {.name = "aten::_unsafe_view", .dispatch = decompose, .why = "a view"},
      {.name = "aten::unsafe_split*", .dispatch = decompose, .why = "views"},
      {.name = "aten::_reshape_copy", .dispatch = decompose},
      {.name = "aten::as_strided_scatter",
       .dispatch = decompose,
       .why = "keeps the storage's size and the offset"},
      {.name = "aten::_pack_padded_sequence*",
       .dispatch = decompose,
       .why = "lengths and batch sizes stay on the CPU"},
      {.name = "aten::_lazy_clone", .dispatch = decompose},
      {.name = "aten::_foreach_*",
       .dispatch = decompose,
       .only_on_cpu = true,
       .why = "the CPU's kernels are loops too; one by one, equal tensors share a region"},
      // Without a generator the CPU would draw from its own; their parts take ours.
      {.name = "aten::rand.out", .dispatch = decompose, .why = "takes no generator"},
      {.name = "aten::randint.out", .dispatch = decompose, .why = "takes no generator"},
      {.name = "aten::randint.low_out", .dispatch = decompose, .why = "takes no generator"},
      {.name = "aten::randperm.out", .dispatch = decompose, .why = "takes no generator"},
      {.name = "aten::rand_like*", .dispatch = decompose, .why = "takes no generator"},
      {.name = "aten::randn_like*", .dispatch = decompose, .why = "takes no generator"},
      {.name = "aten::randint_like*", .dispatch = decompose, .why = "takes no generator"},
      {.name = "aten::native_dropout.out", .dispatch = decompose, .why = "takes no generator"},

      // Not tensors, or not known before the data is.
      {.name = "aten::equal", .dispatch = sync, .why = "gives a bool"},
      {.name = "aten::is_nonzero", .dispatch = sync, .why = "gives a bool"},
      {.name = "aten::nonzero_numpy", .dispatch = sync, .why = "result size depends on data"},
      {.name = "aten::_assert_async*", .dispatch = sync, .why = "raises depending on data"},
      {.name = "aten::_linalg_check_errors", .dispatch = sync, .why = "raises depending on data"},

      // Facts that schemas leave out.
      {.name = "aten::native_batch_norm", .also_writes = "running_mean running_var"},
      {.name = "aten::_native_batch_norm_legit", .also_writes = "running_mean running_var"},
      {.name = "aten::_batch_norm_impl_index", .also_writes = "running_mean running_var"},
      {.name = "aten::cudnn_batch_norm", .also_writes = "running_mean running_var"},
      {.name = "shark::seed_", .value_ints = true},
      {.name = "aten::arange*", .shape_from_doubles = true},
      {.name = "aten::range*", .shape_from_doubles = true},
      {.name = "aten::linspace*", .shape_from_doubles = true},
      {.name = "aten::logspace*", .shape_from_doubles = true},
      {.name = "aten::upsample*", .shape_from_doubles = true},
      {.name = "aten::_upsample*", .shape_from_doubles = true},
      {.name = "aten::histc*", .shape_from_doubles = true},
      // Refuse some numbers whatever the shapes.
      {.name = "aten::bernoulli*", .shape_from_doubles = true},
      {.name = "aten::cauchy*", .shape_from_doubles = true},
      {.name = "aten::exponential*", .shape_from_doubles = true},
      {.name = "aten::geometric*", .shape_from_doubles = true},
      {.name = "aten::log_normal*", .shape_from_doubles = true},
      {.name = "aten::normal*", .shape_from_doubles = true},
      {.name = "aten::uniform*", .shape_from_doubles = true},
      {.name = "aten::rrelu*", .shape_from_doubles = true},
      {.name = "aten::renorm*", .shape_from_doubles = true},
      {.name = "aten::softshrink*", .shape_from_doubles = true},
      {.name = "aten::smooth_l1_loss*", .shape_from_doubles = true},
      {.name = "aten::huber_loss*", .shape_from_doubles = true},
      {.name = "aten::_cdist_forward*", .shape_from_doubles = true},
      {.name = "aten::_pdist_forward*", .shape_from_doubles = true},
      {.name = "aten::index.Tensor*", .cpu_operands = true, .size_from_masks = true},
      {.name = "aten::index_put*", .cpu_operands = true},
      {.name = "aten::_index_put_impl_", .cpu_operands = true},
      {.name = "aten::_unsafe_index.Tensor", .cpu_operands = true, .size_from_masks = true},
      {.name = "aten::_unsafe_index_put", .cpu_operands = true},
  };
  return rows;
}

}  // namespace

const OpPolicy& op_policy(std::string_view name) {
  static const OpPolicy defaults{};
  static const auto exact = [] {
    std::unordered_map<std::string_view, const OpPolicy*> rows;
    for (const OpPolicy& row : table()) {
      rows.emplace(row.name, &row);
    }
    return rows;
  }();
  if (auto found = exact.find(name); found != exact.end()) {
    return *found->second;
  }
  for (const OpPolicy& row : table()) {
    if (row.name.ends_with('*') && name.starts_with(row.name.substr(0, row.name.size() - 1))) {
      return row;
    }
  }
  return defaults;
}

bool lifts_doubles(std::string_view name) {
  // What has a body that takes a 0-d tensor for a number (torch_shark/lowering/bodies.py). An
  // exponent is not among them, for it shapes the graph: a cube is two products.
  static const std::unordered_set<std::string> lifting{
      "aten::_fused_adam",
      "aten::_fused_adam.tensor_lr",
      "aten::_fused_adamw",
      "aten::_fused_adamw.tensor_lr",
      "aten::_fused_sgd",
      "aten::_fused_sgd.tensor_lr",
      "aten::add.Scalar",
      "aten::add.Tensor",
      "aten::addcdiv",
      "aten::addcmul",
      "aten::clamp",
      "aten::clamp.Tensor",
      "aten::clamp_max",
      "aten::clamp_max.Tensor",
      "aten::clamp_min",
      "aten::clamp_min.Tensor",
      "aten::div.Scalar",
      "aten::div.Tensor",
      "aten::elu",
      "aten::eq.Scalar",
      "aten::eq.Tensor",
      "aten::fill.Scalar",
      "aten::fill.Tensor",
      "aten::ge.Scalar",
      "aten::ge.Tensor",
      "aten::gt.Scalar",
      "aten::gt.Tensor",
      "aten::hardtanh",
      "aten::le.Scalar",
      "aten::le.Tensor",
      "aten::leaky_relu",
      "aten::leaky_relu_backward",
      "aten::lerp.Scalar",
      "aten::lerp.Tensor",
      "aten::lt.Scalar",
      "aten::lt.Tensor",
      "aten::masked_fill.Scalar",
      "aten::masked_fill.Tensor",
      "aten::maximum",
      "aten::minimum",
      "aten::mul.Scalar",
      "aten::mul.Tensor",
      "aten::ne.Scalar",
      "aten::ne.Tensor",
      "aten::rsub.Scalar",
      "aten::rsub.Tensor",
      "aten::sub.Scalar",
      "aten::sub.Tensor",
      "aten::threshold",
      "aten::threshold_backward",
      "aten::where.Scalar",
      "aten::where.ScalarOther",
      "aten::where.ScalarSelf",
  };
  const size_t dot = std::min(name.find('.'), name.size());
  const bool in_place = name.substr(0, dot).ends_with('_');
  return lifting.contains(std::string(name.substr(0, dot - in_place)) +
                          std::string(name.substr(dot)));
}

}  // namespace torch_shark
