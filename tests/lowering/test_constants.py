"""Tensors whose content is known when a region is compiled: what is folded must be right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checking import check

from torch_shark.planner import Planner


def _comparisons(x: torch.Tensor, number: int) -> list[torch.Tensor]:
    return [getattr(torch, name)(x, number) for name in ("eq", "ne", "lt", "le", "gt", "ge")] + [
        x.clamp(number, 3),
        x.clamp_max(number),
        torch.where(x > number, x, number),
        x + number,
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_filled_tensors(planner: Planner, dtype: torch.dtype) -> None:
    def run(x: Any, filled: int) -> Any:
        x.fill_(filled)
        results = [value for number in (-1, 0, 2) for value in _comparisons(x, number)]
        results += [x.to(torch.int64), x.to(torch.float32), x.to(torch.bool), x.sum(), x.cumsum(0)]
        if dtype != torch.bool:
            results += [x.sign(), x.abs(), -x, x.relu(), x.masked_fill(x < 0, 7)]
        return results

    for filled in (0, 3, -2, 1):
        check(planner, run, torch.zeros(2, dtype=dtype), filled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_zeros_and_unknown_tensors(planner: Planner, dtype: torch.dtype) -> None:
    def run(x: Any, y: Any) -> Any:
        zeros = torch.zeros_like(x).zero_()
        return [
            value
            for each in (zeros, y)
            for number in (-1, 0, 2)
            for value in _comparisons(each, number)
        ]

    check(planner, run, torch.zeros(3, dtype=dtype), torch.tensor([1, 0, 3]).to(dtype))
