"""FX graph to MLIR: a function that overwrites its destinations.

IREE's own importer translates the nodes; the function around them is ours, since the results go
into buffers that the caller owns.
"""

from __future__ import annotations

import io
from dataclasses import replace

import torch
from iree.compiler import ir
from iree.compiler.dialects import arith, func
from iree.compiler.extras.fx_importer import (
    FxImporter,
    GraphNodeImporter,
    rewrite_as_strided,
)

from torch_shark.lowering.forms import Form
from torch_shark.lowering.interface import BufferType, RegionInterface
from torch_shark.lowering.kernels import stand_ins, write_kernels
from torch_shark.lowering.module import EmittedModule, builtin_type, create
from torch_shark.lowering.region import Region
from torch_shark.lowering.sizes import integers_of

_ELEMENT_TYPES = {
    torch.float64: "FLOAT_64",
    torch.float32: "FLOAT_32",
    torch.float16: "FLOAT_16",
    torch.bfloat16: "BFLOAT_16",
    torch.int64: "INT_64",
    torch.int32: "INT_32",
    torch.int16: "INT_16",
    torch.int8: "INT_8",
    torch.uint8: "UINT_8",
    torch.bool: "BOOL_8",
}
_KEEP_APART = "torch.torch_shark.keep_apart"


def emit_module(
    graph: torch.fx.GraphModule, region: Region, in_place: tuple[int, ...] = ()
) -> EmittedModule:
    """Translates a traced region.

    Args:
        graph: what `trace_region` made of it.
        region: the region.
        in_place: positions of outputs that overwrite the input of the same storage.

    Raises:
        NotImplementedError, TypeError, ValueError, AssertionError: the importer knows no
            translation of a node.
    """
    rewrite_as_strided(graph.graph)
    placeholders = graph.graph.find_nodes(op="placeholder")
    overwritten = {region.inputs.index(region.outputs[i]): i for i in in_place}
    used_inputs = tuple(
        i for i in range(len(region.inputs)) if placeholders[i].users and i not in overwritten
    )
    arguments = [placeholders[i] for i in used_inputs] + placeholders[len(region.inputs) :]
    (results,) = graph.graph.output_node().args
    assert isinstance(results, (list, tuple))

    context = ir.Context()
    importer = FxImporter(context=context, config_check=False)
    cache = importer._cc
    with context, ir.Location.unknown(context):
        types = [cache.node_val_to_type(node) for node in arguments]
        types += [cache.node_val_to_type(node, mutable=True) for node in results]
        function = func.FuncOp("main", (types, []), ip=importer._m_ip)
        function.attributes["torch.assume_strict_symbolic_shapes"] = ir.UnitAttr.get()
        block = ir.Block.create_at_start(function.body, types)
        nodes = GraphNodeImporter(importer, context, cache, block)
        for node, value in zip(arguments, block.arguments, strict=False):
            nodes.bind_node_value(node, value)
        targets = list(block.arguments)[len(arguments) :]
        with ir.InsertionPoint(block):
            for i, position in overwritten.items():
                old = ir.Operation.create(
                    "torch.copy.to_vtensor",
                    results=[cache.node_val_to_type(placeholders[i])],
                    operands=[targets[position]],
                )
                nodes.bind_node_value(placeholders[i], old.result)
        nodes.import_nodes(graph.graph.nodes, skip_placeholders_outputs=True)
        with ir.InsertionPoint(block):
            for node, target in zip(results, targets, strict=True):
                ir.Operation.create(
                    "torch.overwrite.tensor.contents",
                    operands=[nodes.resolve_node_value(node), target],
                )
            func.ReturnOp([])
        write_barriers(block)
        write_kernels(importer.module_op, block, stand_ins(region.kernels))
    bytecode = io.BytesIO()
    importer.module_op.write_bytecode(bytecode)
    interface = RegionInterface(
        inputs=tuple(_buffer_type(placeholders[i]) for i in used_inputs),
        outputs=tuple(_buffer_type(node) for node in results if isinstance(node, torch.fx.Node)),
        scalars=tuple(kind for _, kind in region.scalars),
        used_inputs=used_inputs,
        in_place=in_place,
    )
    if region.size is not None:
        interface = replace(interface, forms=integers_of(region)[1], guard=_guard(placeholders[-1]))
    return EmittedModule(bytecode.getvalue(), str(importer.module_op), interface)


def write_barriers(block: ir.Block) -> None:
    """Writes `fusion.KEEP_APART` as IREE knows it: a barrier on a builtin tensor."""
    for op in list(block.operations):
        if op.operation.name == "torch.operator" and op.attributes["name"].value == _KEEP_APART:
            (value,), (result,) = op.operands, op.results
            with ir.InsertionPoint(op):
                builtin = builtin_type(value.type)
                value = create("torch_c.to_builtin_tensor", builtin, value)
                sizes = _unknown_sizes(value)
                value = create("util.optimization_barrier", builtin, value)
                if sizes:  # IREE can't look through the barrier for them
                    value = create("flow.tensor.tie_shape", builtin, value, *sizes)
                value = create("torch_c.from_builtin_tensor", result.type, value)
            result.replace_all_uses_with(value)
            op.operation.erase()


def _unknown_sizes(tensor: ir.Value) -> list[ir.Value]:
    """Returns the sizes that the type of a builtin tensor leaves open, as they are when it runs."""
    shape = ir.RankedTensorType(tensor.type)
    index = ir.IndexType.get()
    return [
        create("tensor.dim", index, tensor, arith.ConstantOp(index, dim).result)
        for dim in range(shape.rank)
        if shape.is_dynamic_dim(dim)
    ]


def _buffer_type(node: torch.fx.Node) -> BufferType:
    value = node.meta["val"]
    return BufferType(tuple(map(_form, value.shape)), _ELEMENT_TYPES[value.dtype])


def _form(number: int | torch.SymInt) -> int | Form:
    """The form of a dimension; of a symbolic one, `(factor * size ** power) + rest`."""
    if isinstance(number, int) or not number.node.expr.free_symbols:
        return int(number)
    expression = number.node.expr
    polynomial = expression.as_poly(*expression.free_symbols)
    terms = {} if polynomial is None else {p: int(c) for (p,), c in polynomial.terms()}
    rest = terms.pop(0, 0)
    if len(terms) != 1 or max(terms) > 2:
        raise ValueError(f"[shark] expected a form of one size, got {expression}")
    ((power, factor),) = terms.items()
    return Form(factor, power, rest)


def _guard(size: torch.fx.Node) -> str:
    """What tracing has taken for granted of the size."""
    number = size.meta["val"]
    environment = number.node.shape_env
    if not number.node.expr.free_symbols or environment.replacements:
        raise ValueError(
            "[shark] expected operators of any size, got some of a certain one; sizes are compiled"
            " one by one"
        )
    return str(environment.produce_guards_expression([number], ignore_static=False) or "")
