"""Operator samples compiled: chosen, joined into one region, run, compared and watched.

A compilation costs half a second however little is compiled. So the tensors of all samples of an
operator are views of one storage that the window itself writes: that makes one region of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from compare import Raised, call
from gaps import GAPS
from kinds import WITHOUT_VALUES, gradient_of
from samples import SEED, Arguments, arguments_of, laid_out_alike, sample_arguments
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_leaves, tree_map

from tests.exactness import is_as_near
from torch_shark import compiler, config
from torch_shark.plan import Step
from torch_shark.record import WindowRecord

DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.float16)
# Of an operator's samples so many, evenly spread, and a quarter of that for each kind of edge.
MOST_SAMPLES = 4
# Cases that are compiled together.
GROUP = 8
# Samples of more elements only cost time.
MOST_ELEMENTS = 20_000
_MOST_GENERATED = 1500
_ALIGNMENT = 16

# Compiled for CUDA at run time, and views whose places are a tensor on the CPU.
_WITHOUT_CASES = ("jiterator", "tensor_split")
_WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}

COMPILED = "compiled"
AT_ONCE = "it runs at once"


@dataclass(frozen=True)
class Case:
    """One operator in one dtype, forward or with gradients."""

    op: OpInfo
    dtype: torch.dtype
    gradients: bool

    def __str__(self) -> str:
        return f"{self.op.formatted_name}-{self.column}"

    @property
    def column(self) -> str:
        """Where the table has it."""
        return "gradient" if self.gradients else str(self.dtype).removeprefix("torch.")

    def run(self, arguments: Arguments, device: str) -> Any:
        """What the operator gives, or the error that it raises."""
        function = self.op.get_op()
        if self.gradients:
            function = gradient_of(self.op, function, arguments)
        return call(function, arguments, device)


def cases() -> list[Case]:
    """All operators in all dtypes that are to be compiled, and with gradients in float32."""
    operators = [
        op
        for op in op_db
        if op.name not in GAPS and not op.name.startswith((*_WITHOUT_CASES, *WITHOUT_VALUES))
    ]
    found = [Case(op, d, False) for d in DTYPES for op in operators if op.supports_dtype(d, "cpu")]
    return found + [
        Case(op, torch.float32, True)
        for op in operators
        if op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
    ]


@dataclass(frozen=True)
class Group:
    """Cases that are compiled together, all of one dtype or all with gradients."""

    column: str
    number: int
    cases: list[Case]

    @property
    def name(self) -> str:
        return f"{self.column}-{self.number}"


def groups() -> list[Group]:
    """All cases, in the order of the operator database."""
    columns: dict[str, list[Case]] = {}
    for case in cases():
        columns.setdefault(case.column, []).append(case)
    return [
        Group(column, i // GROUP, found[i : i + GROUP])
        for column, found in columns.items()
        for i in range(0, len(found), GROUP)
    ]


def chosen_samples(case: Case, most: int = MOST_SAMPLES) -> list[Arguments]:
    """The arguments of up to `most` sample calls and of some with edge values, on the CPU."""
    samples = sample_arguments(case.op, case.dtype, requires_grad=case.gradients)
    found = _spread(_small(samples), most)
    for generate in _edge_generators(case.op, case.dtype):
        torch.manual_seed(SEED)
        edges = map(arguments_of, generate(case.op, device="cpu", dtype=case.dtype))
        edges = _spread(_small(edges), max(most // 4, 1))
        found += [edge.map(_as_leaf) for edge in edges] if case.gradients else edges
    return found


def _as_leaf(value: Any) -> Any:
    differentiable = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.requires_grad_() if differentiable else value


def _small(samples: Iterator[Arguments]) -> list[Arguments]:
    return [
        arguments
        for arguments in itertools.islice(samples, _MOST_GENERATED)
        if sum(math.prod(shape) for shape in arguments.shapes()) <= MOST_ELEMENTS
    ]


def _spread(items: list[Arguments], most: int) -> list[Arguments]:
    """The first, the last, and others evenly between them, `most` together."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / max(most - 1, 1))] for i in range(most)]


def _edge_generators(op: OpInfo, dtype: torch.dtype) -> list[Callable[..., Any]]:
    kind = {UnaryUfuncInfo: "unary", BinaryUfuncInfo: "binary"}.get(type(op))
    if kind is None:
        return []
    names = ["noncontiguous"]
    if dtype.is_floating_point:
        names.append("extremal_value")
    if dtype not in (torch.bool, torch.uint8, torch.int8):
        names += ["small_value", "large_value"]
    if kind == "binary":
        names.append("broadcasting")
    return [getattr(core, f"generate_elementwise_{kind}_{name}_tensors") for name in names]


class Joined:
    """Places arguments as views of one storage of each dtype, on a device.

    What is not dense, and what is no part of an arithmetic dtype, is placed by itself.
    """

    def __init__(self, samples: list[Arguments]) -> None:
        self._samples = samples
        self._places: dict[int, tuple[torch.dtype, int]] = {}
        self._sizes: dict[torch.dtype, int] = {}
        self._values: dict[torch.dtype, list[tuple[int, torch.Tensor]]] = {}
        for leaf in tree_leaves([sample.tree() for sample in samples]):
            if isinstance(leaf, torch.Tensor) and id(leaf) not in self._places and _is_dense(leaf):
                start = self._sizes.get(leaf.dtype, 0)
                self._places[id(leaf)] = (leaf.dtype, start)
                self._values.setdefault(leaf.dtype, []).append((start, leaf.detach()))
                self._sizes[leaf.dtype] = -(-(start + leaf.numel()) // _ALIGNMENT) * _ALIGNMENT

    def place(self, device: str) -> list[Arguments]:
        """The samples' arguments on the device. The window that they begin writes their storage."""
        joined = {}
        for dtype, size in self._sizes.items():
            flat = torch.zeros(size, dtype=dtype)
            for start, value in self._values[dtype]:
                flat[start : start + value.numel()] = value.reshape(-1)
            joined[dtype] = flat.to(device).clone()

        def place(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                if id(value) in self._places:
                    dtype, start = self._places[id(value)]
                    placed = joined[dtype].as_strided(value.size(), value.stride(), start)
                else:
                    placed = laid_out_alike(value.detach(), device)
                placed = placed.detach()
                return placed.requires_grad_() if value.requires_grad else placed
            if value == "cpu" or value == torch.device("cpu"):
                return type(value)(device)
            return value

        return [sample.map(place) for sample in self._samples]


def _is_dense(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not tensor.is_complex()
        and tensor.numel() > 0
        and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    )


@contextmanager
def watched(seen: dict[str, set[str]]) -> Iterator[None]:
    """Note for each operator that runs inside why it runs natively, or COMPILED.

    Windows that were planned before are planned anew.
    """

    def plan(record: WindowRecord) -> list[Step]:
        steps = compiler.plan(record)
        planner = compiler._planners[compiler.Settings.now()]
        for entry, reason in zip(record.entries, planner.native_reasons(record), strict=True):
            seen.setdefault(entry.op, set()).add(reason or COMPILED)
        return steps

    torch.shark.synchronize()
    torch.shark.reset_metrics()
    compiler.install(plan)
    try:
        yield
    finally:
        with suppress(Exception):
            torch.shark.synchronize()
        compiler.install()
    for name in torch.shark.metrics().native_steps:
        seen.setdefault(name, {AT_ONCE})


def _waits(case: Case, arguments: Arguments) -> bool | None:
    """Whether a call waits for the device, once its operators are known; None if it is an error."""
    if isinstance(case.run(Joined([arguments]).place("cpu")[0], "cpu"), Raised):
        return None
    joined = Joined([arguments])
    with config.scope(policy="native"):
        for _ in range(2):  # the first time, operators may run at once
            placed = joined.place("shark")
            before = torch.shark.metrics().windows
            case.run(placed[0], "shark")
            waits = torch.shark.metrics().windows > before
            torch.shark.synchronize()
    return waits


def differences(chosen: list[Case], seen: dict[str, set[str]]) -> list[str]:
    """Run the samples of all cases in one window, compiled; tell where results are not the CPU's.

    Args:
        chosen: the cases. Of their samples, those that raise on the CPU are left out.
        seen: gets what became of each recorded operator.
    """
    found = [
        (case, arguments, _waits(case, arguments))
        for case in chosen
        for arguments in chosen_samples(case)
    ]
    # What waits ends the window, and what comes after it would be another region.
    calls = [(c, a) for wanted in (False, True) for c, a, waits in found if waits is wanted]
    joined = Joined([arguments for _, arguments in calls])

    def run(device: str) -> list[Any]:
        placed = joined.place(device)
        return [
            (case.run(arguments, device), arguments.tree())
            for (case, _), arguments in zip(calls, placed, strict=True)
        ]

    expected = run("cpu")
    with config.scope(policy="iree"), watched(seen):
        actual = run("shark")
        torch.shark.synchronize()
    wrong = []
    for (case, arguments), one, other in zip(calls, expected, actual, strict=True):
        difference = _difference(one, other)
        if difference is not None and not _is_as_exact(case, arguments, one, other):
            wrong.append(f"{case} {_described(arguments)}: {difference}")
    return wrong


def _is_as_exact(case: Case, arguments: Arguments, expected: Any, actual: Any) -> bool:
    """Whether results are as near to those in a wider dtype as the CPU's, in the maximum norm."""

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in _WIDER:
            return value.detach().to(_WIDER[value.dtype]).requires_grad_(value.requires_grad)
        return _WIDER.get(value, value) if isinstance(value, torch.dtype) else value

    wide = arguments.map(widen)
    exact = tree_leaves((case.run(wide, "cpu"), wide.tree()))
    leaves = zip(exact, tree_leaves(expected), tree_leaves(actual), strict=True)
    return all(_is_as_near(*leaf) for leaf in leaves if isinstance(leaf[1], torch.Tensor))


def _is_as_near(exact: Any, one: torch.Tensor, other: Any) -> bool:
    one, other = one.detach(), other.detach().cpu()
    return _difference(one, other) is None or is_as_near(exact, one, other)


def _described(arguments: Arguments) -> str:
    def text(value: Any) -> Any:
        return f"{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)

    return str(tree_map(text, arguments.tree()))


def _difference(expected: Any, actual: Any) -> str | None:
    """What torch.testing says against the results, or None. Integers and bools must be equal."""
    wanted, given = tree_leaves(expected), tree_leaves(actual)
    if len(wanted) != len(given):
        return f"expected {len(wanted)} results, got {given}"
    for one, other in zip(wanted, given, strict=True):
        if isinstance(one, torch.Tensor):
            if not isinstance(other, torch.Tensor):
                return f"expected a tensor, got {other!r}"
            try:
                torch.testing.assert_close(
                    other.detach().cpu(), one.detach(), equal_nan=True, check_stride=False
                )
            except AssertionError as error:
                return str(error)
        elif isinstance(one, (torch.device, str)):
            continue  # where an argument says to put the result
        elif type(one) is not type(other) or (one != other and one == one):
            return f"expected {one!r}, got {other!r}"
    return None
