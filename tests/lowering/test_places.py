"""Values that begin alike and go on differently: IREE would let them overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from checking import check
from torch import nn
from torch.nn.functional import pad

from torch_shark.planner import Planner

# Of p, a computed value, q, a given one, and x, a product: each (3, 4); v too.
Program = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], Any]


def _replaced(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = y.clone()
    y[:, 4:] = x
    return y


PROGRAMS: dict[str, Program] = {
    "columns": lambda p, q, x, v: (torch.cat([p, q], 1), torch.cat([p, x], 1)),
    "columns, three pieces": lambda p, q, x, v: (
        torch.cat([p, q, v], 1).T @ v,
        torch.cat([p, q, x], 1),
    ),
    "reduced": lambda p, q, x, v: (torch.cat([p, q], 1).sum(1), torch.cat([p, x], 1).sum(1)),
    "multiplied": lambda p, q, x, v: (torch.cat([p, q], 1).T @ v, torch.cat([p, x], 1)),
    "rows": lambda p, q, x, v: (torch.cat([p, q]), torch.cat([p, x])),
    "rows and columns": lambda p, q, x, v: (torch.cat([p, q], 1), torch.cat([p.T, x.T]).T),
    "stacked": lambda p, q, x, v: (torch.stack([p, q], 1), torch.stack([p, x], 1)),
    "padded": lambda p, q, x, v: (
        torch.cat([p, q], 1).T @ v,
        pad(p, (0, 4)),
        torch.cat([p, x], 1),
    ),
    "padded, then overwritten": lambda p, q, x, v: (
        _replaced(pad(p, (0, 4)), q).T @ v,
        _replaced(pad(p, (0, 4)), x),
    ),
    "updated twice": lambda p, q, x, v: (
        _replaced(torch.cat([p, q], 1), v).T @ v,
        _replaced(torch.cat([p, q], 1), x),
    ),
    "updated once": lambda p, q, x, v: (
        torch.cat([p, q], 1).T @ v,
        _replaced(torch.cat([p, q], 1), x),
    ),
    "repeated": lambda p, q, x, v: (p.repeat(1, 2), torch.cat([p, x], 1), torch.cat([p, q], 1)),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_begins_alike(planner: Planner, program: Program) -> None:
    def whole(a: torch.Tensor, w: torch.Tensor, q: torch.Tensor, v: torch.Tensor) -> Any:
        return program(q * v, q, v + a @ w, v)

    a, w = torch.randn(3, 12), torch.randn(12, 4)
    assert check(planner, whole, a, w, torch.randn(3, 4), torch.randn(3, 4)).regions == 1


@pytest.mark.parametrize("seed", range(8))
def test_random_concatenations(planner: Planner, seed: int) -> None:
    choose = torch.Generator().manual_seed(seed)

    def pick(count: int) -> int:
        return int(torch.randint(count, (), generator=choose))

    chosen = [([pick(5) for _ in range(2 + pick(2))], pick(2), pick(4)) for _ in range(6)]

    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        pieces = [a * b, a @ b, a, a + b, (a * b).sum(1, keepdim=True).expand(4, 4)]
        results = []
        for numbers, dim, use in chosen:
            whole = torch.cat([pieces[i] for i in numbers], dim)
            if use == 0:
                whole = whole.sum(0)
            elif use == 1:
                whole = whole @ whole.T
            elif use == 2:
                whole = pad(whole[:2], (0, 1, 2, 0))
            results.append(whole)
        return results

    check(planner, program, torch.randn(4, 4), torch.randn(4, 4), atol=1e-4)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_gradients_of_recurrent_layers(run_both: Any, kind: type[nn.Module]) -> None:
    """The steps' gates are concatenated twice, once with the part that was reset."""

    def program(device: str) -> Any:
        torch.manual_seed(0)
        layer = kind(3, 4, num_layers=2).to(device)
        x = torch.randn(5, 3, 3).to(device).requires_grad_()
        layer(x)[0].sum().backward()
        return [x.grad, *(parameter.grad for parameter in layer.parameters())]

    run_both(program)
