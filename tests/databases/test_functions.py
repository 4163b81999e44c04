"""PyTorch's own custom Functions and operators, which compute with numpy, against the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from against_cpu import compare, gradients, moved
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves

# ExpMarkDirty writes to a numpy array, which on a device is that of a copy.
OPERATORS = [op for op in [*autograd_function_db, *custom_op_db] if "ExpMarkDirty" not in op.name]
DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64)

# PyTorch says that its way of making tensors of numpy arrays in vmap is deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")


def each(keep: Any, dtypes: tuple[torch.dtype, ...] = DTYPES) -> Any:
    return pytest.mark.parametrize(
        ("op", "dtype"),
        [
            pytest.param(op, dtype, id=f"{op.name}-{str(dtype)[6:]}")
            for op in OPERATORS
            for dtype in dtypes
            if keep(op) and op.supports_dtype(dtype, "cpu")
        ],
    )


def samples(op: OpInfo, dtype: torch.dtype, *, requires_grad: bool) -> list[SampleInput]:
    torch.manual_seed(0)
    made = op.sample_inputs_func(op, torch.device("cpu"), dtype, requires_grad)
    return list(made)


def arguments_on(sample: SampleInput, device: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return moved(((sample.input, *sample.args), sample.kwargs), device)


def tensors_in(*trees: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(trees) if isinstance(leaf, torch.Tensor)]


@each(lambda op: True)
def test_forward(op: OpInfo, dtype: torch.dtype) -> None:
    for sample in samples(op, dtype, requires_grad=False):

        def program(device: str, sample: SampleInput = sample) -> Any:
            args, kwargs = arguments_on(sample, device)
            return op.op(*args, **kwargs), args, kwargs

        compare(program, "native")


@each(lambda op: op.supports_autograd, (torch.float32, torch.float64))
def test_gradients(op: OpInfo, dtype: torch.dtype) -> None:
    for sample in samples(op, dtype, requires_grad=True):

        def program(device: str, sample: SampleInput = sample) -> Any:
            args, kwargs = arguments_on(sample, device)
            result = op.op(*args, **kwargs)
            inputs = [leaf for leaf in tensors_in(args, kwargs) if leaf.requires_grad]
            results = [leaf for leaf in tensors_in(result) if leaf.is_floating_point()]
            first = gradients(results, inputs, create_graph=op.supports_gradgrad)
            again = [leaf for leaf in first if leaf is not None]
            return result, first, gradients(again, inputs) if op.supports_gradgrad else None

        compare(program, "native")


@each(lambda op: op.supports_forward_ad, (torch.float32, torch.float64))
def test_forward_mode(op: OpInfo, dtype: torch.dtype) -> None:
    for sample in samples(op, dtype, requires_grad=False):

        def program(device: str, sample: SampleInput = sample) -> Any:
            args, kwargs = arguments_on(sample, device)
            with forward_ad.dual_level():
                first = forward_ad.make_dual(args[0], args[0].cos())
                result = tensors_in(op.op(first, *args[1:], **kwargs))
                return [tuple(forward_ad.unpack_dual(leaf)) for leaf in result]

        compare(program, "native")


# They have no rule for batches, give what is no tensor, or take lists of tensors.
NOT_BATCHED = ("NotComposable", "Nonzero", "NMS", "WithInt", "NumpyCat")


@each(lambda op: not any(part in op.name for part in NOT_BATCHED), (torch.float32,))
def test_vmap(op: OpInfo, dtype: torch.dtype) -> None:
    for sample in samples(op, dtype, requires_grad=False):

        def program(device: str, sample: SampleInput = sample) -> Any:
            args, kwargs = arguments_on(sample, device)
            batch = torch.stack([args[0], args[0] * 2, args[0] - 1])
            return torch.func.vmap(lambda first: op.op(first, *args[1:], **kwargs))(batch)

        compare(program, "native")
