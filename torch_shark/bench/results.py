"""Whether a peer's results are those of the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

# Of the largest magnitude in a tensor: float32 in another order, through tens of layers.
TOLERANCE = 1e-3


def on_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies on the CPU."""
    return [tensor.detach().cpu().clone() for tensor in tensors]


def compare(
    actual: Sequence[Sequence[torch.Tensor]], expected: Sequence[Sequence[torch.Tensor]]
) -> dict[str, Any]:
    """Compare the results of steps, tensor by tensor.

    Returns:
        `absolute_error`, the largest difference; `relative_error`, the largest in parts of the
        largest magnitude of its tensor; and whether all is `right`: finite numbers within the
        tolerance, other values equal, and the same shapes and dtypes.
    """
    absolute, relative, right = 0.0, 0.0, len(actual) == len(expected)
    for got_step, wanted_step in zip(actual, expected, strict=False):
        right &= len(got_step) == len(wanted_step)
        for got, wanted in zip(got_step, wanted_step, strict=False):
            if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
                right = False
                continue
            difference = (got.double() - wanted.double()).abs().max().item()
            magnitude = wanted.double().abs().max().item()
            share = difference / magnitude if magnitude else float(difference > 0)
            tolerance = TOLERANCE if wanted.is_floating_point() else 0.0
            right &= share <= tolerance  # false for a NaN
            absolute, relative = max(absolute, difference), max(relative, share)
    return {"absolute_error": absolute, "relative_error": relative, "right": bool(right)}
