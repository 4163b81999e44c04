"""A program's values step by step, as copies, and what the device did for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

from torch_shark.metrics import Metrics

Program = Callable[[str], Iterator[Any]]

# Of a program that takes long to compile, `make test` follows only the native run.
slow_when_compiled = pytest.mark.parametrize(
    "policy", ["native", pytest.param("iree", marks=pytest.mark.slow)], indirect=True
)


@dataclass(frozen=True)
class Step:
    """What the device did between two values that a program gave.

    Args:
        windows: windows submitted.
        regions: runs of compiled regions.
        compiles: regions compiled.
        native: operators that the CPU's own kernels ran, by name.
    """

    windows: int
    regions: int
    compiles: int
    native: Counter[str]


def difference(after: Metrics, before: Metrics) -> Step:
    """What was counted between two readings."""
    return Step(
        after.windows - before.windows,
        after.regions - before.regions,
        after.compiles - before.compiles,
        Counter(after.native_steps) - Counter(before.native_steps),
    )


@dataclass(frozen=True)
class Copy:
    """A tensor as it was when the program gave it; strides of dimensions of size 1 are left out."""

    content: torch.Tensor
    strides: tuple[int, ...]


def copied(value: Any) -> dict[str, Any]:
    """The numbers and tensors in a value, as they are now, by their place in it."""
    found = {}
    for path, leaf in tree_flatten_with_path(value)[0]:
        if isinstance(leaf, torch.Tensor):
            sizes = zip(leaf.shape, leaf.stride(), strict=True)
            content = leaf.detach().clone() if leaf.is_cpu else leaf.detach().cpu()
            found[keystr(path)] = Copy(content, tuple(step for size, step in sizes if size > 1))
        else:
            found[keystr(path)] = leaf
    return found


def trace(program: Program, device: str) -> tuple[list[dict[str, Any]], list[Step]]:
    """Run a program from a fixed seed: its values, and the counters between them."""
    torch.manual_seed(0)
    values, steps = [], []
    torch.shark.synchronize()
    before = torch.shark.metrics()
    for value in program(device):
        torch.shark.synchronize()
        steps.append(difference(torch.shark.metrics(), before))
        values.append(copied(value))
        before = torch.shark.metrics()
    return values, steps


def assert_follows(
    actual: list[dict[str, Any]], expected: list[dict[str, Any]], tolerance: dict[str, float]
) -> None:
    """Assert that two runs gave the same values, of the same dtypes and strides, at each step."""
    assert len(actual) == len(expected)
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        assert list(ours) == list(theirs), f"value {i}"
        for place, wanted in theirs.items():
            result, where = ours[place], f"value {i}, {place}"
            assert type(result) is type(wanted), where
            if isinstance(wanted, Copy):
                assert result.strides == wanted.strides, where
                assert_near(result.content, wanted.content, where, tolerance)
            elif isinstance(wanted, float):
                assert_near(result, wanted, where, tolerance)
            else:
                assert result == wanted, where


def assert_near(actual: Any, expected: Any, where: str, tolerance: dict[str, float]) -> None:
    """`torch.testing.assert_close` that says which value it is about."""
    torch.testing.assert_close(
        actual, expected, **tolerance, equal_nan=True, msg=lambda text: f"{where}: {text}"
    )
