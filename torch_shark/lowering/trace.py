"""Region to FX graph: replay under fake tensors through PyTorch's own functionalization.

The graph is a function from the input storages, in storage order, and the packed scalars to the
output storages. A reference becomes views over its storage; a write through a view becomes a new
value of the storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch._dynamo.source import ConstantSource
from torch._functorch.compile_utils import fx_graph_cse
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from torch_shark.lowering import decompositions
from torch_shark.lowering.fusion import KEEP_APART, keep_apart
from torch_shark.lowering.indices import index_limits
from torch_shark.lowering.kernels import call_kernel, declare
from torch_shark.lowering.operators import Operator, find_operator
from torch_shark.lowering.places import keep_places_apart
from torch_shark.lowering.region import Region, ScalarSlot
from torch_shark.lowering.rounding import rounded, wants_rounded
from torch_shark.lowering.scalars import compute_dtype
from torch_shark.lowering.sizes import at_size
from torch_shark.lowering.support import written_values
from torch_shark.lowering.views import (
    build_view,
    covers_storage,
    in_storage_order,
    storage_layout,
)
from torch_shark.record import Entry, HostScalar, TensorRef

# IREE takes no integer tensor to overwrite: such an output goes out as floats of the same bits.
_OUTPUT_BITS = {
    torch.int64: torch.float64,
    torch.int32: torch.float32,
    torch.int16: torch.float16,
    torch.int8: torch.bool,
    torch.uint8: torch.bool,
}
_ALIASES = (
    torch.ops.aten.alias.default,
    torch.ops.aten.clone.default,
    torch.ops.aten.detach.default,
    torch.ops.aten.lift_fresh.default,
    torch.ops.aten.lift_fresh_copy.default,
)
_COMPARISONS = tuple(
    getattr(torch.ops.aten, name).Scalar for name in ("eq", "ne", "lt", "le", "gt", "ge")
)


def trace_region(region: Region) -> torch.fx.GraphModule:
    """Returns the region as a functional FX graph with fake-tensor metadata.

    Its placeholders are the input storages, then the vectors of f64 and of i64 scalars where the
    region has such, then the size if it has one; its results are the output storages.

    Raises:
        NeedsBarrierError: a region of any size wants what `keep_apart` inserts.
    """
    for kernel in region.kernels:
        declare(kernel)
    graph = _trace(region) if region.size is None else _trace_any_size(region, region.size)
    tidy(graph)
    if region.size is None:  # else none is needed
        keep_apart(graph.graph)
        keep_places_apart(graph.graph)
    return graph


def tidy(graph: torch.fx.GraphModule) -> None:
    """Drops what does nothing, and rewrites what IREE would take for something else."""
    _drop_aliases(graph.graph)
    _compare_with_floats(graph.graph)
    graph.graph.eliminate_dead_code()
    graph.graph = fx_graph_cse(graph.graph)
    _widen_what_is_chosen_from_one(graph.graph)


class NeedsBarrierError(Exception):
    """Where barriers belong is known of numbers only."""


def _trace(region: Region) -> torch.fx.GraphModule:
    def run(*values: torch.Tensor) -> list[torch.Tensor]:
        return _Replay(region, values).run()

    return _make_graph(run, _arguments(region), "fake")


def _trace_any_size(region: Region, hint: int) -> torch.fx.GraphModule:
    """Traces with a symbol for the size, which is the last argument."""
    if trace_region(at_size(region, hint)).graph.find_nodes(op="call_function", target=KEEP_APART):
        raise NeedsBarrierError("[shark] a region of any size can have no barriers")
    shapes = ShapeEnv(duck_shape=False)
    source = ConstantSource("size")
    symbol = shapes.create_symbol(hint, source, DimDynamic.DYNAMIC, constraint_dim=None)
    size = shapes.create_symintnode(symbol, hint=hint, source=source)

    def run(*values: Any) -> list[torch.Tensor]:
        return _Replay(at_size(region, values[-1]), values).run()

    with FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True):
        return _make_graph(run, [*_arguments(at_size(region, size)), size], "real")


def _arguments(region: Region) -> list[Any]:
    arguments = [_empty_storage(region, s) for s in region.inputs]
    for kind, dtype in (("f64", torch.float64), ("i64", torch.int64)):
        count = sum(k == kind for _, k in region.scalars)
        if count:
            arguments.append(torch.empty(count, dtype=dtype))
    return arguments


def _make_graph(
    run: Callable[..., list[torch.Tensor]],
    arguments: list[Any],
    tracing_mode: Literal["real", "fake"],
) -> torch.fx.GraphModule:
    with torch.no_grad():
        return make_fx(
            dispatch_functionalize(run, FunctionalTensorMode()),
            decomposition_table=decompositions.table(),
            tracing_mode=tracing_mode,
        )(*arguments)


def _drop_aliases(graph: torch.fx.Graph) -> None:
    """Replaces what only names its argument anew; IREE has no lowering for some of it."""
    for overload in _ALIASES:
        for node in graph.find_nodes(op="call_function", target=overload):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _widen_what_is_chosen_from_one(graph: torch.fx.Graph) -> None:
    """Writes where(c, x, x) as x in the result's shape; IREE takes x itself, whatever its shape."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.where.self):
        _, one, other = node.args
        if one is other:
            node.target = torch.ops.aten.expand.default
            node.args = (one, list(node.meta["val"].shape))


def _compare_with_floats(graph: torch.fx.Graph) -> None:
    """Makes the numbers that floats are compared with floats of the same dtype, as kernels do.

    The compiler folds comparisons of constants, and takes negative integers for huge ones.
    """
    for overload in _COMPARISONS:
        for node in graph.find_nodes(op="call_function", target=overload):
            tensor, number = node.args
            dtype = tensor.meta["val"].dtype
            if isinstance(number, (int, float)) and dtype.is_floating_point:
                node.args = (tensor, torch.tensor(number, dtype=dtype).item())


def _as_output(value: torch.Tensor) -> torch.Tensor:
    bits = _OUTPUT_BITS.get(value.dtype)
    if bits is None:
        return value
    # The compiler crashes on a change of bits without dimensions.
    return (value if value.dim() else value.reshape(1)).view(bits)


def _empty_storage(region: Region, storage: int) -> torch.Tensor:
    info = region.storages[storage]
    return torch.empty(storage_layout(info).shape, dtype=info.dtype)


class _Replay:
    """Runs a region's entries on the values of its storages."""

    def __init__(self, region: Region, values: tuple[torch.Tensor, ...]) -> None:
        self._region = region
        self._storages: dict[int, torch.Tensor] = dict(zip(region.inputs, values, strict=False))
        self._parts: dict[TensorRef, torch.Tensor] = {}
        self._computed: set[int] = set()  # storages written here
        self._kernels = {kernel.operator: kernel for kernel in region.kernels}
        vectors = iter(values[len(region.inputs) :])
        kinds = {kind for _, kind in region.scalars}
        packed = {kind: next(vectors) for kind in ("f64", "i64") if kind in kinds}
        self._scalars: dict[ScalarSlot, torch.Tensor] = {}
        used = {"f64": 0, "i64": 0}
        for slot, kind in region.scalars:
            self._scalars[slot] = packed[kind][used[kind]]
            used[kind] += 1

    def run(self) -> list[torch.Tensor]:
        for number, entry in enumerate(self._region.entries):
            self._run_entry(number, entry)
        results = [self._storages[s] for s in self._region.outputs]
        results += [self._parts[ref] for ref in self._region.parts]
        return [_as_output(value) for value in results]

    def _run_entry(self, number: int, entry: Entry) -> None:
        operator = find_operator(entry.op)
        assert operator is not None, f"no operator {entry.op}"
        args = [self._argument(number, i, operator, value) for i, value in enumerate(entry.args)]
        for limit in index_limits(operator, entry):
            if limit.item is None:
                args[limit.arg] = limit.bound(args[limit.arg])
            else:
                args[limit.arg][limit.item] = limit.bound(args[limit.arg][limit.item])
        along_nothing = (
            operator.dim_arg is not None
            and args[operator.dim_arg] != []
            and not _first_tensor(args).dim()
        )
        if along_nothing:
            args = [_with_a_dim(value) for value in args]
        kernel = self._kernels.get(entry.op)
        if kernel is not None:
            results = call_kernel(kernel, args, entry.outputs)
        elif operator.functional is not None:
            results = decompositions.call(
                operator.functional, [args[i] for i in operator.functional_args]
            )
        else:
            results = decompositions.call(entry.op, args)
        flat = _flatten(results)
        targets = written_values(operator, entry)
        if operator.functional is None:
            targets = [*entry.outputs, *targets]
        for ref, value in zip(targets, flat, strict=True):
            if ref is not None:
                self._write(ref, value.reshape(ref.sizes) if along_nothing else value)

    def _argument(self, number: int, position: int, operator: Operator, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [
                self._item(ScalarSlot(number, position, i), operator, item)
                for i, item in enumerate(value)
            ]
        return self._item(ScalarSlot(number, position, None), operator, value)

    def _item(self, slot: ScalarSlot, operator: Operator, value: Any) -> Any:
        if isinstance(value, TensorRef):
            return self._tensor(slot, value)
        scalar = self._scalars.get(slot)
        if scalar is None:
            return operator.python_argument(slot.arg, value)
        if not isinstance(value, HostScalar):
            is_float = isinstance(value, float)
            value = HostScalar(value, torch.float64 if is_float else torch.int64, True)
        dtype = compute_dtype(self._entry(slot), value)
        if dtype in (torch.float16, torch.bfloat16):
            scalar = scalar.to(torch.float32)  # as c10 converts; nor can IREE link it in one step
        return scalar.to(dtype)

    def _tensor(self, slot: ScalarSlot, ref: TensorRef) -> torch.Tensor:
        tensor = build_view(self._value(ref.storage), ref, self._region.storages[ref.storage])
        is_computed = ref.storage in self._computed
        if is_computed and ref.dtype == torch.bfloat16 and wants_rounded(self._entry(slot).op):
            return rounded(tensor).to(torch.bfloat16)
        return tensor

    def _value(self, storage: int) -> torch.Tensor:
        if storage not in self._storages:
            # Born here and first seen as a destination: it holds nothing yet.
            info = self._region.storages[storage]
            self._storages[storage] = torch.zeros(storage_layout(info).shape, dtype=info.dtype)
        return self._storages[storage]

    def _entry(self, slot: ScalarSlot) -> Entry:
        return self._region.entries[slot.entry]

    def _write(self, ref: TensorRef, value: torch.Tensor) -> None:
        self._computed.add(ref.storage)
        info = self._region.storages[ref.storage]
        value = value.to(ref.dtype)
        if ref in self._region.parts:
            self._parts[ref] = value.expand(ref.sizes).clone()
        elif covers_storage(ref, info):
            if value.shape != ref.sizes:
                value = value.expand(ref.sizes)
            stored = in_storage_order(value, ref, storage_layout(info))
            # A body may hand back a view of another storage, which later writes would reach.
            self._storages[ref.storage] = stored.clone()
        else:
            build_view(self._value(ref.storage), ref, info).copy_(value)


def _first_tensor(args: list[Any]) -> torch.Tensor:
    tensors = (value for arg in args for value in (arg if isinstance(arg, list) else [arg]))
    return next(value for value in tensors if isinstance(value, torch.Tensor))


def _with_a_dim(value: Any) -> Any:
    """A dimension for what has none: along one that is not there, the compiler hangs or crashes."""
    if isinstance(value, list):
        return [_with_a_dim(item) for item in value]
    if isinstance(value, torch.Tensor) and not value.dim():
        return value.reshape(1)
    return value


def _flatten(results: Any) -> list[torch.Tensor]:
    if isinstance(results, (list, tuple)):
        return [value for item in results for value in _flatten(item)]
    return [results]
