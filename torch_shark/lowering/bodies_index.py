"""Operators that write at indices.

IREE scatters in place, even into memory that a caller only lends it: without care the input itself
would change. So what is scattered into is always a value computed in the region.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_shark.lowering.bodies import body
from torch_shark.lowering.operators import find_operator

Tensor = torch.Tensor

_ALONG_DIM = (
    "scatter.src scatter.value scatter.reduce scatter.value_reduce scatter_add index_add index_copy"
).split()


def owned(value: Tensor, index: Tensor) -> Tensor:
    """Returns a copy of `value` that the compiler can't see through.

    The condition is always true, since indices are checked, but it is not a constant.
    """
    first = index.reshape(-1)[0]
    return torch.where(first >= -(2**31), value, torch.zeros_like(value))


def _register_along_dim(name: str) -> None:
    operator = find_operator("aten::" + name)
    assert operator is not None

    @body(name)
    def write_along_dim(self: Tensor, dim: int, index: Tensor, *rest: Any) -> Any:
        if not self.dim():
            # Indices along the one dimension that a 0-d tensor stands for.
            self, index = self.reshape(1), index.reshape(1)
            rest = tuple(r.reshape(1) if isinstance(r, Tensor) else r for r in rest)
            return operator(owned(self, index), 0, index, *rest).reshape(())
        return operator(owned(self, index), dim, index, *rest)


for _name in _ALONG_DIM:
    _register_along_dim(_name)


@body("index_put", "_unsafe_index_put")
def index_put(self: Tensor, indices: list[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    index = next(i for i in indices if i is not None)
    values = values.to(self.dtype)
    result: Tensor = torch.ops.aten.index_put(owned(self, index), indices, values, accumulate)
    return result


