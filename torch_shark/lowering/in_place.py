"""Which outputs of a region may overwrite what the region reads of the same storage.

An optimizer's step reads a parameter and writes it: in its own memory that takes a third less
traffic than into a fresh buffer. IREE takes the two for unrelated memory and orders nothing between
them, so both of these must hold: every value that is reached from the old content is pointwise and
of its shape, so that an element's new value depends on no other element (`find_in_place`); and the
kernel that reads the old content is the only one, and the one that writes (`is_in_order`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from iree.compiler import ir

from torch_shark.lowering.region import Region

# An integer goes out as floats of the same bits, which is another view of the memory.
_DTYPES = frozenset([torch.float64, torch.float32, torch.float16, torch.bfloat16])
_CASTS = frozenset([torch.ops.prims.convert_element_type.default, torch.ops.aten._to_copy.default])


def find_in_place(graph: torch.fx.GraphModule, region: Region) -> tuple[int, ...]:
    """Return the positions of the outputs whose new elements depend on their own old ones only."""
    placeholders = graph.graph.find_nodes(op="placeholder")
    found = []
    for position, storage in enumerate(region.outputs):
        if storage in region.inputs:
            old = placeholders[region.inputs.index(storage)]
            if old.users and old.meta["val"].dtype in _DTYPES and _is_pointwise_from(old):
                found.append(position)
    return tuple(found)


def _is_pointwise_from(old: torch.fx.Node) -> bool:
    shape = old.meta["val"].shape
    seen: set[torch.fx.Node] = set()
    pending = list(old.users)
    while pending:
        node = pending.pop()
        if node in seen or node.op == "output":
            continue
        seen.add(node)
        target = node.target
        pointwise = isinstance(target, torch._ops.OpOverload) and (
            torch.Tag.pointwise in target.tags or target in _CASTS
        )
        if not pointwise or node.meta["val"].shape != shape:
            return False
        pending.extend(node.users)
    return True


def is_in_order(module: ir.Operation, arguments: Sequence[int]) -> bool:
    """Tell whether one kernel alone reads each of some arguments, and the same one writes it.

    Args:
        module: a compiled region, in the phase "flow": kernels are formed.
        arguments: by number, of the function.
    """
    (body,) = module.regions[0].blocks
    main = next(op for op in body.operations if _name(op) == "util.func" and _calls_kernels(op))
    values = main.regions[0].blocks[0].arguments
    return all(_is_one_kernels(values[number]) for number in arguments)


def _calls_kernels(function: ir.Operation) -> bool:
    name: str = ir.StringAttr(function.attributes["sym_name"]).value
    return name.endswith("$async")


def _is_one_kernels(argument: ir.Value) -> bool:
    readers, writers = [], []
    for use in argument.uses:
        if _name(use.owner) == "hal.tensor.import":
            readers.extend(_readers(use.owner.results[0]))
        elif _name(use.owner) == "hal.tensor.alias":
            writers.append(_writer(use.owner.operands[0]))
        else:
            return False
    return len(readers) == len(writers) == 1 and readers == writers and _is_kernel(readers[0])


def _readers(value: ir.Value) -> list[ir.Operation]:
    """Those who read a tensor, however it is shaped for them."""
    found = []
    for use in value.uses:
        owner = use.owner
        found += _readers(owner.results[0]) if _is_reshape(owner) else [owner]
    return found


def _writer(value: ir.Value) -> ir.Operation | None:
    """Who makes a tensor, however it is shaped then; None for an argument."""
    owner = value.owner
    while isinstance(owner, (ir.Operation, ir.OpView)) and _is_reshape(owner):
        owner = owner.operands[0].owner
    return owner if isinstance(owner, (ir.Operation, ir.OpView)) else None


def _is_reshape(op: ir.Operation) -> bool:
    return _name(op) in ("flow.tensor.reshape", "flow.tensor.bitcast")


def _is_kernel(op: ir.Operation | None) -> bool:
    return op is not None and _name(op) == "flow.dispatch"


def _name(op: ir.Operation) -> str:
    name: str = op.operation.name
    return name
