"""Policy `auto`: native at once, compiled in the background, the faster kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.anew import new_planner, start_anew
from torch_shark import compiler
from torch_shark.metrics import Metrics

SECONDS = 120


@pytest.fixture(autouse=True)
def auto(tmp_path: Path) -> Iterator[None]:
    """The policy, over an empty cache, with a planner that knows nothing."""
    with new_planner(policy="auto", cache_dir=tmp_path, compile_delay=0):
        torch.shark.reset_metrics()
        yield


def step(x: torch.Tensor) -> torch.Tensor:
    """A pointwise chain that is worth compiling."""
    for _ in range(6):
        x = (x * 1.01 + 0.1).clamp(-1, 1)
    return x


def settle() -> None:
    """Wait until nothing is compiled any more."""
    torch.shark.synchronize()
    end = time.monotonic() + SECONDS
    while torch.shark.metrics().pending:
        assert time.monotonic() < end, "the background has not come to an end"
        time.sleep(0.05)


def turns(count: int, work: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Metrics]:
    """Do the same work several times, a window each; the last result, and what was counted."""
    torch.shark.reset_metrics()
    for _ in range(count):
        result = work()
        torch.shark.synchronize()
    return result.cpu(), torch.shark.metrics()


def test_the_first_calls_run_natively_and_later_ones_compiled() -> None:
    host = torch.rand(1000, 1000)
    x = host.to("shark")
    first, counts = turns(3, lambda: step(x))
    assert torch.equal(first, step(host))
    assert counts.regions == 0
    settle()
    _, counts = turns(20, lambda: step(x))
    assert counts.regions > 0
    assert counts.compiles == 0
    later, counts = turns(4, lambda: step(x))
    torch.testing.assert_close(later, step(host))
    (told,) = compiler.decisions()
    assert f"decided: {told}" in torch.shark.explain()
    compiled = "runs compiled" in told
    assert counts.regions == (4 if compiled else 0)


def test_what_was_decided_is_known_to_the_next_process() -> None:
    x = torch.rand(1000, 1000, device="shark")
    turns(3, lambda: step(x))
    settle()
    turns(20, lambda: step(x))
    decided = compiler.decisions()
    assert len(decided) == 1
    start_anew()
    turns(3, lambda: step(x))
    settle()
    _, counts = turns(10, lambda: step(x))
    assert counts.compiles == 0
    assert compiler.decisions() == []


def test_small_work_is_not_compiled() -> None:
    x = torch.rand(8, device="shark")
    turns(2000, lambda: x * 2 + 1)
    settle()
    assert torch.shark.metrics().compiles == 0


def test_products_stay_with_the_vendors_kernels() -> None:
    x = torch.rand(300, 300, device="shark")
    turns(4, lambda: x @ x @ x)
    settle()
    _, counts = turns(2, lambda: x @ x @ x)
    assert torch.shark.metrics().compiles == 0
    assert counts.native_steps["aten::mm"] == 4


def test_many_lengths_start_no_storm() -> None:
    for _ in range(6):
        for length in range(200, 240):
            kept = step(torch.rand(length, 1000, device="shark"))
            torch.shark.synchronize()
    assert kept.shape == (239, 1000)
    settle()
    assert 0 < torch.shark.metrics().compiles <= 8


def test_an_error_in_a_region_is_that_of_the_cpu() -> None:
    host = torch.rand(2000, 500)
    x = host.to("shark")

    def pick(rows: torch.Tensor) -> torch.Tensor:
        return step(x.index_select(0, rows)) + step(x)[:3]

    good, bad = torch.tensor([0, 5, 7]).to("shark"), torch.tensor([0, 5, 2000]).to("shark")
    turns(3, lambda: pick(good))
    settle()
    turns(20, lambda: pick(good))
    pick(bad)
    with pytest.raises(IndexError, match=r"out of (range|bounds)"):
        torch.shark.synchronize()
    assert torch.allclose(pick(good).cpu(), step(host[[0, 5, 7]]) + step(host)[:3])


def test_a_loop_over_many_lengths_compiles_two_regions() -> None:
    hosts = [torch.rand(300 + 10 * i, 1000) for i in range(12)]
    tensors = [host.to("shark") for host in hosts]

    def loop(times: int) -> Metrics:
        torch.shark.reset_metrics()
        for _ in range(times):
            for host, x in zip(hosts, tensors, strict=True):
                torch.testing.assert_close(step(x).cpu(), step(host))
        return torch.shark.metrics()

    loop(3)
    settle()
    counts = torch.shark.metrics()
    assert (counts.compiles, counts.plans, counts.failures) == (2, 12, 0)
    counts = loop(4)
    assert counts.compiles == 0
    assert counts.regions > 0
