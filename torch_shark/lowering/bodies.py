"""The registry of operator bodies: our own definitions, used in place of an operator in a region.

A body takes the arguments of the functional operator by position, in schema order, and returns its
results. Where an argument is lifted (dispatch/ops/op_policy.cpp), it also takes a 0-d tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Body = Callable[..., Any]
Function = TypeVar("Function", bound=Callable[..., Any])
Tensor = torch.Tensor

BODIES: dict[str, Body] = {}


def body(*names: str) -> Callable[[Function], Function]:
    """Registers a function as the body of the operators named "add.Tensor" (namespace aten)."""

    def register(function: Function) -> Function:
        for name in names:
            BODIES["aten::" + name] = function
        return function

    return register


def in_float32(function: Body, *operands: Any) -> Tensor:
    """Computes half-width operands in float32, as CPU kernels do, and rounds the result once."""
    result = result_type(*operands)
    if result not in (torch.float16, torch.bfloat16):
        narrow: Tensor = function(*operands)
        return narrow
    wide = [
        value.to(torch.float32)
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point
        else value
        for value in operands
    ]
    rounded: Tensor = function(*wide).to(result)
    return rounded


def result_type(*operands: Any) -> torch.dtype:
    """Returns the promoted dtype of tensors and numbers together."""
    tensors = [value for value in operands if isinstance(value, torch.Tensor)]
    total = torch.result_type(tensors[0], tensors[0])
    sample: Any = tensors[0]
    for value in operands:
        if value is not sample:
            total = torch.result_type(sample, value)
            if total != sample.dtype:
                dims = max(sample.dim(), value.dim() if isinstance(value, torch.Tensor) else 0)
                sample = torch.empty((1,) * dims, dtype=total)
    return total
