"""Writes to a part of a large tensor: the part is computed together, then copied to its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from torch_shark import config

SIDE = 160  # of a square that is large, in bytes, in every dtype but bool

Program = Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]]


@pytest.fixture(autouse=True)
def iree() -> Iterator[None]:
    with config.scope(policy="iree"):
        yield
        torch.shark.synchronize()


def check(program: Program, *, regions: int, native: int = 0, dtype: torch.dtype) -> None:
    """Run on both, compare all that is returned, and count."""
    inputs = [(torch.arange(SIDE * SIDE) % n).reshape(SIDE, SIDE).to(dtype) for n in (37, 41)]
    expected = program(*(each.clone() for each in inputs))
    on_device = [each.to("shark") for each in inputs]
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    actual = program(*on_device)
    torch.shark.synchronize()
    counts = torch.shark.metrics()
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    assert (counts.regions, sum(counts.native_steps.values())) == (regions, native)


def diffuse(heat: torch.Tensor, source: torch.Tensor) -> list[torch.Tensor]:
    inside = heat[1:-1, 1:-1]
    around = heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:]
    inside += 0.2 * (around - 4 * inside) + source[1:-1, 1:-1]
    return [heat, source]


def test_a_step_of_the_heat_equation_is_one_region() -> None:
    check(diffuse, regions=1, dtype=torch.float32)


def test_what_reads_it_comes_after() -> None:
    def program(heat: torch.Tensor, source: torch.Tensor) -> list[torch.Tensor]:
        for _ in range(3):
            diffuse(heat, source)
        return [heat, heat.sum(0), heat[1:-1, 1:-1] * 2]

    check(program, regions=5, dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int32, torch.bfloat16])
def test_dtypes(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        x[:, 1::2] = y[:, ::2] + x[:, ::2]
        return [x]

    check(program, regions=1, dtype=dtype)


def test_two_tensors_at_once() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        both = x[::2] * y[1::2]
        x[::2] += both
        y[5:85] -= both
        return [x, y]

    check(program, regions=1, dtype=torch.float32)


def test_in_a_tensor_that_the_same_region_makes() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z = x * y
        z[:, 3:30].mul_(2).add_(1)
        z.t()[40:70] = y[:30] - 1
        return [z]

    check(program, regions=4, dtype=torch.float32)


def test_in_a_tensor_that_holds_nothing_yet() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z = torch.empty_like(x)
        torch.add(x[:80], y[80:], out=z[:80])
        torch.sub(x[:80], y[80:], out=z[80:])
        return [z]

    check(program, regions=2, dtype=torch.float32)


def test_of_which_only_that_is_read() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z = x * 2
        kept = z[:80].add_(y[:80]) * 3
        del z
        return [kept]

    check(program, regions=2, dtype=torch.float32)


def test_verified() -> None:
    with config.scope(verify=True):
        program = diffuse
        heat, source = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
        expected = program(heat.clone(), source)[0]
        actual = program(heat.to("shark"), source.to("shark"))[0]
        assert torch.equal(actual.cpu(), expected)
