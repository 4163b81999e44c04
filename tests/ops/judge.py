"""All entries, operator by kind by dtype, and the verdict on each: the device against the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeGuard

import torch
from compare import Raised, call, difference, result_of
from kinds import KINDS, Call, Kind, placed
from torch.testing._internal import common_methods_invocations as database
from torch.testing._internal.opinfo.core import OpInfo

OPERATORS: list[OpInfo] = [
    # Compiled for CUDA at run time; the CPU has none.
    *(op for op in database.op_db if not op.name.startswith("jiterator")),
    *database.foreach_unary_op_db,
    *database.foreach_binary_op_db,
    *database.foreach_pointwise_op_db,
    *database.foreach_reduce_op_db,
    *database.foreach_other_op_db,
]


def entries() -> Iterator[tuple[OpInfo, Kind, torch.dtype, str]]:
    """Each operator with each kind of calls in each dtype, and the entry's name."""
    for op in OPERATORS:
        for kind in KINDS:
            for dtype in sorted(kind.dtypes(op), key=str):
                name = f"{op.formatted_name}-{kind.name}-{str(dtype).removeprefix('torch.')}"
                yield op, kind, dtype, name


def verdicts(op: OpInfo, kind: Kind, dtype: torch.dtype) -> Iterator[str | None]:
    """For each call of an entry: what is wrong with it, or None."""
    for one in kind.calls(op, dtype):
        yield verdict(op, one)


def verdict(op: OpInfo, one: Call) -> str | None:
    """Call twice on the device: first calls may run at once, known ones are all recorded.

    Raises NotImplementedError if only the device does not do it.
    """
    host = placed(op, one, "cpu")
    expected = call(one.function, host)
    steps_before = None
    for first in (True, False):
        device = placed(op, one, "shark")
        if one.recorded:
            torch.shark.synchronize()
            torch.shark.reset_metrics()
        actual = call(one.function, device, "shark")
        if _is_refused(actual) and actual != expected:
            raise NotImplementedError(actual.text)
        if isinstance(expected, Raised):
            if found := _difference_of_errors(expected, actual, late=one.late_error):
                return found
            torch.shark.synchronize()
            continue
        torch.shark.synchronize()
        counts = torch.shark.metrics() if one.recorded else None
        if found := difference(expected, actual, one.values):
            return found
        if not one.gradients and (found := difference(host.tree(), device.tree(), one.values)):
            return f"arguments afterwards: {found}"
        if counts is None:
            continue
        steps = Counter(counts.native_steps)
        if steps_before not in (None, steps):
            return f"first took the operators {steps_before}, then {steps}"
        steps_before = steps
        # What resizes an operand is not foretold.
        if not first and host.shapes() == one.arguments.shapes():
            at_once = steps.total() - counts.recorded
            if at_once > sum(n for step, n in steps.items() if _depends_on_data(step)):
                return f"{at_once} operators ran at once, of {steps}"
    return None


def _is_refused(result: object) -> TypeGuard[Raised]:
    return isinstance(result, Raised) and result.type is NotImplementedError


def _difference_of_errors(expected: Raised, actual: object, *, late: bool) -> str | None:
    if late and not isinstance(actual, Raised):
        actual = result_of(torch.shark.synchronize)
        if isinstance(actual, Raised) and actual.text.startswith(expected.text):
            actual = Raised(actual.type, expected.text)  # it also names the operator
    return None if actual == expected else f"expected {expected}, got {actual}"


def _depends_on_data(step: str) -> bool:
    """Whether an operator has to run before its result's geometry, or an error, is known."""
    if not step.startswith("aten::"):
        return False
    name, _, overload = step.removeprefix("aten::").partition(".")
    operator = getattr(getattr(torch.ops.aten, name), overload or "default")
    returns = [str(result.type) for result in operator._schema.returns]
    return (
        torch.Tag.data_dependent_output in operator.tags
        or torch.Tag.dynamic_output_shape in operator.tags
        or not all("Tensor" in each for each in returns)
        or not returns
    )
