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
  if (value.size(3) != width || query.numel() == 0 || value.numel() == 0) {
    return false;
  }
  // The kernel fills (batch, length, heads, ...) buffers and gives them back transposed.
  results.push_back({{batch, heads, length, width},
                     {length * heads * width, width, heads * width, 1},
                     at::kFloat});
  results.push_back({{batch, heads, length}, {length * heads, 1, heads}, at::kFloat});
  return true;
}

const std::unordered_map<std::string_view, ShapeFunction>& functions() {
  static const std::unordered_map<std::string_view, ShapeFunction> table{
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
