"""Operators that write at indices, and into slices.

IREE writes in place, even into memory that a caller only lends it: the input itself would change.
So what is scattered into is one row longer than the input, which no compiler pass takes for it, and
the row is cut off afterwards; a slice is written by putting the whole together anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_shark.lowering.bodies import body
from torch_shark.lowering.operators import find_operator

Tensor = torch.Tensor

_ALONG_DIM = [
    "scatter.src",
    "scatter.value",
    "scatter.reduce",
    "scatter.value_reduce",
    "scatter_add",
    "index_add",
    "index_copy",
]


def _into_copy(self: Tensor, dim: int, write: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns `write(self)`, computed over a copy of `self` that is longer along `dim`."""
    rows = self if self.dim() else self.reshape(1)
    longer = torch.cat([rows, torch.zeros_like(rows.narrow(dim, 0, 1))], dim)
    return write(longer).narrow(dim, 0, rows.shape[dim]).reshape(self.shape)


def _register_along_dim(name: str) -> None:
    operator = find_operator("aten::" + name)
    assert operator is not None

    @body(name)
    def write_along_dim(self: Tensor, dim: int, index: Tensor, *rest: Any) -> Tensor:
        dim %= max(self.dim(), 1)  # The compiler crashes on a dimension counted from the end.
        if not index.dim():
            index = index.reshape(1)
            rest = tuple(r.reshape(1) if isinstance(r, Tensor) else r for r in rest)
        return _into_copy(self, dim, lambda copy: operator(copy, dim, index, *rest))


for _name in _ALONG_DIM:
    _register_along_dim(_name)


@body("index_put", "_unsafe_index_put")
def index_put(self: Tensor, indices: list[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    """Return self with the values written, or added, at the indices."""
    # Longer along an indexed dimension: along another one, the new row would be written too.
    dim = next(d for d, index in enumerate(indices) if index is not None)
    put = torch.ops.aten.index_put.default
    values = values.to(self.dtype)
    return _into_copy(self, dim, lambda copy: put(copy, indices, values, accumulate))


def slice_scatter(
    self: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """Return self with src in place of self[start:end:step] along a dimension."""
    dim, size = dim % self.dim(), self.shape[dim]
    start, stop, step = slice(start, end, step).indices(size)
    count = len(range(start, stop, step))
    if not count:
        return self
    src = src.to(self.dtype).expand(*self.shape[:dim], count, *self.shape[dim + 1 :])
    if step == 1:
        before, after = self.narrow(dim, 0, start), self.narrow(dim, stop, size - stop)
        return torch.cat([part for part in (before, src, after) if part.shape[dim]], dim)
    # Spread out: every element of src, and step - 1 copies that are not kept.
    spread = src.unsqueeze(dim + 1).expand(*src.shape[: dim + 1], step, *src.shape[dim + 1 :])
    spread = spread.flatten(dim, dim + 1)
    spread = spread.narrow(dim, 0, min(spread.shape[dim], size - start))
    pads = [0, 0] * (self.dim() - 1 - dim) + [start, size - start - spread.shape[dim]]
    places = torch.arange(size)
    written = (places >= start) & (places < stop) & ((places - start) % step == 0)
    shape = [size if d == dim else 1 for d in range(self.dim())]
    return torch.where(written.reshape(shape), torch.constant_pad_nd(spread, pads), self)


def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Return self with src in place of self[index] along a dimension."""
    index %= self.shape[dim]
    return slice_scatter(self, src.unsqueeze(dim), dim, index, index + 1)
