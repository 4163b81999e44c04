"""Pointwise operators: bodies that keep NaN, round half-width values once, and take lifted scalars.

A scalar argument may be a number or a 0-d tensor in all of them.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_shark.lowering.bodies import body, in_float32
from torch_shark.lowering.rounding import rounded

Tensor = torch.Tensor


def is_one(value: Any) -> bool:
    """Tells whether a scalar is the constant 1, so that a product with it can be left out."""
    return not isinstance(value, Tensor) and value == 1


@body("add.Tensor", "add.Scalar")
def add(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """Return self + alpha * other."""
    if is_one(alpha):
        return in_float32(torch.add, self, other)
    return in_float32(lambda a, b, c: a + b * c, self, other, alpha)


@body("sub.Tensor", "sub.Scalar")
def sub(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """Return self - alpha * other."""
    if is_one(alpha):
        return in_float32(torch.sub, self, other)
    return in_float32(lambda a, b, c: a - b * c, self, other, alpha)


@body("rsub.Tensor", "rsub.Scalar")
def rsub(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """Return other - alpha * self."""
    return in_float32(lambda a, b, c: b - (a if is_one(c) else a * c), self, other, alpha)


@body("mul.Tensor", "mul.Scalar")
def mul(self: Tensor, other: Any) -> Tensor:
    """Return self * other."""
    return in_float32(torch.mul, self, other)


@body("neg")
def neg(self: Tensor) -> Tensor:
    """Return -self; of integers as a product, for IREE negates them in float32."""
    return torch.neg(self) if self.is_floating_point() else torch.mul(self, -1)


@body("div.Tensor", "div.Scalar")
def div(self: Tensor, other: Any) -> Tensor:
    """Return self / other."""
    return in_float32(torch.div, self, other)


def comparable(self: Tensor, other: Any) -> Tensor:
    """Return self so that it can be compared with a number: IREE makes bools of what bools meet."""
    is_wider = self.dtype == torch.bool and not isinstance(other, (Tensor, bool))
    return self.to(torch.int64) if is_wider else self


def _comparables(self: Tensor, other: Any) -> tuple[Tensor, Any]:
    """Both in their common dtype, as kernels compare: of its own, IREE takes the wider one."""
    if not isinstance(other, Tensor):
        return comparable(self, other), other
    common = torch.result_type(self, other)
    if common == torch.bfloat16:
        return rounded(self), rounded(other)
    return self.to(common), other.to(common)


@body("eq.Tensor", "eq.Scalar")
def eq(self: Tensor, other: Any) -> Tensor:
    """Return self == other; written with `ne`, for IREE takes x == x for true where x is NaN."""
    return torch.logical_not(torch.ne(*_comparables(self, other)))


def _comparison(name: str) -> None:
    compare = getattr(torch, name)

    @body(f"{name}.Tensor", f"{name}.Scalar")
    def compare_body(self: Tensor, other: Any) -> Tensor:
        result: Tensor = compare(*_comparables(self, other))
        return result


for _name in ("ne", "lt", "le", "gt", "ge"):
    _comparison(_name)


@body("maximum", "clamp_min", "clamp_min.Tensor")
def maximum(self: Tensor, other: Any) -> Tensor:
    """Return the larger of two values; NaN wins."""
    if not isinstance(other, Tensor):
        return torch.where(comparable(self, other) < other, other, self)
    return torch.where((other > self) | (other != other), other, self)


@body("minimum", "clamp_max", "clamp_max.Tensor")
def minimum(self: Tensor, other: Any) -> Tensor:
    """Return the smaller of two values; NaN wins."""
    if not isinstance(other, Tensor):
        return torch.where(comparable(self, other) > other, other, self)
    return torch.where((other < self) | (other != other), other, self)


@body("clamp", "clamp.Tensor")
def clamp(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Return self kept within bounds; NaN stays."""
    if min is not None:
        self = maximum(self, min)
    return self if max is None else minimum(self, max)


@body("hardtanh")
def hardtanh(self: Tensor, min_val: Any = -1, max_val: Any = 1) -> Tensor:
    """Return self kept within [min_val, max_val]."""
    return clamp(self, min_val, max_val)


@body("relu")
def relu(self: Tensor) -> Tensor:
    """Return self, or 0 below it; NaN and -0 stay."""
    return maximum(self, 0)


@body("relu6")
def relu6(self: Tensor) -> Tensor:
    """Return self kept within [0, 6]."""
    return clamp(self, 0, 6)


@body("leaky_relu")
def leaky_relu(self: Tensor, negative_slope: Any = 0.01) -> Tensor:
    """Return self, or negative_slope * self below 0."""
    return in_float32(lambda x, s: torch.where(x > 0, x, x * s), self, negative_slope)


@body("leaky_relu_backward")
def leaky_relu_backward(grad: Tensor, self: Tensor, negative_slope: Any, _: bool) -> Tensor:
    """Return the gradient of `leaky_relu`."""
    return in_float32(lambda g, x, s: torch.where(x > 0, g, g * s), grad, self, negative_slope)


@body("threshold")
def threshold(self: Tensor, threshold: Any, value: Any) -> Tensor:
    """Return self, or value where self is not above the threshold."""
    return in_float32(lambda x, t, v: torch.where(x <= t, v, x), self, threshold, value)


@body("threshold_backward")
def threshold_backward(grad: Tensor, self: Tensor, threshold: Any) -> Tensor:
    """Return the gradient of `threshold`, and so of relu."""
    return in_float32(lambda g, x, t: torch.where(x <= t, 0, g), grad, self, threshold)


@body("elu")
def elu(self: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    """Return exponential linear unit (Clevert et al., 2015), scaled."""

    def formula(x: Tensor, alpha: Any, scale: Any, input_scale: Any) -> Tensor:
        return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * alpha * scale)

    return in_float32(formula, self, alpha, scale, input_scale)


@body("lerp.Scalar", "lerp.Tensor")
def lerp(self: Tensor, end: Tensor, weight: Any) -> Tensor:
    """ATen's formula (native/Lerp.h): exact at both ends."""

    def formula(a: Tensor, b: Tensor, w: Any) -> Tensor:
        near: Tensor = a + w * (b - a)
        far: Tensor = b - (b - a) * (1 - w)
        if isinstance(w, Tensor):
            return torch.where(w.abs() < 0.5, near, far)
        return near if abs(w) < 0.5 else far

    return in_float32(formula, self, end, weight)


@body("addcmul")
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1) -> Tensor:
    """Return self + value * tensor1 * tensor2."""
    return in_float32(
        lambda a, b, c, v: a + (b if is_one(v) else b * v) * c, self, tensor1, tensor2, value
    )


@body("addcdiv")
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1) -> Tensor:
    """Return self + value * tensor1 / tensor2."""
    return in_float32(
        lambda a, b, c, v: a + (b if is_one(v) else b * v) / c, self, tensor1, tensor2, value
    )


@body("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Return self, or value where the mask is set."""
    if isinstance(value, Tensor):
        value = value.to(self.dtype)
    return torch.where(mask, value, self).to(self.dtype)


@body("fill.Scalar", "fill.Tensor")
def fill(self: Tensor, value: Any) -> Tensor:
    """Return value in the shape of self."""
    if isinstance(value, Tensor):
        return value.to(self.dtype).expand(self.shape)
    return torch.full(self.shape, value, dtype=self.dtype)


@body("zero")
def zero(self: Tensor) -> Tensor:
    """Return zeros in the shape of self."""
    return torch.zeros(self.shape, dtype=self.dtype)


@body("copy")
def copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Return src in the shape and dtype of self.

    Floats become 16-bit integers by way of wider types, as on x86: what does not fit wraps around.
    """
    if src.dtype.is_floating_point and self.dtype == torch.int16:
        src = src.to(torch.float32).to(torch.int32)
    return src.to(self.dtype).expand(self.shape)


@body("where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(condition: Tensor, self: Any, other: Any) -> Tensor:
    """Return self where the condition holds, else other."""
    return torch.where(condition, self, other)
