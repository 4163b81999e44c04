"""Reductions whose result is read in two ways at once: IREE would leave part of it unwritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from checking import assert_same, check
from recording import record, run_plan
from torch.nn import functional

from torch_shark.planner import Planner


def _both_ways(s: torch.Tensor) -> torch.Tensor:
    return s[:, None] + s[None]


_PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: _both_ways(x.sum(1)),
    "sum, kept itself": lambda x: [s := x.sum(1), _both_ways(s)],
    "amax": lambda x: _both_ways(x.amax(1)),
    "values and indices": lambda x: [_both_ways(each) for each in x.max(1)],
    "twice the same": lambda x: x.sum(1)[:, None] - x.sum(1)[None],
    "kept dimension": lambda x: x - x.sum(1, keepdim=True) - x.sum(1),
    "logsumexp": lambda x: x.logsumexp(1)[:, None] - x.logsumexp(1),
    "argmax": lambda x: x.argmax(1)[:, None] == x.argmax(1),
    "variance": lambda x: x / x.var(1)[:, None] / x.var(1),
    "distances": lambda x: _both_ways((x * x).sum(1)) - 2 * x @ x.T,
    "by way of others": lambda x: (s := x.sum(1), x / s[:, None] + (x + 1).exp() * s.neg())[1],
    "by way of a reduction": lambda x: (s := x.sum(1), (x / s[:, None]).sum(1) + s[:, None])[1],
    "another spelling of the dimension": lambda x: x.sum(1)[:, None] + x.sum(-1),
    "within a mean": lambda x: x.sum(1)[:, None] + x.mean(1),
    "of the transpose": lambda x: x.sum(1)[:, None] + x.T.sum(0),
    "of a copy": lambda x: x.amax(1)[:, None] + x.clone().max(1)[0],
    "standard deviation": lambda x: x.std(1)[:, None] + x.var(1),
    "squares": lambda x: x.pow(2).sum(1)[:, None] + (x * x).sum(1),
    "vector by two products": lambda x: (s := x.sum(1), (x @ s)[:, None] + (x @ s[:, None])[:, 0])[
        1
    ],
    "repeated": lambda x: (s := x.sum(1), s.repeat(6, 1) + s[:, None])[1],
    "bias": lambda x: (s := x.sum(1), functional.conv1d(x[None], x[:, :, None], s)[0] + s)[1],
    "matrix and vector": lambda x: _both_ways(x @ x[0]),
    "products of rows": lambda x: _both_ways((x[:, None] @ x[:, :, None])[:, 0, 0]),
    "softmax": lambda x: (s := x.softmax(1), s + s.T)[1],
    "layer norm": lambda x: (s := functional.layer_norm(x, (6,)), s + s.T)[1],
    "reshaped": lambda x: (s := x.sum(1), s.view(2, 3).T + s.view(3, 2))[1],
    "flipped": lambda x: (s := x.sum(1), s + s.flip(0))[1],
    "sliced": lambda x: (s := x.sum(1), s[1:] * s[:-1])[1],
}


@pytest.mark.parametrize("program", _PROGRAMS.values(), ids=_PROGRAMS)
def test_what_is_read_in_two_ways(planner: Planner, program: Callable[[torch.Tensor], Any]) -> None:
    assert check(planner, program, torch.rand(6, 6)).regions == 1


def test_integers_read_in_two_ways(planner: Planner) -> None:
    x = torch.randint(9, (6, 5))
    check(planner, lambda x: [_both_ways(x.sum(1)), _both_ways(x.amin(1).int())], x)
    check(planner, lambda x: _both_ways(x.any(1)), x > 4)
    check(planner, lambda x: _both_ways(x.amax(1)), x.int())


def test_what_is_read_in_one_way_stays_in_one_kernel(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_shark.lowering import fusion

    kept: list[Any] = []
    monkeypatch.setattr(fusion, "_insert_after", kept.append)
    check(
        planner,
        lambda x: [
            functional.layer_norm(x, (6,)),
            x.softmax(1) + x,
            (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True),
            x / x.sum(),
        ],
        torch.rand(6, 6),
    )
    assert not kept


def test_a_long_chain_is_looked_through_quickly(planner: Planner) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x
        for _ in range(40):
            y = y + (y @ x).softmax(1) / y.sum(1, keepdim=True)
        return y

    check(planner, program, torch.rand(4, 4))
    assert planner.stats.lowering_seconds < 20


def test_what_is_scattered_and_read_in_two_ways_begins_anew_at_each_call(planner: Planner) -> None:
    index = torch.tensor([0, 0, 1, 3])

    def degrees(index: torch.Tensor) -> Any:
        ones = torch.ones(4)
        s = torch.zeros(4).index_add_(0, index, ones)
        square = torch.zeros(4, 4).index_put_((index, index.flip(0)), ones, accumulate=True)
        copied = torch.zeros(4).index_copy(0, index[1:], ones[1:])
        return [_both_ways(s), square + square.T, _both_ways(copied)]

    recording = record(degrees, index)
    plan = planner.plan(recording.record)
    for _ in range(3):
        assert_same(run_plan(plan, recording), recording)
