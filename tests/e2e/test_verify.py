"""TORCH_SHARK_VERIFY: each region runs both ways, and is named where the values differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torch_shark.runtime.executable as executable
from tests.anew import new_planner
from torch_shark import config


@pytest.fixture(params=["iree", "auto"])
def verified(request: pytest.FixtureRequest) -> Iterator[None]:
    with new_planner(policy=request.param, verify=True):
        yield


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(6):
        x = (x * 1.01 + 0.1).clamp(-1, 1)
    return x


def until_compiled(work: Callable[[], Any]) -> None:
    """Under `auto`, regions come when the background is done."""
    for _ in range(4):
        kept = work()  # what nobody needs is not computed
        torch.shark.synchronize()
        del kept
    while torch.shark.metrics().pending:
        torch.shark.synchronize()


def planted(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Any], None]) -> None:
    """Have every executable spoil its outputs after it has run."""
    prepare = executable.Executable.prepare

    def prepare_wrong(self: Any, inputs: Any, outputs: Any, scalars: Any) -> Any:
        begin, arguments, wait = prepare(self, inputs, outputs, scalars)

        def run(*arguments: Any) -> None:
            begin(*arguments)
            wait()
            for buffer in outputs:
                spoil(buffer)

        return run, arguments, wait

    monkeypatch.setattr(executable.Executable, "prepare", prepare_wrong)


def test_right_regions_pass(verified: None) -> None:
    host = torch.rand(500, 500)
    x, y = host.to("shark"), torch.zeros(500, 500, device="shark")

    def work() -> torch.Tensor:
        y.mul_(0.5).add_(chain(x))
        return chain(x)

    until_compiled(work)
    torch.shark.reset_metrics()
    result = work()
    torch.shark.synchronize()
    counts = torch.shark.metrics()
    assert counts.regions > 0
    assert counts.region_operators > 0
    assert sum(counts.native_steps.values()) >= 20  # the same operators, natively
    assert torch.equal(result.cpu(), chain(host))


def test_a_wrong_executable_is_named(verified: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    def spoil(buffer: Any) -> None:
        first = ctypes.c_float.from_address(buffer.address)
        first.value += 0.5

    planted(monkeypatch, spoil)
    host = torch.rand(500, 500)
    x = host.to("shark")
    named = r"region [0-9a-f]{40}, shark::region\(aten::.*Float \[500, 500\].*up to 0\.5"

    def work() -> None:
        for _ in range(2):
            until_compiled(lambda: chain(x))

    with pytest.raises(RuntimeError, match=named):
        work()
    with config.scope(policy="native"):
        assert torch.equal(chain(x).cpu(), chain(host))


def test_values_stay_native() -> None:
    host = torch.arange(12.0)
    with config.scope(policy="iree", verify=True):
        x = host.to("shark")
        result = x.mul(2).add_(x)
        torch.shark.synchronize()
        assert torch.equal(result.cpu(), host * 2 + host)
        assert torch.equal(x.add_(1).cpu(), host + 1)
