#include "dispatch/exec/verify.h"

#include <ATen/ATen.h>

namespace torch_shark {
namespace {

// A region rounds where its operators by themselves would not, and adds up in another order.
double tolerance(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Double:
      return 1e-10;
    case c10::ScalarType::Float:
      return 1e-4;
    case c10::ScalarType::Half:
      return 1e-2;
    case c10::ScalarType::BFloat16:
      return 5e-2;
    default:
      return 0;
  }
}

}  // namespace

std::optional<std::string> difference(const at::Tensor& native, const at::Tensor& compiled) {
  const c10::ScalarType dtype = native.scalar_type();
  if (!c10::isFloatingType(dtype)) {
    const int64_t others = native.ne(compiled).sum().item<int64_t>();
    return others == 0 ? std::nullopt : std::optional(c10::str(others, " elements are others"));
  }
  const at::Tensor one = native.to(at::kDouble);
  const at::Tensor other = compiled.to(at::kDouble);
  const at::Tensor finite = one.isfinite().logical_and_(other.isfinite());
  const at::Tensor same = one.eq(other).logical_or_(one.isnan().logical_and_(other.isnan()));
  if (const int64_t others = finite.logical_or(same).logical_not_().sum().item<int64_t>()) {
    return c10::str(others, " elements are finite in one way only");
  }
  if (native.numel() == 0) {
    return std::nullopt;
  }
  const double largest = one.abs().masked_fill_(finite.logical_not(), 0).max().item<double>();
  const double apart =
      one.sub(other).abs_().masked_fill_(finite.logical_not(), 0).max().item<double>();
  if (apart <= tolerance(dtype) * largest) {
    return std::nullopt;
  }
  return c10::str("differences of up to ", apart, ", at values of up to ", largest);
}

}  // namespace torch_shark
