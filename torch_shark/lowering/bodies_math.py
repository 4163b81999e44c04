"""Functions of analysis, where IREE's own lowering overflows early, loses digits or loses NaN."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import torch

from torch_shark.lowering.bodies import body, in_float32
from torch_shark.lowering.bodies_pointwise import mul

Tensor = torch.Tensor

# Above these, exp(x) is near overflow, and 1 is nothing beside x * x.
_NEAR_OVERFLOW = 88.0
_LARGE = 1e10

_TWO_PI = 2 * Fraction(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534"
)
# pi / 2 in two parts: the first has few enough bits for exact products with whole numbers < 2**30.
_QUARTER_HIGH = float.fromhex("0x1.921fb4p+0")
_QUARTER_LOW = float(_TWO_PI / 4 - Fraction(_QUARTER_HIGH))
_DIGIT_BITS = 26


def _remainder_of_power(bits: int) -> tuple[float, float, float]:
    """2 ** bits, and its distance to whole turns in two parts, the first of 26 bits."""
    power = Fraction(2) ** bits
    rest = power - round(power / _TWO_PI) * _TWO_PI
    high = Fraction(round(rest * 2**24), 2**24)
    return float(power), float(high), float(rest - high)


# From the largest: together with a last digit below the first of them, they reach 2 ** 128.
_DIGITS = [_remainder_of_power(_DIGIT_BITS * k) for k in (4, 3, 2, 1)]


def _as_float(x: Tensor) -> Tensor:
    return x if x.dtype.is_floating_point else x.to(torch.float32)


def _in_quarters(x: Tensor) -> tuple[Tensor, Tensor]:
    """The number of quarter turns in an angle, modulo 4, and the angle that is left, in float32.

    The angle is written in digits of 26 bits, and each digit's unit has its whole turns taken away
    beforehand, so that products are exact; what is left is short enough to be divided.
    """
    rest = x.to(torch.float64)
    high, low = torch.zeros_like(rest), torch.zeros_like(rest)
    for unit, unit_high, unit_low in _DIGITS:
        digit = torch.round(rest * (1 / unit))
        rest = rest - digit * unit
        high = high + digit * unit_high
        low = low + digit * unit_low
    counts, rests = zip(_less_quarters(high), _less_quarters(rest), strict=True)
    count, rest = _less_quarters(sum(rests) + low)
    quarters = sum(counts) + count
    return quarters - 4 * torch.floor(quarters * 0.25), rest.to(torch.float32)


def _less_quarters(angle: Tensor) -> tuple[Tensor, Tensor]:
    quarters = torch.round(angle * (2 / math.pi))
    return quarters, (angle - quarters * _QUARTER_HIGH) - quarters * _QUARTER_LOW


def _near_zero(x: Tensor) -> tuple[Tensor, Tensor]:
    """Sine and cosine in [-pi/4, pi/4] by the polynomials of Cephes, sinf.c: IREE's lose digits."""
    square = x * x
    sine = -1.9515295891e-4 * square + 8.3321608736e-3
    sine = x + x * square * (sine * square - 1.6666654611e-1)
    cosine = 2.443315711809948e-5 * square - 1.388731625493765e-3
    cosine = 1 - 0.5 * square + square * square * (cosine * square + 4.166664568298827e-2)
    return sine, cosine


def _sine(x: Tensor, ahead: int) -> Tensor:
    """The sine of an angle and of quarter turns ahead of it."""
    quarters, rest = _in_quarters(x)
    sine, cosine = _near_zero(rest)
    is_odd = (quarters == 1) | (quarters == 3)
    value = torch.where(is_odd, sine, cosine) if ahead else torch.where(is_odd, cosine, sine)
    is_negative = (quarters == 1) | (quarters == 2) if ahead else quarters >= 2
    return torch.where(is_negative, -value, value)


@body("sin")
def sin(self: Tensor) -> Tensor:
    """Return the sine."""
    return in_float32(lambda x: _sine(x, 0), _as_float(self))


@body("cos")
def cos(self: Tensor) -> Tensor:
    """Return the cosine."""
    return in_float32(lambda x: _sine(x, 1), _as_float(self))


@body("tan")
def tan(self: Tensor) -> Tensor:
    """Return the tangent."""

    def formula(x: Tensor) -> Tensor:
        quarters, rest = _in_quarters(x)
        sine, cosine = _near_zero(rest)
        is_odd = (quarters == 1) | (quarters == 3)
        return torch.where(is_odd, -cosine, sine) / torch.where(is_odd, sine, cosine)

    return in_float32(formula, _as_float(self))


@body("sinc")
def sinc(self: Tensor) -> Tensor:
    """Return sin(pi x) / (pi x), and 1 at 0."""

    def formula(x: Tensor) -> Tensor:
        angle = torch.where(x == 0, 1.0, x * math.pi)
        return torch.where(x == 0, 1.0, _sine(angle, 0) / angle)

    return in_float32(formula, _as_float(self))


@body("cosh")
def cosh(self: Tensor) -> Tensor:
    """Return the hyperbolic cosine, finite as long as it can be."""
    return in_float32(lambda x: _grown(x, torch.cosh(x), 1.0), _as_float(self))


@body("sinh")
def sinh(self: Tensor) -> Tensor:
    """Return the hyperbolic sine, finite as long as it can be, by expm1 near zero."""

    def formula(x: Tensor) -> Tensor:
        grown = torch.expm1(torch.where(x.abs() < 1, x, 0.0))
        near = 0.5 * (grown + grown / (grown + 1))
        return torch.where(x.abs() < 1, near, _grown(x, torch.sinh(x), torch.sign(x)))

    return in_float32(formula, _as_float(self))


def _grown(x: Tensor, value: Tensor, sign: Any) -> Tensor:
    root = torch.exp(x.abs() * 0.5)
    return torch.where(x.abs() < _NEAR_OVERFLOW, value, (root * 0.5) * root * sign)


@body("asinh")
def asinh(self: Tensor) -> Tensor:
    """sign(x) log(|x| + sqrt(x^2 + 1)), by log1p, and by log(2 |x|) where x^2 overflows."""

    def formula(x: Tensor) -> Tensor:
        size = x.abs()
        small = torch.where(size > _LARGE, 1.0, size)
        near = torch.log1p(small + small * small / (1 + torch.sqrt(small * small + 1)))
        result = torch.where(size > _LARGE, torch.log(size) + math.log(2), near)
        return torch.where(x > 0, result, torch.where(x < 0, -result, x))

    return in_float32(formula, _as_float(self))


@body("acosh")
def acosh(self: Tensor) -> Tensor:
    """log(x + sqrt(x^2 - 1)), by log1p of x - 1, and by log(2 x) where x^2 overflows."""

    def formula(x: Tensor) -> Tensor:
        excess = torch.where(x > _LARGE, 1.0, x - 1)
        near = torch.log1p(excess + torch.sqrt(excess * (excess + 2)))
        near = torch.where(x < 1, math.nan, near)
        return torch.where(x > _LARGE, torch.log(x) + math.log(2), near)

    return in_float32(formula, _as_float(self))


@body("atanh")
def atanh(self: Tensor) -> Tensor:
    """log((1 + x) / (1 - x)) / 2, by log1p, which keeps the digits near zero."""

    def formula(x: Tensor) -> Tensor:
        size = x.abs()
        value = 0.5 * torch.log1p(2 * size / (1 - size))
        return torch.where(x > 0, value, torch.where(x < 0, -value, x))

    return in_float32(formula, _as_float(self))


@body("gelu")
def gelu(self: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit (Hendrycks and Gimpel, 2016), as in ATen."""

    def formula(x: Tensor) -> Tensor:
        if approximate == "tanh":
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
            return 0.5 * x * (1 + torch.tanh(inner))
        return x * 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))

    return in_float32(formula, self)


@body("exp2")
def exp2(self: Tensor) -> Tensor:
    """Return 2 ** self, exact for whole numbers: 2 ** n by its bits, times exp of the rest."""
    x = _as_float(self)
    if x.dtype == torch.float64:
        return torch.exp2(x)

    def formula(x: Tensor) -> Tensor:
        whole = torch.clamp(torch.round(x), -252, 254)
        half = torch.floor(whole * 0.5)
        rest = torch.exp((x - whole) * math.log(2))
        return rest * _power_of_two(half) * _power_of_two(whole - half)

    return in_float32(formula, x)


@body("ldexp.Tensor")
def ldexp(self: Tensor, other: Tensor) -> Tensor:
    """Return self * 2 ** other; the power is rounded to its dtype, where it may overflow."""
    return mul(self, exp2(other))


def _power_of_two(exponent: Tensor) -> Tensor:
    """Return 2 ** exponent, for whole numbers from -126 to 127, by the bits of a float32."""
    bits = (exponent.reshape(-1) + 127).to(torch.int32) * (1 << 23)
    return bits.view(torch.float32).reshape(exponent.shape)


# Exponents without IREE's `pow`, which loses digits where the result is far from 1.
EXACT_POWERS = frozenset([-0.5, 0.5, *map(float, range(-8, 9))])


@body("pow.Tensor_Scalar")
def power(self: Tensor, exponent: Any) -> Tensor:
    """Return self ** exponent, for an exponent of `EXACT_POWERS`, by roots and products."""
    dtype = torch.result_type(self, exponent)

    def formula(x: Tensor) -> Tensor:
        if abs(exponent) == 0.5:
            root = torch.sqrt(x)
        else:
            root = torch.ones_like(x)
            for bit in f"{int(abs(exponent)):b}":
                root = root * root
                root = root * x if bit == "1" else root
        return root if exponent >= 0 else 1 / root

    return in_float32(formula, self.to(dtype))
