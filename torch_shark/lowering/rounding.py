"""Rounding of bfloat16 values that a region computes and does not store.

IREE's CPU backend computes bfloat16 in float32 and leaves out conversions there and back, so that
what one operator hands to the next has the precision of float32. Where that only makes a result
more precise it is welcome, as it is to PyTorch's own compiler. Operators that jump at some values
would take another side than on the CPU: their operands are rounded.
"""

from __future__ import annotations

import torch

from torch_shark.lowering.operators import base_name

_ROUNDING = frozenset(
    [
        # Conversions and copies
        *["_to_copy", "copy"],
        # Comparisons
        *["eq", "ne", "lt", "le", "gt", "ge", "heaviside", "threshold", "hardshrink"],
        # Steps
        *["ceil", "floor", "trunc", "round", "frac", "sign", "sgn", "fmod", "remainder"],
        # Order, with its ties
        *["argmax", "argmin", "max", "min", "sort", "topk", "argsort", "cummax", "cummin"],
    ]
)


def wants_rounded(operator: str) -> bool:
    """Tells whether an operator, such as "aten::floor_", jumps at some values of its operands."""
    return base_name(operator) in _ROUNDING


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Return x rounded to bfloat16, in float32.

    Written out in bits, to nearest and to even, since the compiler leaves out a conversion.
    """
    wide = x.to(torch.float32)
    bits = wide.reshape(-1).view(torch.int32)
    to_even = torch.where(torch.bitwise_and(bits, 0x10000) != 0, 0x8000, 0x7FFF)
    bits = torch.bitwise_and(bits + to_even.to(torch.int32), -0x10000)
    return torch.where(wide != wide, wide, bits.view(torch.float32).reshape(x.shape))
