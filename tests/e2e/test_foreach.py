"""Foreach operators, which are loops: equal tensors share a region, new numbers compile nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torch_shark import config


@pytest.fixture(autouse=True)
def iree() -> Iterator[None]:
    with config.scope(policy="iree"):
        yield
        torch.shark.synchronize()


def program(x: torch.Tensor, y: torch.Tensor) -> list[Any]:
    both = [x, y]
    torch._foreach_mul_(both, 0.9)
    torch._foreach_addcdiv_(both, both, [x.abs() + 1, y.abs() + 1], [0.1, 0.2])
    torch._foreach_lerp_(both, [x + 1, y + 1], 0.2)
    roots = torch._foreach_sqrt([x.abs(), y.abs()])
    torch._foreach_div_(roots, [2.0, 3.0])
    torch._foreach_addcmul_(both, roots, roots, 0.5)
    torch._foreach_maximum_(both, roots)
    norms = torch._foreach_norm(both)
    torch._foreach_copy_(roots, both)
    return [*both, *roots, *norms]


def test_values() -> None:
    x, y = torch.randn(4, 6), torch.randn(5)
    program(x.to("shark"), y.to("shark"))  # the first call of an operator runs natively
    on_device = [x.to("shark"), y.to("shark")]
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    actual = program(*on_device)
    torch.shark.synchronize()
    counts = torch.shark.metrics()
    assert counts.regions > 0
    assert counts.native_steps == {}
    for one, other in zip(actual, program(x, y), strict=True):
        torch.testing.assert_close(one.cpu(), other)


def test_new_values_in_lists_do_not_compile() -> None:
    x, y = torch.randn(3), torch.randn(4)
    for turn, scale in enumerate((2.0, 3.5, 1.0, 0.25)):
        both = [x.to("shark"), y.to("shark")]
        torch.shark.synchronize()
        torch.shark.reset_metrics()
        torch._foreach_div_(both, [scale, scale + 1])
        torch._foreach_add_(both, 1.0)
        torch.shark.synchronize()
        counts = torch.shark.metrics()
        if turn > 1:  # in the first, operators run natively
            assert (counts.regions, counts.compiles) == (2, 0)
        torch.testing.assert_close(both[0].cpu(), x / scale + 1)
        torch.testing.assert_close(both[1].cpu(), y / (scale + 1) + 1)
