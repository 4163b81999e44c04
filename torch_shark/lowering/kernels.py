"""Users' kernels in a region: one node of the traced graph each, one call in the module."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from iree.compiler import ir

from torch_shark.kernels.kernel import Kernel, TensorType, library_of
from torch_shark.kernels.parse import parse_module
from torch_shark.lowering.interface import RegionInterface
from torch_shark.lowering.module import EmittedModule, builtin_type, create
from torch_shark.lowering.operators import find_operator
from torch_shark.record import TensorRef

# Whatever the user's operator is in this process, the graph has one of ours in its place: a worker
# knows nothing of the user's.
_NAMESPACE = "torch_shark_kernels"
_library = library_of(_NAMESPACE)
_expected: list[TensorRef] = []  # the results of the call that is traced


def declare(kernel: Kernel) -> None:
    """Define a kernel's operator if this process does not know it."""
    if find_operator(kernel.operator) is None:
        namespace, _, rest = kernel.schema.partition("::")
        library_of(namespace).define(rest)
        find_operator.cache_clear()


def call_kernel(kernel: Kernel, args: Sequence[Any], results: Sequence[TensorRef | None]) -> Any:
    """Call an operator that stands for a kernel while it is traced.

    Args:
        kernel: of the operator that is replayed.
        args: its arguments, in schema order.
        results: what is known of its results.
    """
    _expected[:] = [ref for ref in results if ref is not None]
    return _stand_in(kernel)(*args)


@cache
def _stand_in(kernel: Kernel) -> Any:
    name = f"k{kernel.digest}"
    arguments = kernel.schema[kernel.schema.index("(") :].replace("*, ", "")
    _library.define(name + arguments)
    torch.library.register_fake(f"{_NAMESPACE}::{name}", _results, lib=_library)
    return getattr(getattr(torch.ops, _NAMESPACE), name).default


def _results(*_args: Any) -> Any:
    made = [torch.empty(ref.sizes, dtype=ref.dtype) for ref in _expected]
    return made[0] if len(made) == 1 else tuple(made)


def stand_ins(kernels: Sequence[Kernel]) -> dict[str, Kernel]:
    """Return the kernels by what the importer calls their operators in a traced region."""
    return {f"torch.{_NAMESPACE}.k{kernel.digest}": kernel for kernel in kernels}


def emit_kernel(kernel: Kernel) -> EmittedModule:
    """Return a module of the kernel alone; the function takes and returns tensors of any size."""
    with ir.Context(), ir.Location.unknown():
        module = parse_module(kernel.operator, kernel.mlir)
        bytecode = io.BytesIO()
        module.write_bytecode(bytecode)
        interface = RegionInterface((), (), function=f"module.{kernel.function}")
        return EmittedModule(bytecode.getvalue(), kernel.mlir, interface)


def write_kernels(module: ir.Operation, block: ir.Block, kernels: Mapping[str, Kernel]) -> None:
    """Replace operators by calls of the bodies, which are copied into the module.

    Args:
        module: the module.
        block: the body of the function where the operators are.
        kernels: by the operators' names in the torch dialect.
    """
    functions: dict[str, ir.Operation] = {}
    for op in list(block.operations):
        if op.operation.name != "torch.operator":
            continue
        name = op.attributes["name"].value
        if name in kernels:
            if name not in functions:
                functions[name] = _copy_in(module, kernels[name], len(functions))
            _call(op.operation, functions[name], kernels[name])


def _copy_in(module: ir.Operation, kernel: Kernel, number: int) -> ir.Operation:
    """Copy a kernel's module into another, all symbols renamed; return the public function."""
    theirs = parse_module(kernel.operator, kernel.mlir)
    public = None
    destination = ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0])
    for op in list(theirs.regions[0].blocks[0].operations):
        if "sym_name" in op.operation.attributes:
            name = ir.SymbolTable.get_symbol_name(op).value
            renamed = f"kernel{number}.{name}"
            ir.SymbolTable.replace_all_symbol_uses(name, renamed, theirs)
            ir.SymbolTable.set_symbol_name(op, renamed)
            op.operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
            if name == kernel.function:
                public = op.operation
    for op in list(theirs.regions[0].blocks[0].operations):
        destination.insert(op.operation.detach_from_parent())
    assert public is not None
    return public


def _call(op: ir.Operation, function: ir.Operation, kernel: Kernel) -> None:
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    with ir.InsertionPoint(op), op.location:
        operands = [
            _to(wanted, declared, value)
            for value, declared, wanted in zip(
                op.operands, kernel.arguments, kind.inputs, strict=True
            )
        ]
        call = ir.Operation.create(
            "func.call",
            results=list(kind.results),
            operands=operands,
            attributes={"callee": ir.FlatSymbolRefAttr.get(_name(function))},
        )
        for old, given in zip(op.results, call.results, strict=True):
            old.replace_all_uses_with(_from(given, old.type))
    op.erase()


def _to(wanted: ir.Type, declared: TensorType | str, value: ir.Value) -> ir.Value:
    """Convert a value of the torch dialect to what a body takes."""
    if value.type == wanted:
        return value
    if isinstance(declared, str):
        return create(f"torch_c.to_{declared}", wanted, value)
    if str(wanted).startswith("!torch"):
        return create("torch.tensor_static_info_cast", wanted, value)
    builtin = create("torch_c.to_builtin_tensor", builtin_type(value.type), value)
    return builtin if builtin.type == wanted else create("tensor.cast", wanted, builtin)


def _from(value: ir.Value, wanted: ir.Type) -> ir.Value:
    """Convert what a body gives to a value of the torch dialect."""
    if value.type == wanted:
        return value
    if str(value.type).startswith("!torch"):
        return create("torch.tensor_static_info_cast", wanted, value)
    builtin = builtin_type(wanted)
    if value.type != builtin:
        value = create("tensor.cast", builtin, value)
    return create("torch_c.from_builtin_tensor", wanted, value)


def _name(function: ir.Operation) -> str:
    name: str = ir.SymbolTable.get_symbol_name(function).value
    return name
