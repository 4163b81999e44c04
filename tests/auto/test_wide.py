"""Policy `auto`, windows of products: tried with products in their regions, once they run for long.

Which way is the faster depends on the machine. So what is decided is not tested, but that it is
decided, that values are right whatever it is, and that it is kept to.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.anew import new_planner, start_anew
from torch_shark import compiler
from torch_shark.decisions import WIDE, WINDOW_WAYS, Decisions

SECONDS = 60


@pytest.fixture(autouse=True)
def auto(tmp_path: Path) -> Iterator[None]:
    """The policy, over an empty cache, with a planner that knows nothing."""
    with new_planner(policy="auto", cache_dir=tmp_path, compile_delay=0):
        torch.shark.reset_metrics()
        yield


def network() -> nn.Module:
    """Products that take a few milliseconds, with passes over rows between them."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512), nn.Softmax(-1))


def run_until(step: Callable[[], object], is_done: Callable[[], bool]) -> None:
    """Run a step, a window each, until something holds."""
    end = time.monotonic() + SECONDS
    while not is_done():
        assert time.monotonic() < end, "it has not come to that"
        kept = step()  # what nobody can read any more need not run
        torch.shark.synchronize()
        del kept


def told_of_windows() -> list[str]:
    """What was decided of windows."""
    return [told for told in compiler.decisions() if told.startswith("a window of ")]


def give_each_way(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Let a way be known to be the fastest for every window."""
    monkeypatch.setattr(Decisions, "find_window", lambda self, digest: way)


def products(step: Callable[[], object]) -> int:
    """How many products run natively in a step."""
    torch.shark.reset_metrics()
    kept = step()
    torch.shark.synchronize()
    del kept
    return torch.shark.metrics().native_steps.get("aten::addmm", 0)


def test_products_are_tried_when_they_have_run_for_long() -> None:
    host = network().eval()
    model, batch = copy.deepcopy(host).to("shark"), torch.randn(1024, 512)
    x = batch.to("shark")

    with torch.no_grad():
        expected = host(batch)

        def step() -> None:
            torch.testing.assert_close(model(x).cpu(), expected)

        run_until(step, lambda: bool(told_of_windows()))
        (told,) = told_of_windows()
        assert f"decided: {told}" in torch.shark.explain()
        native = products(lambda: model(x).cpu())
        assert native == 0 or "with products compiled" not in told

        start_anew()
        run_until(step, lambda: torch.shark.metrics().plans > 0)
        run_until(step, lambda: not torch.shark.metrics().pending)
        for _ in range(40):
            step()
        assert torch.shark.metrics().compiles == 0
        assert told_of_windows() == []


@pytest.mark.parametrize("way", WINDOW_WAYS)
def test_what_was_decided_of_a_window_is_kept_to(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    give_each_way(monkeypatch, way)
    model, x = network().eval().to("shark"), torch.randn(256, 512, device="shark")
    with torch.no_grad():
        kept = model(x)
        run_until(lambda: model(x), lambda: torch.shark.metrics().plans > 0)
        run_until(lambda: model(x), lambda: not torch.shark.metrics().pending)
        assert (torch.shark.metrics().compiles > 0) == (way == WIDE)
        torch.testing.assert_close(model(x), kept)


def test_a_model_that_trains_is_right_however_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    give_each_way(monkeypatch, WIDE)
    host = network()
    model, batch = copy.deepcopy(host).to("shark"), torch.randn(64, 512)

    def steps(of: nn.Module, x: torch.Tensor) -> Callable[[], float]:
        optimizer = torch.optim.SGD(of.parameters(), lr=0.5)

        def step() -> float:
            optimizer.zero_grad()
            loss = of(x).square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss.item()

        return step

    theirs, ours = steps(host, batch), steps(model, batch.to("shark"))

    def both() -> None:
        assert ours() == pytest.approx(theirs(), rel=1e-4)

    run_until(both, lambda: torch.shark.metrics().plans > 0)
    run_until(both, lambda: not torch.shark.metrics().pending)
    for _ in range(30):
        both()
    assert torch.shark.metrics().regions > 0
    for one, other in zip(host.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(other.cpu(), one, rtol=1e-4, atol=1e-5)


def test_what_does_not_load_stays_native(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(vmfb: bytes, interface: object) -> None:
        raise RuntimeError("refused")

    monkeypatch.setattr("torch_shark.runtime.executable.Executable", refuse)
    give_each_way(monkeypatch, WIDE)
    start_anew()
    host = nn.Linear(512, 512)
    model, batch = copy.deepcopy(host).to("shark"), torch.randn(256, 512)
    x = batch.to("shark")
    with torch.no_grad():
        run_until(lambda: model(x), lambda: torch.shark.metrics().plans > 0)
        run_until(lambda: model(x), lambda: not torch.shark.metrics().pending)
        assert torch.equal(model(x).cpu(), host(batch))
    assert torch.shark.metrics().failures > 0
    assert torch.shark.metrics().regions == 0
