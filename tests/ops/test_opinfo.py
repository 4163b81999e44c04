"""PyTorch's operator samples on the device under the native policy, against the CPU, bit for bit.

An entry is an operator, a kind of calls (kinds.py) and a dtype. `make test` takes of each operator
and kind two dtypes, float32 and another, and of each the first calls; `make test-full` takes all.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator

import pytest
import torch
from gaps import GAPS
from judge import OPERATORS, verdicts
from kinds import KINDS, Kind
from torch.testing._internal.opinfo.core import OpInfo

from torch_shark import config

# Operators warn of their own deprecation and of resized outputs, on every device.
pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLED_CALLS = 4


@pytest.fixture(autouse=True)
def native_policy() -> Iterator[None]:
    with config.scope(policy="native"):
        yield
        torch.shark.synchronize()


def dtypes_of(op: OpInfo, kind: Kind) -> list[torch.dtype]:
    return sorted(kind.dtypes(op), key=str)


def sampled_dtypes(op: OpInfo, kind: Kind) -> list[torch.dtype]:
    """float32 and another dtype; which one depends on the names."""
    dtypes = dtypes_of(op, kind)
    others = [dtype for dtype in dtypes if dtype != torch.float32]
    if not others:
        return dtypes
    chosen = others[zlib.crc32(f"{op.formatted_name}-{kind.name}".encode()) % len(others)]
    return [dtype for dtype in dtypes if dtype in (torch.float32, chosen)]


def is_wrong(op: OpInfo, kind: Kind, dtype: torch.dtype, most: int | None) -> str | None:
    """What is wrong with the first `most` calls of an entry; a gap must be refused."""
    found = itertools.islice(verdicts(op, kind, dtype), most)
    entry = f"{op.formatted_name}-{kind.name}-{dtype}"
    gap = op.name in GAPS and kind.name != "errors"
    try:
        wrong = {index: text for index, text in enumerate(found) if text is not None}
    except NotImplementedError as error:
        return None if gap else f"{entry} is refused: {error}"
    if gap:
        return f"{entry} is on the gap list and runs"
    return f"{entry}, calls {list(wrong)}: {next(iter(wrong.values()))}" if wrong else None


def check(op: OpInfo, entries: list[tuple[Kind, torch.dtype]], most: int | None = None) -> None:
    wrong = [text for kind, dtype in entries if (text := is_wrong(op, kind, dtype, most))]
    assert not wrong, "\n".join(wrong)
    if op.name in GAPS and any(kind.name != "errors" for kind, _ in entries):
        pytest.xfail(GAPS[op.name])


SAMPLED = [
    pytest.param(op, kind, id=f"{op.formatted_name}-{kind.name}")
    for op in OPERATORS
    for kind in KINDS
    if kind.dtypes(op)
]


@pytest.mark.parametrize(("op", "kind"), SAMPLED)
def test_sample(op: OpInfo, kind: Kind) -> None:
    check(op, [(kind, dtype) for dtype in sampled_dtypes(op, kind)], SAMPLED_CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("op", [pytest.param(op, id=op.formatted_name) for op in OPERATORS])
def test_all(op: OpInfo) -> None:
    check(op, [(kind, dtype) for kind in KINDS for dtype in dtypes_of(op, kind)])
