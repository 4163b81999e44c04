"""A model as a functional graph, through torch.export."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    CustomObjArgument,
    OutputKind,
    SymIntArgument,
    TokenArgument,
)
from torch.fx import Node
from torch.utils import _pytree as pytree

from torch_shark.export.errors import ExportError
from torch_shark.export.signature import ConstantSpec, Signature, Spec, TensorSpec, is_affine
from torch_shark.targets import Target

_TORCH = Path(torch.__file__).parent
_DTYPES = {
    *[torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool],
    *[torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8],
}
_PLAIN = (type(None), bool, int, float, str)


def capture(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """Return the model as torch.export sees it, on the CPU.

    Raises:
        ExportError: torch.export refuses it; the error tells the user's line, where there is one.
    """
    name = type(model).__name__
    try:
        program = torch.export.export(
            _on_cpu(model),
            _on_cpu(tuple(args)),
            _on_cpu(dict(kwargs)),
            dynamic_shapes=dynamic_shapes,
        )
    except Exception as error:
        line = _users_line(error)
        raise ExportError(name, f"{line}{type(error).__name__}: {error}") from error
    return program


def check(program: ExportedProgram, model: str) -> None:
    """See that a program does nothing that an executable can't.

    Args:
        program: what `capture` returned, decomposed: what it writes is only known then.
        model: the name of the model's class, for errors.

    Raises:
        ExportError: it writes an argument, takes an object, draws random numbers, or has complex
            numbers or other dtypes that IREE does not know.
    """
    specs = program.graph_signature
    for spec in specs.input_specs:
        if isinstance(spec.arg, CustomObjArgument | TokenArgument):
            raise ExportError(model, f"expected tensors, numbers and texts, got {spec.arg}")
    for written in specs.output_specs:
        if written.kind not in (OutputKind.USER_OUTPUT, OutputKind.BUFFER_MUTATION):
            kind = written.kind.name.lower().replace("_", " ")
            said = f"expected only buffers to be written in place, got a {kind}: {written.target}"
            raise ExportError(model, said)
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            said = f"expected no random numbers, got {node.target}; a dropout ends by model.eval()"
            raise ExportError(model, said + _written_at(node))
        values = pytree.tree_leaves(node.meta.get("val"))
        for dtype in {v.dtype for v in values if isinstance(v, torch.Tensor)} - _DTYPES:
            said = f"expected dtypes that IREE knows, got {dtype} by {node.target}"
            raise ExportError(model, said + _written_at(node))


def check_for(target: Target, program: ExportedProgram, model: str) -> None:
    """See that a target can compute what a program does.

    Raises:
        ExportError: the program has float64 tensors, and the target no such numbers.
    """
    for node in () if target.float64 else program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
            said = f"expected no float64 tensor for {target.name}, got one by {node.target}"
            raise ExportError(model, said + _written_at(node))


def signature(program: ExportedProgram, model: str) -> Signature:
    """Return what the program takes and returns.

    Args:
        program: what `check` has passed.
        model: the name of the model's class, for errors.

    Raises:
        ExportError: an argument or a result is no tensor, number or text,
            or its size depends on symbols in another way than "2*batch + 1".
    """
    placeholders = {n.name: n for n in program.graph.find_nodes(op="placeholder")}
    names = _symbol_names(program, list(placeholders.values()))
    specs = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes}
    inputs = [
        _spec(s.arg, s.arg.name, nodes, names, model)
        for s in specs.input_specs
        if s.kind.name == "USER_INPUT"
    ]
    outputs = [
        _spec(s.arg, f"result {i}", nodes, names, model)
        for i, s in enumerate(s for s in specs.output_specs if s.kind == OutputKind.USER_OUTPUT)
    ]
    for spec in inputs:
        for size in spec.shape if isinstance(spec, TensorSpec) else ():
            if isinstance(size, str) and not is_affine(size):
                raise ExportError(model, f"expected a size such as '2*batch + 1', got {size!r}")
    ranges = {}
    for symbol, limits in program.range_constraints.items():
        if symbol.is_symbol:
            high = limits.upper
            ranges[names.get(str(symbol), str(symbol))] = (
                int(limits.lower),
                int(high) if high.is_finite and high < torch.iinfo(torch.int64).max else None,
            )
    assert program.call_spec.in_spec is not None
    assert program.call_spec.out_spec is not None
    return Signature(
        pytree.treespec_dumps(program.call_spec.in_spec),
        tuple(inputs),
        pytree.treespec_dumps(program.call_spec.out_spec),
        tuple(outputs),
        ranges,
    )


def _spec(arg: Any, name: str, nodes: dict[str, Node], names: dict[str, str], model: str) -> Spec:
    if isinstance(arg, ConstantArgument) and isinstance(arg.value, _PLAIN):
        return ConstantSpec(name, arg.value)
    value = nodes[arg.name].meta.get("val") if hasattr(arg, "name") and arg.name in nodes else None
    if isinstance(arg, SymIntArgument):
        size = _named(value, names)
        if name.startswith("result ") and isinstance(size, str) and is_affine(size):
            return ConstantSpec(name, size, is_size=True)
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return TensorSpec(name, dtype, tuple(_named(size, names) for size in value.shape))
    raise ExportError(model, f"expected {name} to be a tensor or a fixed value, got {arg}")


def _named(size: Any, names: dict[str, str]) -> int | str:
    """Return a size with the symbols' names for people."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    expression = size.node.expr
    if expression.is_number:
        return int(expression)
    symbols = {
        symbol: type(symbol)(names[str(symbol)], integer=True)
        for symbol in expression.free_symbols
        if str(symbol) in names
    }
    return str(expression.xreplace(symbols))


def _symbol_names(program: ExportedProgram, placeholders: list[Node]) -> dict[str, str]:
    """Return the names that `torch.export.Dim` gave, by symbol."""
    names: dict[str, str] = {}
    for node in placeholders:
        for size in getattr(node.meta.get("val"), "shape", ()):
            if _is_symbol(size):
                env = size.node.shape_env
                for source in env.var_to_sources.get(size.node.expr, ()):
                    given = env.source_name_to_debug_name.get(_source_name(source))
                    if given is not None and given.isidentifier():
                        names.setdefault(str(size.node.expr), given)
    return names


def _is_symbol(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and bool(size.node.expr.is_symbol)


def _source_name(source: Any) -> str:
    """Return a source's name: a method in older versions of torch."""
    name: str = source.name() if callable(source.name) else source.name
    return name


def _on_cpu(value: Any) -> Any:
    """Return a model or arguments on the CPU; what is there already, as it is."""
    if isinstance(value, torch.nn.Module):
        held = [*value.parameters(), *value.buffers()]
        if all(tensor.device.type == "cpu" for tensor in held):
            return value
        return copy.deepcopy(value).cpu()
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu(), value)


def _users_line(error: BaseException) -> str:
    """Return where in the user's code an error arose, as tracebacks write it; or nothing."""
    ours = Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_file() and not {_TORCH, ours} & set(file.resolve().parents):
            return f"at {file}:{frame.lineno}, in {frame.name}\n    {frame.line}\n"
    return ""


def _written_at(node: Node) -> str:
    """Return the last lines of the trace that torch.export kept of a node."""
    trace = node.meta.get("stack_trace")
    return "" if not trace else f"\n{trace.rstrip()}"
