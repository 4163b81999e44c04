"""Regions that differ in one size are compiled once: the values of every size are the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from checking import MemoryStore, in_process
from recording import alive_values, record, run_plan

from torch_shark.families import MOST_SIZES
from torch_shark.lowering.forms import Form
from torch_shark.lowering.interface import RegionInterface
from torch_shark.lowering.sizes import size_of, unify
from torch_shark.planner import Planner
from torch_shark.runtime.executable import Executable
from torch_shark.targets import get_target

BIAS, MATRIX = torch.randn(24), torch.randn(24, 24)


def new_planner(store: MemoryStore | None = None) -> Planner:
    return Planner(get_target("cpu"), in_process(), Executable, store, any_size=True)


def check(planner: Planner, function: Callable[..., Any], x: torch.Tensor) -> None:
    """The window's values are right, and all of it is compiled, but for what has no elements."""
    recording = record(function, x)
    run = run_plan(planner.plan(recording.record), recording)
    assert not run.native or len(x) == 1
    for found, expected in alive_values(run, recording):
        torch.testing.assert_close(found, expected, equal_nan=True)


PROGRAMS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: torch.nn.functional.gelu(x + BIAS) * 2,
    lambda x: [(x * 3).mean(-1), x.amax(1)],
    lambda x: [x.sum(0), x.relu()],
    lambda x: torch.softmax(x, -1),
    lambda x: torch.nn.functional.layer_norm(x, (24,), BIAS),
    lambda x: x @ MATRIX + BIAS,
    lambda x: x.t() + 1,
    lambda x: (x[1:] - x[:-1]) * 0.5,
    lambda x: [x[::2] + 1, x[:, ::3] - 1],
    lambda x: torch.cat([x, x * 2]),
    lambda x: torch.cat([x, x * 2], 1),
    lambda x: x.reshape(-1, 6).sigmoid().reshape(-1, 4, 6).permute(1, 0, 2) + 1,
    lambda x: torch.nn.functional.pad(x, (1, 2, 3, 4)) * 2,
    lambda x: x.view(-1, 4, 6).transpose(0, 1).contiguous() * 3,
    lambda x: torch.where(x > 0, x, x * 0.1).add_(1),
    lambda x: x + torch.arange(x.shape[0], dtype=torch.float32)[:, None],
    lambda x: x.cumsum(0),
    lambda x: (x.double() * 2).float().to(torch.bfloat16) + 1,
    lambda x: (x > 0.5) & (x < 1),
    lambda x: (x * 10).long() * 3,
    lambda x: x.expand(3, *x.shape) + 1,
    lambda x: x.flip(0) * 2,
    lambda x: x.tril() + 1,
    lambda x: x.mul_(2).add_(x),
    lambda x: (x @ x.t()) / 24,
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_values_of_every_size(number: int) -> None:
    planner = new_planner()
    for size in (40, 41, 7, 128, 24, 2, 1, 64):
        check(planner, PROGRAMS[number], torch.randn(size, 24))
    assert len(planner.stats.failures) <= 2  # what is refused is not tried again for each size


@pytest.mark.parametrize("number", [0, 4, 5, 6, 7, 11, 14, 17, 23])
def test_one_executable_serves_all_but_the_first(number: int) -> None:
    planner = new_planner()
    for size in (40, 41, 17, 128, 64):
        check(planner, PROGRAMS[number], torch.randn(size, 24))
    assert planner.stats.compiles == 2


def test_a_later_process_compiles_nothing_for_sizes_it_has_never_seen() -> None:
    store = MemoryStore()
    for size in (40, 41):
        check(new_planner(store), PROGRAMS[0], torch.randn(size, 24))
    planner = new_planner(store)
    check(planner, PROGRAMS[0], torch.randn(40, 24))
    check(planner, PROGRAMS[0], torch.randn(41, 24))
    planner = new_planner(store)
    check(planner, PROGRAMS[0], torch.randn(99, 24))
    assert planner.stats.compiles == 1  # each process had but one size so far
    both = new_planner(store)
    for size in (300, 301):
        check(both, PROGRAMS[0], torch.randn(size, 24))
    assert both.stats.compiles == 2
    later = new_planner(store)
    check(later, PROGRAMS[0], torch.randn(77, 24))
    assert later.stats.compiles == 0


def test_sizes_that_differ_in_two_ways_are_bounded() -> None:
    planner = new_planner()
    for i in range(MOST_SIZES + 2):
        recording = record(lambda x: x * 2 + 1, torch.randn(3 + i * i, 5 + i))
        run_plan(planner.plan(recording.record), recording)
    assert planner.stats.compiles <= MOST_SIZES + 1


@pytest.mark.parametrize(
    ("one", "other", "forms"),
    [
        ((40, 8, 320), (41, 8, 328), (Form(1, 1, 0), 8, Form(8, 1, 0))),
        ((40, 40, 1600), (41, 41, 1681), (Form(1, 1, 0), Form(1, 1, 0), Form(1, 2, 0))),
        ((40, 40, 39), (41, 41, 40), (Form(1, 1, 0), Form(1, 1, 0), Form(1, 1, -1))),
        ((40, 7), (40, 7), None),
        ((1, 8), (2, 16), None),  # 0 and 1 are sizes of their own
    ],
)
def test_forms(one: tuple[int, ...], other: tuple[int, ...], forms: Any) -> None:
    assert unify(one, other) == forms
    if forms is not None:
        assert (size_of(forms, one), size_of(forms, other)) == (one[0], other[0])
        assert size_of(forms, (*one[:-1], one[-1] + 1)) is None


def test_a_guard_keeps_sizes_out() -> None:
    interface = RegionInterface((), (), guard="L['t0'] % 2 == 0 and 3 <= L['t0']")
    assert [interface.covers(size) for size in (2, 3, 4, 5, 6)] == [False, False, True, False, True]
    assert not RegionInterface((), (), guard="PythonMod(L['t0'], 2) == 0").covers(4)
