"""What a region overwrites where it stands, and what it must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from checking import check

from torch_shark.planner import Planner

Program = Callable[[torch.Tensor, torch.Tensor], Any]


def _swap(p: torch.Tensor, q: torch.Tensor) -> None:
    old = p.clone()
    p.copy_(q)
    q.copy_(old)


IN_PLACE: dict[str, tuple[int, Program]] = {
    "descent": (1, lambda p, g: p.sub_(g, alpha=0.1)),
    "a chain": (1, lambda p, g: p.mul_(0.9).add_(g).relu_()),
    "each other's": (2, lambda p, q: (p.add_(q), q.mul_(p))),
    "by a row": (1, lambda p, g: p.add_(g[0])),
    "by the norm of another": (1, lambda p, g: p.sub_(g / g.norm())),
    "half of it masked": (1, lambda p, g: p.masked_fill_(g > 0, 0.5)),
}
NOT_IN_PLACE: dict[str, Program] = {
    "by its own sum": lambda p, g: p.div_(p.sum()),
    "beside its own sum": lambda p, g: (p.sum(), p.mul_(g)),
    "transposed": lambda p, g: p.copy_(p.t().clone()),
    "flipped": lambda p, g: p.copy_(p.flip(0) + g),
    "cumulated": lambda p, g: p.cumsum_(0),
    "a product": lambda p, g: p.copy_(p @ g),
    "shifted": lambda p, g: p[1:].add_(p[:-1].clone()),
    "a part": lambda p, g: p[:2].mul_(g[:2]),
    "read by a reduction after": lambda p, g: p.mul_(2).sum(0),
    "swapped": _swap,
    "overwritten": lambda p, g: (p + 1, p.copy_(g)),
    "beside its old content": lambda p, g: (p * 2, p.add_(g)),
    "through a permuted view": lambda p, g: p.t().mul_(2),
    "read in another shape": lambda p, g: (p + g[:, None], p.mul_(2)),
}


@pytest.mark.parametrize(("expected", "program"), IN_PLACE.values(), ids=IN_PLACE)
def test_what_stays_where_it_is(planner: Planner, expected: int, program: Program) -> None:
    run = check(planner, program, torch.rand(6, 6), torch.randn(6, 6))
    assert (run.regions, run.in_place) == (1, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_dtypes_that_stay(planner: Planner, dtype: torch.dtype) -> None:
    _, chain = IN_PLACE["a chain"]
    run = check(planner, chain, torch.rand(6, 6).to(dtype), torch.randn(6, 6).to(dtype))
    assert (run.regions, run.in_place) == (1, 1)


@pytest.mark.parametrize("program", NOT_IN_PLACE.values(), ids=NOT_IN_PLACE)
def test_what_moves(planner: Planner, program: Program) -> None:
    run = check(planner, program, torch.rand(6, 6), torch.randn(6, 6))
    assert run.in_place == 0


def test_integers_move(planner: Planner) -> None:
    run = check(planner, lambda x: x.add_(3), torch.arange(6))
    assert (run.regions, run.in_place) == (1, 0)


def test_a_scalar_stays(planner: Planner) -> None:
    assert check(planner, lambda step: step.add_(1), torch.tensor(3.0)).in_place == 1


@pytest.mark.parametrize("seed", range(6))
def test_random_chains_over_several_tensors(planner: Planner, seed: int) -> None:
    """Whatever of it is written in place: no kernel reads what another one has overwritten."""
    choose = torch.Generator().manual_seed(seed)

    def pick(count: int) -> int:
        return int(torch.randint(count, (), generator=choose))

    steps = [(pick(4), pick(4), pick(4), pick(7)) for _ in range(12)]

    def program(*tensors: torch.Tensor) -> Any:
        kept = []
        for a, b, c, what in steps:
            x, y, z = tensors[a], tensors[b], tensors[c]
            if what == 0:
                x.add_(y)
            elif what == 1:
                x.mul_(y * 0.5 - z)
            elif what == 2:
                x.copy_(torch.where(y > z, y, x))
            elif what == 3:
                kept.append(x + y)
            elif what == 4:
                x.sub_(z.mean(0))
            elif what == 5:
                x.copy_(y)
            else:
                x.tanh_()
        return kept

    check(planner, program, *(torch.rand(5, 8) for _ in range(4)))
