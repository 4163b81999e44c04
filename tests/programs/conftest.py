"""Programs are followed step by step, on the CPU and on the device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torch_shark import config

sys.path.insert(0, str(Path(__file__).parent))

from following import Program, Step, assert_follows, trace

EXACT = {"rtol": 0.0, "atol": 0.0}

# Compiled sums are taken in another order, and an optimizer that divides by a gradient's size makes
# of a rounding error up to some hundredths of its learning rate.
ROUNDED = {"rtol": 1e-4, "atol": 5e-5}


@pytest.fixture
def follow(policy: str) -> Callable[..., list[Step]]:
    """Return `run(program, steady, windows, native)`: values compared, counters checked, returned.

    On the device a program runs twice: natively, where first calls of operators run at once, and
    then under the policy, all recorded. Its values are bit-equal to the CPU's natively, and near
    them (`ROUNDED`) where they are compiled. In the steps `steady` nothing new happens any more:
    each takes so many `windows`, and none compiles. `native` are the operators in them that are not
    compiled.
    """

    def run(
        program: Program, steady: slice, windows: int, native: frozenset[str] | set[str]
    ) -> list[Step]:
        expected = trace(program, "cpu")[0]
        with config.scope(policy="native"):
            assert_follows(trace(program, "shark")[0], expected, EXACT)
        values, steps = trace(program, "shark")
        assert_follows(values, expected, EXACT if policy == "native" else ROUNDED)
        for step in steps[steady]:
            assert step.windows == windows
            assert step.compiles == 0
            if policy == "native":
                assert step.regions == 0
            else:
                assert step.regions > 0
                assert set(step.native) == native
        return steps

    return run
