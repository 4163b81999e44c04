"""A sample of PyTorch's operators by torch.compile(backend="shark"), static and dynamic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from compare import call, difference
from kinds import values_of
from samples import Arguments
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from torch_shark import config

# Operators warn of their own deprecation, on every device.
pytestmark = pytest.mark.filterwarnings("ignore")

EACH = 17  # of these many operators, one
SAMPLES = 3
KNOWN = [op for op in op_db if op.supports_dtype(torch.float32, "cpu")]


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    with config.scope(policy="native"):
        yield
        torch._dynamo.reset()


def check(op: OpInfo, dynamic: bool) -> None:
    """Compare with the backend that runs what AOTAutograd makes of the operator, eagerly."""
    samples = op.sample_inputs_func(op, "cpu", torch.float32, requires_grad=False)
    given = [Arguments(one.input, one.args, one.kwargs) for one in islice(samples, SAMPLES)]

    def by(backend: str) -> list[Any]:
        torch._dynamo.reset()
        compiled = torch.compile(op.op, backend=backend, dynamic=dynamic)
        return [call(compiled, arguments.place("cpu")) for arguments in given]

    for arguments, actual, expected in zip(given, by("shark"), by("aot_eager"), strict=True):
        found = difference(expected, actual, values_of(op))
        assert found is None, f"{arguments.shapes()}: {found}"


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("op", KNOWN[::EACH], ids=lambda op: op.formatted_name)
def test_a_sample_of_operators(op: OpInfo, dynamic: bool) -> None:
    check(op, dynamic)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("op", KNOWN, ids=lambda op: op.formatted_name)
def test_all_operators(op: OpInfo, dynamic: bool) -> None:
    check(op, dynamic)
