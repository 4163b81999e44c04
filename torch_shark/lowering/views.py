"""Views rebuilt from geometry.

A storage enters a region as a dense tensor in storage order: its base geometry with the dimensions
sorted by falling stride, or one flat dimension where the base is not dense. A reference to it
becomes a chain of view operators over that tensor. Strides that nest are digits of the flat index:
the coarsest stride cuts the storage into rows, the next one cuts each row, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from torch_shark.record import StorageInfo, TensorRef

_LARGE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Layout:
    """A storage in storage order: its shape, and the base dimension of each of its dimensions."""

    shape: tuple[int, ...]
    order: tuple[int, ...] | None


def storage_layout(info: StorageInfo) -> Layout:
    """Returns the storage-order shape of a storage; `order` is None where its base is not dense."""
    order = dense_order(info.sizes, info.strides)
    if order is not None and math.prod(info.sizes) * info.dtype.itemsize == info.nbytes:
        return Layout(tuple(info.sizes[d] for d in order), order)
    return Layout((info.nbytes // info.dtype.itemsize,), None)


def dense_order(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Returns the dimensions by falling stride if the geometry fills its range, else None."""
    # Dimensions of size 1 keep their place among the others: their strides say nothing.
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], d) if sizes[d] != 1 else (0, d))
    expected = 1
    for d in reversed(order):
        if sizes[d] != 1:
            if strides[d] != expected:
                return None
            expected *= sizes[d]
    return tuple(order)


def covers_storage(ref: TensorRef, info: StorageInfo) -> bool:
    """Tells whether the reference names every element of its storage exactly once."""
    return (
        ref.offset == 0
        and math.prod(ref.sizes) * ref.dtype.itemsize == info.nbytes
        and dense_order(ref.sizes, ref.strides) is not None
    )


def is_part(ref: TensorRef, info: StorageInfo) -> bool:
    """Tells whether the reference names a part of a storage that is too large to be made anew.

    What is written there is a result of its own, copied to its place after the region has run.
    """
    return info.nbytes > _LARGE_BYTES and not covers_storage(ref, info)


def has_view(ref: TensorRef, info: StorageInfo) -> bool:
    """Tells whether `build_view` can express the reference over its storage."""
    if ref.dtype != info.dtype or ref.conj or ref.neg or 0 in ref.sizes:
        return False
    return _carve(info.nbytes // info.dtype.itemsize, ref.offset, _digits(ref)) is not None


def build_view(storage: torch.Tensor, ref: TensorRef, info: StorageInfo) -> torch.Tensor:
    """Returns the reference as a view of its storage's tensor in storage order.

    Raises:
        ValueError: no chain of views gives this geometry (see `has_view`).
    """
    layout = storage_layout(info)
    if layout.order is not None and _same_geometry(ref, info):
        inverse = _inverse(layout.order)
        return storage if inverse == sorted(inverse) else storage.permute(inverse)
    digits = _digits(ref)
    cuts = _carve(storage.numel(), ref.offset, digits)
    if cuts is None:
        raise ValueError(f"[shark] expected strides that nest, got {ref}")
    flat = storage.reshape(-1)
    for cut in cuts:
        flat = cut.apply(flat)
    return _arrange(flat, ref)


def in_storage_order(value: torch.Tensor, ref: TensorRef, layout: Layout) -> torch.Tensor:
    """Returns the whole value of a storage in storage order, from a reference that covers it."""
    order = dense_order(ref.sizes, ref.strides)
    assert order is not None
    if order != tuple(range(value.dim())):
        value = value.permute(order)
    value = value.contiguous()
    return value if value.shape == layout.shape else value.reshape(layout.shape)


def overlaps_itself(ref: TensorRef) -> bool:
    """Tells whether two indices of the reference name one element (an expanded tensor does)."""
    reach = 0
    for size, stride in sorted(zip(ref.sizes, ref.strides, strict=True), key=lambda p: p[1]):
        if size > 1:
            if stride <= reach:
                return True
            reach += (size - 1) * stride
    return False


@dataclass(frozen=True, slots=True)
class _Cut:
    """One step over the last dimension: rows of `length` from `start`, every `step`-th kept.

    The last cut (`final`) has rows of `step` elements, of which it keeps the first.
    """

    start: int
    count: int
    step: int
    length: int
    final: bool

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        rows = (self.count - 1) * self.step + 1
        if not self.final:
            if not self.start % self.length and not tensor.shape[-1] % self.length:
                # Rows of the whole, and one slice of them, which IREE reads where they are: what is
                # cut out beforehand it copies.
                first = self.start // self.length
                tensor = tensor.reshape(*tensor.shape[:-1], -1, self.length)
                if (first, rows, self.step) != (0, tensor.shape[-2], 1):
                    stop = first + rows
                    tensor = torch.ops.aten.slice.Tensor(tensor, -2, first, stop, self.step)
                return tensor
            if (self.start, rows * self.length) != (0, tensor.shape[-1]):
                stop = self.start + rows * self.length
                tensor = torch.ops.aten.slice.Tensor(tensor, -1, self.start, stop, 1)
            tensor = tensor.reshape(*tensor.shape[:-1], rows, self.length)
            if self.step > 1:
                tensor = torch.ops.aten.slice.Tensor(tensor, -2, 0, rows, self.step)
            return tensor
        if (self.start, rows, self.step) == (0, tensor.shape[-1], 1):
            return tensor
        stop = self.start + rows
        kept: torch.Tensor = torch.ops.aten.slice.Tensor(tensor, -1, self.start, stop, self.step)
        return kept


def _digits(ref: TensorRef) -> list[tuple[int, int]]:
    """(size, stride) of each dimension that moves through memory, by falling stride."""
    moving = [(n, s) for n, s in zip(ref.sizes, ref.strides, strict=True) if n > 1 and s > 0]
    return sorted(moving, key=lambda p: (-p[1], p[0]))


def _carve(length: int, offset: int, digits: list[tuple[int, int]]) -> list[_Cut] | None:
    if not digits:
        return [_Cut(offset, 1, 1, 1, True)] if offset < length else None
    count, stride = digits[0]
    if len(digits) == 1:
        fits = offset + (count - 1) * stride < length
        return [_Cut(offset, count, stride, 1, True)] if fits else None
    for row in _rows(stride, length):
        step = stride // row
        reach = ((count - 1) * step + 1) * row
        for start in (offset - offset % row, offset, length - reach):
            if 0 <= start <= offset and start + reach <= length:
                inner = _carve(row, offset - start, digits[1:])
                if inner is not None:
                    return [_Cut(start, count, step, row, False), *inner]
    return None


def _rows(stride: int, length: int) -> Iterator[int]:
    """Whole rows of the stride; else shorter ones, of which some are skipped."""
    yield stride
    yield math.gcd(stride, length)


def _arrange(carved: torch.Tensor, ref: TensorRef) -> torch.Tensor:
    """Orders the carved dimensions as the reference has them; adds those of size 1 and stride 0."""
    pairs = list(zip(ref.sizes, ref.strides, strict=True))
    moving = [d for d, (n, s) in enumerate(pairs) if n > 1 and s > 0]
    by_stride = sorted(moving, key=lambda d: (-ref.strides[d], ref.sizes[d]))
    if not moving:
        carved = carved.reshape(())
    elif moving != by_stride:
        carved = carved.permute([by_stride.index(d) for d in moving])
    for d, (n, s) in enumerate(pairs):
        if not (n > 1 and s > 0):
            carved = carved.unsqueeze(d)
    return carved.expand(ref.sizes) if carved.shape != torch.Size(ref.sizes) else carved


def _same_geometry(ref: TensorRef, info: StorageInfo) -> bool:
    return ref.offset == 0 and ref.sizes == info.sizes and ref.strides == info.strides


def _inverse(order: tuple[int, ...]) -> list[int]:
    return [order.index(d) for d in range(len(order))]
