"""Sums as exact as the CPU's: in float32 where operands are half as wide, and in stages where long.

IREE adds up one element after another, in as many lanes as a vector has, or in one where the sum is
not along the last dimension: over a million elements that loses three digits. The CPU adds up in
blocks (ATen's native/cpu/SumKernel.cpp), and running sums in double.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor

# The most elements that are added up one after another; a block has some, not to be all overhead.
_LONGEST = 2048
_SHORTEST_BLOCK = 32
_PRODUCT_BLOCK = 512
_HALF = (torch.float16, torch.bfloat16)


def replacements() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions, by operator; each leaves what needs none as it is."""
    aten = torch.ops.aten
    total = _in_stages(torch.sum, lambda total, _: total)
    mean = _in_stages(torch.mean, lambda total, count: total / count)
    return {
        aten.sum.default: total,
        aten.mean.default: mean,
        aten.sum.dim_IntList: total,
        aten.mean.dim: mean,
        aten.var.correction: _variance,
        aten.var_mean.correction: _variance_and_mean,
        aten.linalg_vector_norm.default: _norm,
        aten.cumsum.default: _running_total,
        aten.mm.default: _product,
    }


def _in_stages(
    reduce: Callable[..., Tensor], finish: Callable[[Tensor, int], Tensor]
) -> Callable[..., Any]:
    """The decomposition of a reduction that makes its result of a sum and its count."""

    def staged(
        self: Tensor,
        dim: list[int] | None = None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Any:
        if self.dtype in _HALF:
            return reduce(self.to(torch.float32), dim, keepdim).to(dtype or self.dtype)
        if not _is_long(self, dim, dtype):
            return NotImplemented
        return finish(_add_up(self, dim, keepdim), _count(self, dim))

    return staged


def _variance_and_mean(
    self: Tensor,
    dim: list[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    """In two passes; torch-mlir's goes through double, which IREE does not compile for CUDA."""
    if self.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    dims = _dims(self, dim)
    count = _count(self, dim)
    mean = _total(self, dims) / count
    apart = self - mean
    divisor = count - (1 if correction is None else correction)
    variance = _total(apart * apart, dims) / max(divisor, 0)
    if keepdim:
        return variance, mean
    return variance.squeeze(dims), mean.squeeze(dims)


def _total(x: Tensor, dims: list[int]) -> Tensor:
    """The sum along dimensions, which stay; in stages where sizes are known."""
    is_known = all(isinstance(x.shape[d], int) for d in dims)
    return _add_up(x, dims, True) if is_known else x.sum(dims, keepdim=True)


def _variance(self: Tensor, *args: Any, **named: Any) -> Any:
    both = _variance_and_mean(self, *args, **named)
    return both if both is NotImplemented else both[0]


def _norm(
    self: Tensor,
    ord: float = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    if ord != 2 or not _is_long(self, dim, dtype):
        return NotImplemented
    return _add_up(self * self, dim, keepdim).sqrt()


def _running_total(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        return NotImplemented
    return self.to(torch.float64).cumsum(dim).to(torch.float32)


def _product(self: Tensor, mat2: Tensor) -> Any:
    """As products of blocks, where their results take no more memory than the operands."""
    (rows, size), columns = self.shape, mat2.shape[1]
    blocks = size // _PRODUCT_BLOCK
    is_small = blocks * rows * columns <= size * (rows + columns)
    if self.dtype != torch.float32 or size <= _LONGEST or not is_small:
        return NotImplemented
    whole = blocks * _PRODUCT_BLOCK
    left = self[:, :whole].reshape(rows, blocks, _PRODUCT_BLOCK).transpose(0, 1)
    right = mat2[:whole].reshape(blocks, _PRODUCT_BLOCK, columns)
    total = torch.bmm(left, right).sum(0)
    return total if whole == size else total + self[:, whole:] @ mat2[whole:]


def _is_long(x: Tensor, dim: list[int] | None, dtype: torch.dtype | None = None) -> bool:
    is_plain = x.dtype in (torch.float32, torch.float64) and dtype in (None, x.dtype)
    return is_plain and _count(x, dim) > _LONGEST


def _dims(x: Tensor, dim: list[int] | None) -> list[int]:
    return sorted(d % x.dim() for d in dim) if dim else list(range(x.dim()))


def _count(x: Tensor, dim: list[int] | None) -> int:
    return math.prod(x.shape[d] for d in _dims(x, dim))


def _add_up(x: Tensor, dim: list[int] | None, keepdim: bool) -> Tensor:
    """The sum along dimensions, one after another, the last one first."""
    if not dim and not keepdim:
        return _add_up_along(x.reshape(-1), 0).reshape(())
    dims = _dims(x, dim)
    for d in reversed(dims):
        x = _add_up_along(x, d)
    return x if keepdim else x.squeeze(dims)


def _add_up_along(x: Tensor, d: int) -> Tensor:
    """The sum along a dimension, which stays with size 1."""
    while (size := x.shape[d]) > _LONGEST:
        block = next((n for n in range(_LONGEST, _SHORTEST_BLOCK, -1) if size % n == 0), None)
        if block is None:
            whole = size - size % _LONGEST
            rest = x.narrow(d, whole, size - whole).sum(d, keepdim=True)
            return _add_up_along(x.narrow(d, 0, whole), d) + rest
        x = x.reshape(*x.shape[:d], size // block, block, *x.shape[d + 1 :]).sum(d + 1)
    return x.sum(d, keepdim=True)
