"""Views rebuilt from geometry, against torch.as_strided."""

from __future__ import annotations

import random

import torch

from torch_shark.lowering.views import (
    build_view,
    covers_storage,
    has_view,
    in_storage_order,
    overlaps_itself,
    storage_layout,
)
from torch_shark.record import StorageInfo, TensorRef


def _info(base: torch.Tensor) -> StorageInfo:
    nbytes = base.untyped_storage().nbytes()
    return StorageInfo(nbytes, base.dtype, tuple(base.shape), base.stride(), False, True)


def _ref(view: torch.Tensor) -> TensorRef:
    return TensorRef(0, view.dtype, tuple(view.shape), view.stride(), view.storage_offset())


def _storage_order(base: torch.Tensor) -> torch.Tensor:
    layout = storage_layout(_info(base))
    flat = base.as_strided((base.untyped_storage().nbytes() // base.itemsize,), (1,), 0)
    return flat.reshape(layout.shape)


def _random_base(choose: random.Random) -> torch.Tensor:
    sizes = [choose.choice((1, 2, 3, 4, 6)) for _ in range(choose.randint(0, 4))]
    order = list(range(len(sizes)))
    choose.shuffle(order)
    numel = int(torch.tensor(sizes).prod()) if sizes else 1
    return (
        torch.arange(numel)
        .reshape([sizes[d] for d in order])
        .permute([order.index(d) for d in range(len(sizes))])
    )


def _random_view(choose: random.Random, view: torch.Tensor) -> torch.Tensor:
    for _ in range(choose.randint(1, 4)):
        kind = choose.choice(("slice", "select", "permute", "unsqueeze", "expand", "view"))
        if not view.dim():
            view = view.unsqueeze(0)
        dim = choose.randrange(view.dim())
        size = view.shape[dim]
        if kind == "slice":
            start = choose.randrange(size)
            view = view[(slice(None),) * dim + (slice(start, None, choose.randint(1, 3)),)]
        elif kind == "select" and view.dim() > 1:
            view = view.select(dim, choose.randrange(size))
        elif kind == "permute":
            view = view.permute(choose.sample(range(view.dim()), view.dim()))
        elif kind == "unsqueeze" and view.dim() < 5:
            view = view.unsqueeze(dim)
        elif kind == "expand" and size == 1:
            view = view.expand(*view.shape[:dim], 3, *view.shape[dim + 1 :])
        elif kind == "view" and size % 2 == 0:
            view = view.unflatten(dim, (2, size // 2))
    return view


def test_chains_of_views_are_rebuilt() -> None:
    choose = random.Random(0)
    rebuilt = 0
    for _ in range(2000):
        base = _random_base(choose)
        view = _random_view(choose, base)
        if has_view(_ref(view), _info(base)):
            rebuilt += 1
            assert torch.equal(build_view(_storage_order(base), _ref(view), _info(base)), view)
    # Stepped slices of split dimensions do not nest; nearly all else does.
    assert rebuilt > 1900


def test_any_geometry_is_exact_or_refused() -> None:
    choose = random.Random(1)
    base = torch.arange(60).reshape(3, 4, 5)
    rebuilt = 0
    for _ in range(4000):
        dims = choose.randint(0, 3)
        sizes = [choose.randint(1, 4) for _ in range(dims)]
        strides = [choose.choice((0, 1, 2, 3, 4, 5, 10, 20, 21)) for _ in range(dims)]
        offset = choose.randint(0, 10)
        last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        if last >= 60:
            continue
        view = base.as_strided(sizes, strides, offset)
        if has_view(_ref(view), _info(base)):
            rebuilt += 1
            assert torch.equal(build_view(_storage_order(base), _ref(view), _info(base)), view)
    assert rebuilt > 1000


def test_a_diagonal_of_a_batch_is_rebuilt() -> None:
    base = torch.arange(2 * 6 * 6).reshape(2, 6, 6)
    view = base.diagonal(dim1=1, dim2=2)
    assert has_view(_ref(view), _info(base))
    assert torch.equal(build_view(base, _ref(view), _info(base)), view)


def test_overlapping_windows_are_refused() -> None:
    base = torch.arange(6)
    assert not has_view(_ref(base.unfold(0, 3, 1)), _info(base))


def test_a_write_through_a_view_reaches_the_storage() -> None:
    base = torch.arange(12.0).reshape(3, 4).t()
    stored = _storage_order(base).clone()
    view = base[1:3, ::2]
    build_view(stored, _ref(view), _info(base)).fill_(-1)
    view.fill_(-1)
    assert torch.equal(stored, _storage_order(base))


def test_a_covering_value_is_laid_out_as_its_reference() -> None:
    value = torch.arange(24.0).reshape(2, 3, 4)
    ref = TensorRef(0, value.dtype, (2, 3, 4), (12, 1, 3), 0)
    info = StorageInfo(96, value.dtype, (24,), (1,), True, True)
    assert covers_storage(ref, info)
    laid_out = in_storage_order(value, ref, storage_layout(info))
    assert torch.equal(laid_out.as_strided((2, 3, 4), (12, 1, 3)), value)


def test_overlap_is_found() -> None:
    base = torch.arange(12)
    assert overlaps_itself(_ref(base[:1].expand(3)))
    assert overlaps_itself(_ref(base.unfold(0, 3, 1)))
    assert not overlaps_itself(_ref(base.reshape(3, 4)[:, ::2]))
