"""The dtype in which the CPU compares, adds up and computes of integers, with the CPU's values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from checking import check
from torch.nn import functional

from torch_shark.planner import Planner


@pytest.fixture
def default_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def _compare(x: torch.Tensor, other: Any) -> list[torch.Tensor]:
    return [x == other, x != other, x < other, x <= other, x > other, x >= other]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_comparisons_are_in_the_common_dtype(planner: Planner, dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, -0.1, 2.0]).to(dtype)
    host = torch.tensor(0.1, dtype=torch.float64)
    check(
        planner,
        lambda x, zero_dim, host: [
            *_compare(x, 0.1),
            *_compare(x, zero_dim),
            *_compare(x, host),
            host == x,
            x[0] == 0.1,
            x.clone().gt_(0.1),
            (x * 1.1) > (x * 1.1),
        ],
        x,
        torch.tensor(0.1),
        host,
        host=[host],
    )


@pytest.mark.parametrize(
    ("x", "number"),
    [
        (torch.tensor([256.0, 260.0]).bfloat16(), 257),
        (torch.tensor([2048.0, 2052.0]).half(), 2049),
        (torch.tensor([16777216.0]), 16777217),
    ],
    ids=["bfloat16", "float16", "float32"],
)
def test_comparisons_with_integers_that_round(
    planner: Planner, x: torch.Tensor, number: int
) -> None:
    check(
        planner,
        lambda x, n: [*_compare(x, number), *_compare(x, n), *_compare(n, x)],
        x,
        torch.tensor(number),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_jumps_is_given_rounded_values(planner: Planner, dtype: torch.dtype) -> None:
    x = torch.arange(1, 33).to(dtype)
    check(
        planner,
        lambda x: [
            *_compare(x * 1.0004, 3.0),
            *_compare(x * 1.0004, x),
            (x * 0.9996).trunc(),
            (x * 1.0004).ceil(),
            (x * 0.9996).clone().floor_(),
            (x * 0.9996) % 1,
            (x * 0.9996).to(torch.int32),
            (x * 1.0004).to(torch.float32),
            torch.empty(32, dtype=torch.float64).copy_(x * 1.0004),
        ],
        x,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_thresholds_are_in_float32(planner: Planner, dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, 256.0, 260.0, -1.0]).to(dtype)
    check(
        planner,
        lambda x: [functional.threshold(x, 0.1, 7.0), functional.threshold(x, 259, 7)],
        x,
    )


def test_relu_keeps_the_sign_of_zero(planner: Planner) -> None:
    x = torch.tensor([-0.0, 0.0, torch.nan, -1.0, 2.0])
    check(
        planner,
        lambda x: [1 / x.relu(), 1 / x.clone().relu_(), 1 / x.bfloat16().relu(), x.int().relu()],
        x,
    )


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (torch.tensor([[0.5, 0.5, 1.5]]).bfloat16(), torch.int64),
        (torch.tensor([[0.5, 0.5, 1.5]]).half(), torch.int32),
        (torch.tensor([[0.3, 0.3]]), torch.bool),
        (torch.tensor([[1, -1]]), torch.bool),
        (torch.tensor([[1, -1]]), torch.float32),
        (torch.tensor([[0.003] * 99]), torch.bfloat16),
        (torch.full((1, 99), 0.003).bfloat16(), torch.float64),
    ],
    ids=lambda value: str(getattr(value, "dtype", value)),
)
def test_sums_of_what_is_converted_first(
    planner: Planner, x: torch.Tensor, dtype: torch.dtype
) -> None:
    check(planner, lambda x: x.sum(1, dtype=dtype), x, native=["aten::sum.dim_IntList"])


def test_sums_that_may_be_converted_last(planner: Planner) -> None:
    check(
        planner,
        lambda x, h, i: [
            x.sum(1, dtype=torch.float64),
            h.sum(1, dtype=torch.float32),
            i.sum(1, dtype=torch.int32),
        ],
        torch.rand(2, 9),
        torch.rand(2, 9).bfloat16(),
        torch.arange(18).reshape(2, 9),
    )


def test_integers_fill_with_large_floats(planner: Planner) -> None:
    check(planner, lambda x: torch.zeros_like(x).fill_(16777217.0), torch.arange(3))


def test_integers_become_floats_of_another_default_dtype(
    planner: Planner, default_float64: None
) -> None:
    check(
        planner,
        lambda i: [i.sin(), i / 3, i * 0.1],
        torch.arange(1, 4),
        native=["aten::sin", "aten::div.Tensor", "aten::mul.Tensor"],
    )


def test_integers_are_compared_with_floats_of_the_default_dtype(
    planner: Planner, request: pytest.FixtureRequest
) -> None:
    i = torch.tensor([16777217])
    for _ in range(2):
        check(planner, lambda i: i == 16777216.0, i)
        if torch.get_default_dtype() == torch.float32:
            request.getfixturevalue("default_float64")
    assert planner.stats.compiles == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_atanh_keeps_its_digits_near_zero(run_both, dtype):
    x = torch.tensor([-0.9, -3e-3, -1e-4, -0.0, 0.0, 1e-4, 3e-3, 0.9], dtype=dtype)
    x = torch.cat([x, torch.tensor([-1.0, 1.0, 2.0, torch.nan], dtype=dtype)])

    def program(d):
        y = torch.atanh(x.to(d))
        return y, y * 1e4  # so that small values have to be right too

    run_both(program)


def test_half_width_values_become_integers_as_on_the_cpu(planner: Planner) -> None:
    x = torch.tensor([1.5, -2.5, math.inf, -math.inf, math.nan, 300, -7])
    dtypes = (torch.int16, torch.int32)
    check(planner, lambda x, y: [e.to(d) for e in (x, y) for d in dtypes], x.half(), x.bfloat16())


def test_what_is_added_up_in_half_width_runs_natively(planner: Planner) -> None:
    check(
        planner,
        lambda x: [*torch.var_mean(x), functional.avg_pool2d(x[None], 2)],
        torch.rand(3, 4, 4).half(),
        native=["aten::var_mean.correction", "aten::avg_pool2d"],
    )


def test_losses_that_overflow_in_half_width_run_natively(planner: Planner) -> None:
    x = torch.tensor([20.0, 1.0]).half()
    y = torch.tensor([-1.0, 1.0]).half()
    check(
        planner,
        lambda x, y: functional.soft_margin_loss(x, y, reduction="none"),
        x,
        y,
        native=["aten::soft_margin_loss"],
    )
