"""Random programs on the CPU and on the device, under both policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from building import Builder, Dialect, build
from computing import STEPS as COMPUTING
from conditioning import is_well_conditioned
from controlling import STEPS as CONTROLLING
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st
from interpreted import interpreted_regions
from making import STEPS as MAKING
from program import Program, rerun
from viewing import STEPS as VIEWING
from writing import STEPS as WRITING

from torch_shark import config
from torch_shark.lowering import views

TABLE = [*MAKING, *VIEWING, *COMPUTING, *WRITING, *CONTROLLING]
SHAPES = [(2, 3), (3,), (), (2, 3, 4), (1, 2, 2, 2), (3, 3), (0, 3), (3, 1), (2, 0)]
EVERY_DTYPE = Dialect(
    [
        *[torch.float32, torch.int64, torch.bool, torch.float64, torch.int32, torch.uint8],
        *[torch.int8, torch.bfloat16, torch.float16, torch.complex64],
    ],
    SHAPES,
)
# A region costs a good part of a second to compile, so that programs should have many in common.
COMPILED = Dialect([torch.float32, torch.int64, torch.bool], SHAPES[:7])

programs = st.lists(st.binary(min_size=12, max_size=12), min_size=1, max_size=14)
windows = st.sampled_from([1, 2, 4096])


def run(count: int) -> settings:
    """So many programs, the same in every run; a failing one is made as small as can be."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def identical(value: torch.Tensor, expected: torch.Tensor) -> bool:
    """Bit for bit, but for the bits of NaNs."""
    if value.is_complex():
        value, expected = torch.view_as_real(value), torch.view_as_real(expected)
    if not value.is_floating_point():
        return torch.equal(value, expected)
    return bool(((value == expected) | (value.isnan() & expected.isnan())).all())


def close(value: torch.Tensor, expected: torch.Tensor) -> bool:
    """Within the tolerances that torch.testing has for the dtype; whole numbers exactly."""
    try:
        torch.testing.assert_close(value, expected, equal_nan=True)
    except AssertionError:
        return False
    return True


def check_natively(steps: list[bytes], window: int) -> None:
    program = build(steps, EVERY_DTYPE, TABLE)
    with config.scope(policy="native", window_operators=window):
        difference = program.difference("shark", identical)
    assert not difference, f"{difference}\n\n{program.text()}"


def check_interpreted(steps: list[bytes], window: int) -> None:
    check_regions(build(steps, EVERY_DTYPE, TABLE), window)


def check_compiled(steps: list[bytes], window: int) -> None:
    check_regions(build(steps, COMPILED, TABLE), window)


def check_regions(program: Program, window: int) -> None:
    assume(is_well_conditioned(lambda: rerun(program), program.contents, close))
    with config.scope(policy="iree", window_operators=window):
        difference = program.difference("shark", close)
    assert not difference, f"{difference}\n\n{program.text()}"


@pytest.fixture(params=["in large tensors only", "in all tensors"])
def interpreted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Regions are traced and interpreted, which is a hundred times quicker than to compile them.

    What is written to a part of a tensor is copied there after the region, or all of it made anew.
    """
    if request.param == "in all tensors":
        monkeypatch.setattr(views, "_LARGE_BYTES", 0)
    with interpreted_regions():
        yield


@run(400)
@given(programs, windows)
def test_programs_are_as_on_the_cpu_bit_for_bit(steps: list[bytes], window: int) -> None:
    check_natively(steps, window)


@run(30)
@given(programs, windows)
def test_compiled_programs_are_as_on_the_cpu(steps: list[bytes], window: int) -> None:
    check_compiled(steps, window)


@run(100)
@given(steps=programs, window=windows)
def test_interpreted_programs_are_as_on_the_cpu(
    interpreted: None, steps: list[bytes], window: int
) -> None:
    check_interpreted(steps, window)


PARTS = pytest.mark.parametrize("part", range(5))  # of a thousand programs, for as many processes


def check_many(check: Callable[[list[bytes], int], None], part: int) -> None:
    """Check a part's programs, which no other part has."""

    @seed(part)
    @run(1000)
    @given(programs, windows)
    def check_each(steps: list[bytes], window: int) -> None:
        check(steps, window)

    check_each()


@pytest.mark.slow
@PARTS
def test_many_programs_are_as_on_the_cpu_bit_for_bit(part: int) -> None:
    check_many(check_natively, part)


@pytest.mark.slow
@PARTS
def test_many_compiled_programs_are_as_on_the_cpu(part: int) -> None:
    check_many(check_compiled, part)


@pytest.mark.slow
@PARTS
def test_many_interpreted_programs_are_as_on_the_cpu(interpreted: None, part: int) -> None:
    check_many(check_interpreted, part)


def test_a_program_can_fail() -> None:
    """What is told of a difference, by a program whose values on the CPU have been falsified."""
    builder = Builder(EVERY_DTYPE)
    builder.add("t0 = torch.ones(2, device=d)")
    program = builder.finish()
    program.described[0]["t0"]["version"] = 7
    assert "the version of t0 is 0" in program.difference("shark", identical)
    program.described[0]["t0"]["version"] = 0
    assert program.difference("shark", identical) == ""
    program.contents["t0"] = torch.zeros(2)
    assert program.difference("shark", identical).startswith("t0 is\ntensor([1., 1.])")
