"""PyTorch's operator samples compiled: no wrong value, and what compiles is what the table says.

`make test` runs every `SHARE`-th group of cases, the full tests run all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from compiled import Group, differences, groups
from lowered import TABLE, merged, read, table, unknown

SHARE = 40

# Operators warn of their own deprecation and of resized outputs, on every device.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _nothing_pending() -> Iterator[None]:
    yield
    torch.shark.synchronize()


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, id=group.name, marks=[pytest.mark.slow] if i % SHARE else [])
        for i, group in enumerate(groups())
    ],
)
def test_values(group: Group) -> None:
    seen: dict[str, set[str]] = {}
    assert differences(group.cases, seen) == []
    assert unknown(merged([(group.column, seen)])) == []


def test_table_is_current() -> None:
    assert TABLE.read_text() == table(*read())
