"""The kinds of calls that each operator is tried with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from compare import Values, call
from gaps import LATE_ERRORS, UNSETTLED
from samples import Arguments, arguments_of, sample_arguments
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves, tree_map

# Results whose values nobody has set.
WITHOUT_VALUES = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty")


@dataclass(frozen=True)
class Call:
    """One call, to be made on both devices."""

    function: Callable[..., Any]
    arguments: Arguments
    values: Values = Values.BITS
    gradients: bool = False  # of arguments that require them
    recorded: bool = False  # once its metadata is known, nothing may run at once
    late_error: bool = False  # what is wrong shows when it runs


@dataclass(frozen=True)
class Kind:
    """A kind of calls, and the dtypes in which an operator has it."""

    name: str
    dtypes: Callable[[OpInfo], set[torch.dtype]]
    calls: Callable[[OpInfo, torch.dtype], Iterator[Call]]


def placed(op: OpInfo, one: Call, device: str) -> Arguments:
    """A call's arguments on a device. Where tensor_split splits is a CPU tensor on each."""
    result = one.arguments.place(device, requires_grad=one.gradients)
    if op.name == "tensor_split":
        return Arguments(result.first, one.arguments.others, result.named, result.settle)
    return result


def values_of(op: OpInfo) -> Values:
    if op.name.startswith(WITHOUT_VALUES):
        return Values.ANY
    return Values.CLOSE if op.name in UNSETTLED else Values.BITS


def forward(op: OpInfo, dtype: torch.dtype) -> Iterator[Call]:
    for arguments in sample_arguments(op, dtype):
        yield Call(op.get_op(), arguments, values=values_of(op), recorded=True)


def noncontiguous(op: OpInfo, dtype: torch.dtype) -> Iterator[Call]:
    for arguments in sample_arguments(op, dtype):
        yield Call(op.get_op(), arguments.noncontiguous(), values=values_of(op), recorded=True)


def in_place(op: OpInfo, dtype: torch.dtype) -> Iterator[Call]:
    for arguments in sample_arguments(op, dtype):
        yield Call(op.inplace_variant, arguments, recorded=True)


OTHER_DTYPES = {torch.float32: torch.float64, torch.float64: torch.float32}


def outputs_like(results: Any, kind: str, device: str) -> Any:
    """Tensors for `out=`: of the right geometry, with gaps in memory, to be resized, or cast."""

    def like(result: torch.Tensor) -> torch.Tensor:
        if kind == "same":
            return torch.empty_strided(
                result.shape, result.stride(), dtype=result.dtype, device=device
            ).fill_(7)
        if kind == "strided":
            return torch.full((*result.shape, 2), 7, dtype=result.dtype, device=device)[..., 0]
        if kind == "cast":
            dtype = OTHER_DTYPES.get(result.dtype, torch.int64)
            return torch.full(result.shape, 1, dtype=dtype, device=device)
        return torch.empty(0, dtype=result.dtype, device=device)

    if isinstance(results, torch.Tensor):
        return like(results)
    return tuple(like(result) for result in results)


def resolved(result: Any) -> Any:
    return result.resolve_conj() if isinstance(result, torch.Tensor) else result


def with_out(op: OpInfo, results: Any, kind: str) -> Callable[..., Any]:
    def function(*args: Any, **named: Any) -> Any:
        device = next(leaf for leaf in tree_leaves((args, named)) if isinstance(leaf, torch.Tensor))
        out = outputs_like(results, kind, device.device.type)
        # A kernel may leave its output conjugated lazily or not: it is the values that count.
        return tree_map(resolved, (op.get_op()(*args, **named, out=out), out))

    return function


def are_tensors(results: Any) -> bool:
    leaves = tree_leaves(results)
    return bool(leaves) and all(isinstance(leaf, torch.Tensor) for leaf in leaves)


def out(op: OpInfo, dtype: torch.dtype) -> Iterator[Call]:
    for arguments in sample_arguments(op, dtype):
        results = call(op.get_op(), placed(op, Call(op.get_op(), arguments), "cpu"))
        if not are_tensors(results) or not arguments.shapes():
            continue
        values = values_of(op)
        for kind in ("same", "strided", "resized", "cast"):
            if kind != "cast" or values is not Values.CLOSE:  # close in which dtype?
                yield Call(with_out(op, results, kind), arguments, values=values, recorded=True)


def errors(op: OpInfo, dtype: torch.dtype) -> Iterator[Call]:
    torch.manual_seed(0)
    for error in op.error_inputs_func(op, "cpu"):
        arguments = arguments_of(error.sample_input)
        if any(isinstance(x, torch.Tensor) and not x.is_cpu for x in tree_leaves(arguments.tree())):
            continue
        yield Call(op.get_op(), arguments, late_error=op.name in LATE_ERRORS)


def weight_for(result: torch.Tensor) -> torch.Tensor:
    """Fixed numbers by which a result is weighted."""
    weights = torch.arange(1, result.numel() + 1, dtype=torch.float64).sin().reshape(result.shape)
    return weights.to(result.device, result.dtype)


def differentiable(tree: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor) and x.requires_grad]


def gradient_of(
    op: OpInfo, function: Callable[..., Any], arguments: Arguments, *, twice: bool = False
) -> Callable[..., Any]:
    """Return the gradients of a call's tensors, for results weighted by fixed numbers."""

    def differentiate(*args: Any, **named: Any) -> Any:
        inputs = differentiable((args, named))
        results = op.gradcheck_wrapper(function, *args, **named)
        outputs = differentiable(arguments.settle(results))
        if not outputs or not inputs:
            return ()
        weights = [weight_for(output) for output in outputs]
        if not twice:
            return torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
        for weight in weights:
            weight.requires_grad_()
        first = torch.autograd.grad(outputs, inputs, weights, allow_unused=True, create_graph=True)
        again = differentiable(first)
        if not again:
            return first
        second = torch.autograd.grad(
            again, [*inputs, *weights], [weight_for(each) for each in again], allow_unused=True
        )
        return first, second

    return differentiate


def gradients(op: OpInfo, dtype: torch.dtype, **options: bool) -> Iterator[Call]:
    for arguments in sample_arguments(op, dtype, requires_grad=True):
        function = gradient_of(op, op.get_op(), arguments, **options)
        yield Call(function, arguments, values=values_of(op), gradients=True)


def gradient(op: OpInfo, dtype: torch.dtype) -> Iterator[Call]:
    return gradients(op, dtype)


def double_gradient(op: OpInfo, dtype: torch.dtype) -> Iterator[Call]:
    return gradients(op, dtype, twice=True)


def on_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Leaves of a graph cannot be changed in place: a copy can."""

    def changed(first: Any, *args: Any, **named: Any) -> Any:
        lists = isinstance(first, (list, tuple))
        copy = [each.clone() for each in first] if lists else first.clone()
        result = function(copy, *args, **named)
        return copy if result is None else result

    return changed


def in_place_gradient(op: OpInfo, dtype: torch.dtype) -> Iterator[Call]:
    for arguments in sample_arguments(op, dtype, requires_grad=True):
        function = gradient_of(op, on_copy(op.inplace_variant), arguments)
        yield Call(function, arguments, gradients=True)


TWICE = {torch.float32, torch.float64, torch.complex128}


def forward_dtypes(op: OpInfo) -> set[torch.dtype]:
    return set(op.supported_dtypes("cpu"))


def backward_dtypes(op: OpInfo) -> set[torch.dtype]:
    return set(op.supported_backward_dtypes("cpu")) if op.supports_autograd else set()


def where(
    keep: Callable[[OpInfo], bool], dtypes: Callable[[OpInfo], set[torch.dtype]]
) -> Callable[[OpInfo], set[torch.dtype]]:
    return lambda op: dtypes(op) if keep(op) else set()


KINDS = (
    Kind("forward", forward_dtypes, forward),
    Kind("noncontiguous", forward_dtypes, noncontiguous),
    Kind("in_place", where(lambda op: op.inplace_variant is not None, forward_dtypes), in_place),
    Kind("out", where(lambda op: op.supports_out, forward_dtypes), out),
    Kind("errors", lambda op: {torch.float32} if op.error_inputs_func else set(), errors),
    Kind("gradient", backward_dtypes, gradient),
    Kind(
        "in_place_gradient",
        where(
            lambda op: op.inplace_variant is not None and op.supports_inplace_autograd,
            lambda op: backward_dtypes(op) & TWICE,
        ),
        in_place_gradient,
    ),
    Kind(
        "double_gradient",
        where(lambda op: op.supports_gradgrad, lambda op: backward_dtypes(op) & TWICE),
        double_gradient,
    ),
)
