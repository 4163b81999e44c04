"""Sums of many elements: as exact as the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from torch_shark import config

COUNT = 1 << 20

PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": lambda x: x.sum(),
    "mean of a chain": lambda x: functional.mse_loss(x, 2 * x),
    "rows": lambda x: x.view(2, -1).mean(1),
    "columns": lambda x: x.view(-1, 2).sum(0),
    "a prime number": lambda x: x[:1000003].view(1, -1).sum(1),
    "two dimensions": lambda x: x.view(64, 128, 128).mean((0, 2)),
    "variance of rows": lambda x: x.view(4, -1).var(1),
    "variance and mean of columns": lambda x: torch.stack(torch.var_mean(x.view(-1, 4), 0)),
    "standard deviation of all": lambda x: x.std(),
    "norm": lambda x: x.view(2, -1).norm(dim=1),
    "running": lambda x: x.view(8, -1).cumsum(1)[:, -1],
    "product": lambda x: x.view(16, -1) @ x.view(-1, 16),
    "product, a prime number": lambda x: x[: 4 * 65537].view(4, -1) @ x[: 3 * 65537].view(-1, 3),
    "gradient of a weight": lambda x: x.view(-1, 4).T @ x.view(-1, 4),
    "layer norm": lambda x: functional.layer_norm(x.view(2, -1), (COUNT // 2,)),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_long_sums(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.rand(COUNT) + 1000
    exact, on_cpu = program(x.double()), program(x)
    with config.scope(policy="native"):  # first calls of operators run at once
        program(x.to("shark")).cpu()
    with config.scope(policy="iree"):
        torch.shark.reset_metrics()
        actual = program(x.to("shark")).cpu()
        assert torch.shark.metrics().regions >= 1

    def error(value: torch.Tensor) -> float:
        return ((value - exact).abs().max() / exact.abs().max()).item()

    assert error(actual) <= max(2 * error(on_cpu), 2e-7)


def test_hyperbolic_sines_near_zero(run_both: Callable[..., Any]) -> None:
    x = torch.tensor([1e-30, 1e-9, 1e-6, -1e-3, 0.5, -0.999, 1.0, 80.0])
    run_both(lambda device: [x.to(device).sinh() / x.to(device)])


def test_products_with_logarithms_near_one(run_both: Callable[..., Any]) -> None:
    y = torch.tensor([1e-20, 1e-12, 1e-6], dtype=torch.float64)
    run_both(
        lambda device: [torch.special.xlog1py(y.to(device) * 0 + 2, y.to(device)) / y.to(device)]
    )
