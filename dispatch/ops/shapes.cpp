#include "dispatch/ops/shapes.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include <unordered_map>

namespace torch_shark {
namespace {

using Stack = torch::jit::Stack;

at::DimVector contiguous_strides(c10::IntArrayRef sizes) {
  at::DimVector strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

Geometry contiguous(c10::IntArrayRef sizes, c10::ScalarType dtype) {
  return {at::DimVector(sizes), contiguous_strides(sizes), dtype};
}

Geometry geometry_of(const at::TensorBase& tensor) {
  return {at::DimVector(tensor.sizes()), at::DimVector(tensor.strides()), tensor.scalar_type()};
}

// Dense without overlap, so that a pointwise result takes the very same strides.
bool is_dense(const at::TensorBase& tensor) { return tensor.is_non_overlapping_and_dense(); }

bool is_index(const at::TensorBase& tensor) {
  return tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt;
}

bool is_shark(const at::Tensor& tensor) { return tensor.device().type() == kShark; }

// A Python number, which leaves the dtype of a floating tensor alone.
bool is_real_number(const at::Tensor& tensor) {
  return tensor.dim() == 0 && tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
         !tensor.is_complex();
}

// With a number, the strides of dimensions of size 1 decide the order of the result's dimensions.
bool has_contiguous_strides(const at::Tensor& tensor) {
  return tensor.strides() == c10::IntArrayRef(contiguous_strides(tensor.sizes()));
}

// The commonest call of arithmetic: a contiguous floating tensor, with one of the same kind or with
// a number. Everything else, errors among it, is left to the structured metas.
bool is_plain_binary(const Stack& args) {
  const at::Tensor& self = args[0].toTensor();
  const at::Tensor& other = args[1].toTensor();
  if (!self.is_floating_point() || !self.is_contiguous() || !is_shark(self)) {
    return false;
  }
  if (args.size() > 2 && !args[2].isInt() && !args[2].isDouble()) {
    return false;  // alpha
  }
  return is_shark(other) ? other.scalar_type() == self.scalar_type() && other.is_contiguous() &&
                               other.sizes() == self.sizes()
                         : is_real_number(other) && has_contiguous_strides(self);
}

// add, sub, mul, div (self, other[, alpha])
bool plain_binary(const Stack& args, Geometries& results) {
  if (!is_plain_binary(args)) {
    return false;
  }
  results.push_back(contiguous(args[0].toTensor().sizes(), args[0].toTensor().scalar_type()));
  return true;
}

// The same in place; operands that share a storage may overlap in part, which is an error.
bool plain_binary_in_place(const Stack& args, Geometries& /*results*/) {
  const at::Tensor& self = args[0].toTensor();
  const at::Tensor& other = args[1].toTensor();
  return is_plain_binary(args) && (self.is_same(other) || !self.is_alias_of(other));
}

// Functions of one contiguous floating tensor.
bool plain_unary(const Stack& args, Geometries& results) {
  const at::Tensor& self = args[0].toTensor();
  if (!self.is_floating_point() || !self.is_contiguous()) {
    return false;
  }
  results.push_back(contiguous(self.sizes(), self.scalar_type()));
  return true;
}

// gelu(self, *, approximate): the structured meta lets any word pass.
bool gelu(const Stack& args, Geometries& results) {
  const std::string& approximate = args[1].toStringRef();
  return (approximate == "none" || approximate == "tanh") && plain_unary(args, results);
}

// zero_(self), fill_.Scalar(self, value): any tensor will do unless its elements share memory.
bool in_place(const Stack& args, Geometries& /*results*/) {
  return at::has_internal_overlap(args[0].toTensor()) == at::MemOverlap::No;
}

// embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)
bool embedding(const Stack& args, Geometries& results) {
  const at::Tensor& weight = args[0].toTensor();
  const at::Tensor& indices = args[1].toTensor();
  if (weight.dim() != 2 || !is_index(indices)) {
    return false;
  }
  at::DimVector sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  results.push_back(contiguous(sizes, weight.scalar_type()));
  return true;
}

// native_layer_norm(input, normalized_shape, weight, bias, eps) -> (output, mean, rstd)
bool native_layer_norm(const Stack& args, Geometries& results) {
  const at::Tensor& input = args[0].toTensor();
  const auto normalized = args[1].toDimVector();
  const auto dtype = input.scalar_type();
  if (dtype != at::kFloat || normalized.empty() ||
      normalized.size() > static_cast<size_t>(input.dim())) {
    return false;
  }
  const size_t outer = input.dim() - normalized.size();
  if (input.sizes().slice(outer) != c10::IntArrayRef(normalized)) {
    return false;
  }
  for (size_t i : {2, 3}) {
    if (args[i].isTensor() && args[i].toTensor().defined() &&
        (args[i].toTensor().sizes() != c10::IntArrayRef(normalized) ||
         args[i].toTensor().scalar_type() != dtype)) {
      return false;
    }
  }
  at::DimVector statistics(input.sizes());
  std::fill(statistics.begin() + outer, statistics.end(), 1);
  results.push_back(contiguous(input.sizes(), dtype));
  results.push_back(contiguous(statistics, dtype));
  results.push_back(contiguous(statistics, dtype));
  return true;
}

// relu(self)
bool relu(const Stack& args, Geometries& results) {
  const at::Tensor& self = args[0].toTensor();
  if (!is_dense(self) || self.is_complex() || self.scalar_type() == at::kBool) {
    return false;
  }
  results.push_back(geometry_of(self));
  return true;
}

// _scaled_dot_product_flash_attention_for_cpu(query, key, value, ...) -> (output, logsumexp)
bool flash_attention_for_cpu(const Stack& args, Geometries& results) {
  const at::Tensor& query = args[0].toTensor();
  const at::Tensor& value = args[2].toTensor();
  if (query.dim() != 4 || query.scalar_type() != at::kFloat || value.dim() != 4) {
    return false;
  }
  const int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  const int64_t width = query.size(3);
  if (value.size(3) != width || query.numel() == 0 || value.numel() == 0 || !is_dense(query)) {
    return false;
  }
  // The output is laid out as the query. The kernel fills a (batch, length, heads) buffer with the
  // logarithms and gives it back transposed.
  results.push_back(geometry_of(query));
  results.push_back({{batch, heads, length}, {length * heads, 1, heads}, at::kFloat});
  return true;
}

const std::unordered_map<std::string_view, ShapeFunction>& functions() {
  static const std::unordered_map<std::string_view, ShapeFunction> table{
      {"aten::add.Tensor", plain_binary},
      {"aten::sub.Tensor", plain_binary},
      {"aten::mul.Tensor", plain_binary},
      {"aten::div.Tensor", plain_binary},
      {"aten::add_.Tensor", plain_binary_in_place},
      {"aten::sub_.Tensor", plain_binary_in_place},
      {"aten::mul_.Tensor", plain_binary_in_place},
      {"aten::div_.Tensor", plain_binary_in_place},
      {"aten::exp", plain_unary},
      {"aten::gelu", gelu},
      {"aten::neg", plain_unary},
      {"aten::rsqrt", plain_unary},
      {"aten::sigmoid", plain_unary},
      {"aten::silu", plain_unary},
      {"aten::sqrt", plain_unary},
      {"aten::tanh", plain_unary},
      {"aten::zero_", in_place},
      {"aten::fill_.Scalar", in_place},
      {"aten::embedding", embedding},
      {"aten::native_layer_norm", native_layer_norm},
      {"aten::relu", relu},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", flash_attention_for_cpu},
  };
  return table;
}

}  // namespace

ShapeFunction find_shape_function(std::string_view name) {
  const auto found = functions().find(name);
  return found == functions().end() ? nullptr : found->second;
}

}  // namespace torch_shark
