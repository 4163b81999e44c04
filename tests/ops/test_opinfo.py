"""PyTorch's operator samples on the device under the native policy, against the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from gaps import GAPS
from samples import Arguments, call, difference, sample_arguments
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves

from torch_shark import config

# Operators warn of their own deprecation and of resized outputs, on every device.
pytestmark = pytest.mark.filterwarnings("ignore")

DTYPES = (torch.float32, torch.int64)
# Compiled for CUDA at run time; the CPU has none.
OPERATORS = [op for op in op_db if not op.name.startswith("jiterator")]
# Results whose values nobody has set.
WITHOUT_VALUES = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty")


@pytest.fixture(autouse=True)
def native_policy() -> Iterator[None]:
    with config.scope(policy="native"):
        yield
        torch.shark.synchronize()


def each(keep: Callable[[OpInfo], bool], dtypes: tuple[torch.dtype, ...]) -> Any:
    """Parametrise by operator and dtype; a gap must raise NotImplementedError."""
    entries = []
    for op in OPERATORS:
        gap = GAPS.get(op.name)
        marks = (
            [pytest.mark.xfail(reason=gap, raises=NotImplementedError, strict=True)] if gap else []
        )
        for dtype in dtypes:
            if keep(op) and op.supports_dtype(dtype, "cpu"):
                name = f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}"
                entries.append(pytest.param(op, dtype, marks=marks, id=name))
    return pytest.mark.parametrize(("op", "dtype"), entries)


def placed(op: OpInfo, arguments: Arguments, device: str, **options: bool) -> Arguments:
    """The arguments on a device. The places where tensor_split splits are a CPU tensor on each."""
    result = arguments.place(device, **options)
    if op.name == "tensor_split":
        return Arguments(result.first, arguments.others, result.named)
    return result


def depends_on_data(step: str) -> bool:
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


def assert_equal_on_device(
    op: OpInfo, function: Callable[..., Any], arguments: Arguments, *, values: bool = True
) -> None:
    """Call twice on the device: first calls may run at once, known ones are all recorded."""
    host = placed(op, arguments, "cpu")
    expected = call(function, host)
    steps_before = None
    for first in (True, False):
        device = placed(op, arguments, "shark")
        torch.shark.synchronize()
        torch.shark.reset_metrics()
        actual = call(function, device)
        torch.shark.synchronize()
        counts = torch.shark.metrics()
        assert difference(expected, actual, values=values) is None
        if isinstance(expected, type):
            continue
        assert difference(host.tree(), device.tree()) is None
        steps = Counter(counts.native_steps)
        assert steps_before in (None, steps)
        steps_before = steps
        if (
            not first and host.shapes() == arguments.shapes()
        ):  # what resizes an operand is not foretold
            at_once = steps.total() - counts.recorded
            assert at_once <= sum(n for step, n in steps.items() if depends_on_data(step))


@each(lambda op: True, DTYPES)
def test_forward(op: OpInfo, dtype: torch.dtype) -> None:
    for arguments in sample_arguments(op, dtype):
        assert_equal_on_device(
            op, op.get_op(), arguments, values=not op.name.startswith(WITHOUT_VALUES)
        )


@each(lambda op: op.inplace_variant is not None, DTYPES)
def test_in_place(op: OpInfo, dtype: torch.dtype) -> None:
    for arguments in sample_arguments(op, dtype):
        assert_equal_on_device(op, op.inplace_variant, arguments)


def outputs_like(results: Any, kind: str, device: str) -> Any:
    """Tensors for `out=`: of the right geometry, with gaps in memory, or to be resized."""

    def like(result: torch.Tensor) -> torch.Tensor:
        if kind == "same":
            return torch.empty_strided(
                result.shape, result.stride(), dtype=result.dtype, device=device
            ).fill_(7)
        if kind == "strided":
            return torch.full((*result.shape, 2), 7, dtype=result.dtype, device=device)[..., 0]
        return torch.empty(0, dtype=result.dtype, device=device)

    if isinstance(results, torch.Tensor):
        return like(results)
    return tuple(like(result) for result in results)


@each(lambda op: op.supports_out, DTYPES)
def test_out(op: OpInfo, dtype: torch.dtype) -> None:
    for arguments in sample_arguments(op, dtype):
        results = call(op.get_op(), placed(op, arguments, "cpu"))
        if not all(isinstance(result, torch.Tensor) for result in tree_leaves(results)):
            continue
        for kind in ("same", "strided", "resized"):

            def function(*args: Any, kind: str = kind, like: Any = results, **named: Any) -> Any:
                device = next(a for a in tree_leaves((args, named)) if isinstance(a, torch.Tensor))
                out = outputs_like(like, kind, device.device.type)
                return op.get_op()(*args, **named, out=out), out

            assert_equal_on_device(op, function, arguments, values="empty" not in op.name)


def gradient_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the gradients of a call's tensors, for results weighted by fixed numbers."""

    def differentiate(*args: Any, **named: Any) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, named)) if isinstance(leaf, torch.Tensor)]
        results = tree_leaves(function(*args, **named))
        outputs = [out for out in results if isinstance(out, torch.Tensor) and out.requires_grad]
        weights = [
            torch.arange(1, out.numel() + 1, dtype=torch.float64)
            .sin()
            .reshape(out.shape)
            .to(out.device, out.dtype)
            for out in outputs
        ]
        inputs = [tensor for tensor in tensors if tensor.requires_grad]
        return torch.autograd.grad(outputs, inputs, weights, allow_unused=True) if outputs else ()

    return differentiate


@each(lambda op: op.supports_autograd, (torch.float32,))
def test_gradient(op: OpInfo, dtype: torch.dtype) -> None:
    gradient = gradient_of(op.get_op())
    for arguments in sample_arguments(op, dtype, requires_grad=True):
        expected = call(gradient, placed(op, arguments, "cpu", requires_grad=True))
        for _ in range(2):
            actual = call(gradient, placed(op, arguments, "shark", requires_grad=True))
            assert difference(expected, actual) is None
