"""Reductions: to a place, the first of the largest or smallest values, and to one truth."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torch_shark.lowering.bodies import body

Tensor = torch.Tensor


def _first_place(x: Tensor, found: Tensor, dim: int) -> Tensor:
    """The first index along `dim` at which `x` is what was found, NaN included."""
    count = x.shape[dim]
    shape = [1] * x.dim()
    shape[dim] = count
    places = torch.arange(count).reshape(shape)
    hit = (x == found) | ((x != x) & (found != found))
    return torch.where(hit, places, count - 1).amin(dim, keepdim=True)


def _register(name: str, reduce: Callable[..., Tensor]) -> None:
    @body(f"arg{name}")
    def place(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        x = self if dim is not None else self.reshape(-1)
        along = dim if dim is not None else 0
        if not self.dim():
            return torch.zeros((), dtype=torch.int64)
        index = _first_place(x, reduce(x, along, keepdim=True), along)
        if dim is None:
            return index.reshape([1] * self.dim() if keepdim else [])
        return index if keepdim else index.squeeze(along)

    @body(f"{name}.dim")
    def value_and_place(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if not self.dim():
            return self, torch.zeros((), dtype=torch.int64)
        value = reduce(self, dim, keepdim=True)
        index = _first_place(self, value, dim)
        return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


_register("max", torch.amax)
_register("min", torch.amin)


@body("_is_all_true")
def is_all_true(self: Tensor) -> Tensor:
    """Return whether all are true, a 0-d tensor."""
    return self.all()


@body("_is_any_true")
def is_any_true(self: Tensor) -> Tensor:
    """Return whether any is true, a 0-d tensor."""
    return self.any()
