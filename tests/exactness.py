"""How far a compiled result may be from the CPU's: no further from the truth than the CPU is."""

from __future__ import annotations

from typing import Any

import torch

# Errors add up in another order than on the CPU: how many times the CPU's error is no fault.
ERROR_RATIO = 5


def is_as_near(exact: Any, one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether `other` is as near to a result in a wider dtype as the CPU's, `one`.

    Errors are taken in the maximum norm; what is not finite has to be the same.
    """
    if not one.is_floating_point() or not isinstance(exact, torch.Tensor):
        return False
    exact = exact.detach()
    finite = one.isfinite()
    if not torch.equal(one.where(~finite, 0).nan_to_num(7), other.where(~finite, 0).nan_to_num(7)):
        return False
    errors = [(x.to(exact.dtype) - exact)[finite].abs().max() for x in (one, other)]
    return bool(errors[1] <= errors[0] * ERROR_RATIO)
