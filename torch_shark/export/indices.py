"""Indices that stay inside: IREE reads and writes wherever an index says.

The device checks them before a region runs. A shipped program can't raise where PyTorch would, so
an index out of range is moved to the nearest one that is valid, and no memory of others is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_shark.lowering.fusion import KEEP_APART

Tensor = torch.Tensor
Bound = Callable[[list[Any]], None]


def _bounded(index: Tensor, size: Any, *, from_end: bool = False) -> Tensor:
    if index.dtype not in (torch.int32, torch.int64):
        return index  # a mask
    if from_end:
        index = torch.where(index < 0, index + size, index)
    index = torch.clamp(index, 0, size - 1)
    if any(isinstance(n, torch.SymInt) for n in index.shape):
        # What computes them would go into the kernel that scatters, and want a stack without end.
        index = KEEP_APART(index)
    return index


def _rows(args: list[Any]) -> None:
    args[1] = _bounded(args[1], args[0].shape[0])


def _along_dim(args: list[Any]) -> None:
    source, dim, index = args[:3]
    args[2] = _bounded(index, source.shape[dim] if source.dim() else 1)


def _each_dim(args: list[Any]) -> None:
    source, indices = args[:2]
    args[1] = [
        index if index is None else _bounded(index, source.shape[dim], from_end=True)
        for dim, index in enumerate(indices)
    ]


_BOUNDS: dict[str, Bound] = {
    "embedding": _rows,
    **dict.fromkeys(["index.Tensor", "_unsafe_index.Tensor"], _each_dim),
    **dict.fromkeys(["index_put", "_unsafe_index_put"], _each_dim),
    **dict.fromkeys(["index_select", "gather", "index_add", "index_copy"], _along_dim),
    **dict.fromkeys(["scatter.src", "scatter.value", "scatter.reduce"], _along_dim),
    **dict.fromkeys(["scatter.value_reduce", "scatter_add", "scatter_reduce.two"], _along_dim),
}

NAMES = tuple(f"aten::{name}" for name in _BOUNDS)
"""The operators that take indices."""


def bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that bounds its indices, and then does what `function` does.

    Args:
        name: one of `NAMES`.
        function: what is done in place of that operator, with all its arguments by position.
    """
    bound = _BOUNDS[name.removeprefix("aten::")]

    def within_bounds(*args: Any) -> Any:
        arguments = list(args)
        bound(arguments)
        return function(*arguments)

    return within_bounds
