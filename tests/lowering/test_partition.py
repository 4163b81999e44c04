"""Which operators go into one region, where a window's products are compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from recording import record

from torch_shark.lowering.kinds import KindTable
from torch_shark.lowering.partition import Placed, find_live, partition


def regions(
    work: Callable[..., Any], inputs: Sequence[torch.Tensor], products: Sequence[str] = ()
) -> list[list[str]]:
    """The operators of each region of what `work` records, all of them compiled."""
    recorded = record(work, *inputs).record
    table = KindTable()
    found = [table.find(entry, recorded.storages) for entry in recorded.entries]
    kinds, numbers = [kind for kind, _ in found], [local for _, local in found]
    placed = Placed(
        recorded,
        kinds,
        numbers,
        [False] * len(kinds),
        find_live(recorded, kinds, numbers),
        [entry.op in products for entry in recorded.entries],
    )
    return [[recorded.entries[e].op for e in group.entries] for group in partition(placed)]


def train(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    """A step of gradient descent, in short."""
    hidden = (x @ w).relu()
    error = hidden @ v
    rates = [w.mul(0.9), v.mul(0.9)]
    gradients = [x.t() @ (error @ v.t()), hidden.t() @ error]
    return [rate.sub(gradient) for rate, gradient in zip(rates, gradients, strict=True)]


def test_what_no_product_waits_for_is_apart() -> None:
    inputs = [torch.randn(4, 4) for _ in range(3)]
    assert len(regions(train, inputs)) == 1
    found = regions(train, inputs, ["aten::mm"])
    core, *updates = sorted(found, key=len, reverse=True)
    assert core == ["aten::mm", "aten::relu", *["aten::mm"] * 4]
    assert updates == [["aten::mul.Tensor", "aten::sub.Tensor"]] * 2


def test_what_a_product_waits_for_is_with_it() -> None:
    def work(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x + 1) @ w).relu() @ w

    (found,) = regions(work, [torch.randn(3, 3), torch.randn(3, 3)], ["aten::mm"])
    assert found == ["aten::add.Tensor", "aten::mm", "aten::relu", "aten::mm"]
