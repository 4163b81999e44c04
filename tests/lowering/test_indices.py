"""Bad indices raise IndexError before a region runs; good ones cost no native step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from checking import check
from recording import record, run_plan
from torch.nn import functional

from torch_shark.plan import IndexCheck, RegionStep, Step
from torch_shark.planner import Planner

_READERS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("embedding", lambda x, i: functional.embedding(i, x)),
    ("index_select", lambda x, i: x.index_select(0, i)),
    ("gather", lambda x, i: x.gather(0, i[:, None])),
    ("index", lambda x, i: x[i]),
    ("index_add", lambda x, i: x.index_add(0, i, torch.ones(2, 3))),
    ("index_put", lambda x, i: x.index_put((i,), torch.ones(3))),
]


@pytest.mark.parametrize(("name", "read"), _READERS, ids=[name for name, _ in _READERS])
def test_bad_indices(planner: Planner, name: str, read: Callable[[Any, Any], Any]) -> None:
    x, good = torch.randn(4, 3), torch.tensor([0, 3])
    recording = record(read, x, good)
    plan = planner.plan(recording.record)
    index = _only_check(plan)
    assert (index.low, index.high) == (-4 if name in ("index", "index_put") else 0, 4)
    assert run_plan(plan, recording).regions == 1
    for bad in (4, -5, 10**12):
        recording.before[index.ref.storage].view(torch.int64)[1] = bad
        with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
            run_plan(plan, recording)


def _only_check(plan: list[Step]) -> IndexCheck:
    (region,) = plan
    assert isinstance(region, RegionStep)
    (index,) = region.checks
    return index


def test_negative_indices_count_from_the_end(planner: Planner) -> None:
    check(planner, lambda x, i: [x[i], x[:, i]], torch.randn(4, 4), torch.tensor([-1, 2, -4]))


def test_an_index_computed_in_the_window_is_checked_before_its_use(planner: Planner) -> None:
    run = check(planner, lambda x, i: x[i * 2 - 1] * 3, torch.randn(8, 2), torch.tensor([1, 2]))
    assert (run.regions, run.compiled) == (2, 4)


def test_targets_that_are_ignored_are_no_error(planner: Planner) -> None:
    scores, target = torch.randn(3, 5), torch.tensor([1, -100, 4])
    recording = record(lambda s, t: functional.nll_loss(s, t), scores, target)
    plan = planner.plan(recording.record)
    run_plan(plan, recording)
    recording.before[_only_check(plan).ref.storage].view(torch.int64)[0] = 5
    with pytest.raises(IndexError):
        run_plan(plan, recording)
