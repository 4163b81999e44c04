"""Compiled regions whose runs fail, where they begin or before they are over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from torch_shark import config
from torch_shark.runtime import executable

Program = Callable[[torch.Tensor], list[torch.Tensor]]


@pytest.fixture(autouse=True)
def iree() -> Iterator[None]:
    with config.scope(policy="iree"):
        yield
        torch.shark.synchronize()


def fail(*_: Any) -> None:
    raise RuntimeError("planted")


@pytest.fixture(params=["begin", "end"])
def failing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], None]:
    """Makes the run of a number, counted from 1, fail, and no other."""
    prepare = executable.Executable.prepare
    runs = 0

    def plant(number: int) -> None:
        def prepared(self: Any, *buffers: Any) -> Any:
            nonlocal runs
            runs += 1
            begin, arguments, wait = prepare(self, *buffers)
            if runs != number:
                return begin, arguments, wait
            if request.param == "begin":
                return fail, arguments, wait
            return begin, arguments, lambda: fail(wait())

        monkeypatch.setattr(executable.Executable, "prepare", prepared)

    return plant


def check(program: Program, capfd: pytest.CaptureFixture[str]) -> tuple[int, int]:
    """Run on the device and compare with the CPU; how many regions were replayed, how many ran."""
    x = torch.arange(12.0).reshape(3, 4)
    expected = program(x.clone())
    on_device = x.to("shark")
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    actual = program(on_device)
    torch.shark.synchronize()
    regions = torch.shark.metrics().regions
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    said = capfd.readouterr().err
    assert said.count("planted") == said.count("replayed natively")
    return said.count("planted"), regions


def test_a_region_is_replayed(
    failing: Callable[[int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    failing(1)
    assert check(lambda x: [x * 2 + 1], capfd) == (1, 0)


def test_so_are_those_that_wait_for_their_end_with_it(
    failing: Callable[[int], None],
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        y = x * 2 + 1
        z = torch.linalg.qr(y).R  # runs natively and waits for y
        return [z.exp() * 3, x.tanh() + 4, z * z - 4]

    failing(4)
    at_its_end = "end" in request.node.callspec.id
    assert check(program, capfd) == ((3, 1) if at_its_end else (1, 3))


def test_what_was_to_be_overwritten_is_lost(failing: Callable[[int], None]) -> None:
    x = torch.ones(1000, device="shark")
    torch.shark.synchronize()
    failing(1)
    x.mul_(3).add_(1)
    with pytest.raises(RuntimeError, match="planted"):
        x.cpu()
    y = torch.ones(1000, device="shark") * 3 + 1
    assert y.sum().item() == 4000
    assert torch.shark.metrics().regions > 0
