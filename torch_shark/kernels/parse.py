"""MLIR text to a kernel, checked against the operator's schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from iree.compiler import ir

from torch_shark.kernels.kernel import Kernel, KernelError, NumberType, TensorType
from torch_shark.lowering.operators import Operator

# How a body takes a number: as a builtin type, or as the torch dialect's.
_NUMBERS = {"float": ("f64", "!torch.float"), "int": ("i64", "!torch.int")}
_NUMBERS |= {"SymInt": _NUMBERS["int"], "bool": ("i1", "!torch.bool")}
_LINE = re.compile(r'"[^"]*":(\d+):(\d+)')
# After comments and aliases, which stand outside of modules.
_FIRST_OPERATION = re.compile(r'^[ \t]*(?=[a-z"])[\w."]+', re.MULTILINE)
_TORCH_TENSOR = re.compile(r"!torch\.vtensor<\[([^]]*)\],([a-z]+\d+)>")


def parse_kernel(operator: Operator, mlir: str) -> Kernel:
    """Return an operator's kernel.

    Args:
        operator: what it is for.
        mlir: a module, or functions alone. The one public function is the body.

    Raises:
        KernelError: the text is no MLIR, or its function does not take and return what the
            operator does.
    """
    with ir.Context(), ir.Location.unknown():
        module = parse_module(operator.name, mlir)
        functions = [
            op
            for op in module.regions[0].blocks[0].operations
            if op.operation.name == "func.func" and not _is_private(op.operation)
        ]
        if len(functions) != 1:
            names = ", ".join(function.name.value for function in functions) or "none"
            raise KernelError(operator.name, f"expected one public func.func, got {names}")
        (function,) = functions
        kind = function.type
        wanted = [
            _argument_type(operator, number, name, kind.inputs)
            for number, name in enumerate(operator.types)
        ]
        if len(kind.inputs) != len(wanted):
            said = f"expected a function of {len(wanted)} arguments, got {kind}"
            raise KernelError(operator.name, said)
        returns = [str(value.type) for value in operator.overload._schema.returns]
        if len(kind.results) != len(returns) or not returns:
            said = f"expected a function with {len(returns)} results, got {kind}"
            raise KernelError(operator.name, said)
        results = tuple(_tensor_type(operator, "result", result) for result in kind.results)
        schema = str(operator.overload._schema)
        return Kernel(
            operator.name,
            schema,
            mlir,
            function.name.value,
            tuple(wanted),
            results,
            hashlib.blake2b(f"{schema}\n{mlir}".encode(), digest_size=16).hexdigest(),
        )


def parse_module(name: str, mlir: str) -> ir.Operation:
    """Return text as a module; inside a context. Its locations are lines of `name`.

    Raises:
        KernelError: it is no MLIR; the error tells the line.
    """
    try:
        module = ir.Operation.parse(_as_module(mlir), source_name=name).operation
    except ir.MLIRError as error:
        raise KernelError(name, _told(error, mlir)) from None
    if module.name != "builtin.module":
        raise KernelError(name, f"expected a module or functions, got {module.name}")
    return module


def _as_module(mlir: str) -> str:
    """Put functions alone into a module, on lines of the same numbers."""
    first = _FIRST_OPERATION.search(mlir)
    if first is None:
        return mlir + "module {}"
    if first[0].lstrip().startswith(("module", "builtin.module")):
        return mlir
    return mlir[: first.start()] + "module {" + mlir[first.start() :] + "\n}"


def _told(error: ir.MLIRError, mlir: str) -> str:
    """What MLIR said, each with its line of the text."""
    lines, said = mlir.splitlines(), []
    for diagnostic in error.error_diagnostics:
        found = _LINE.search(str(diagnostic.location))
        number = int(found[1]) if found else 0
        quoted = f"\n    {lines[number - 1].strip()}" if 0 < number <= len(lines) else ""
        said.append(f"line {number}: {diagnostic.message}{quoted}")
    return "\n".join(said) or str(error)


def _is_private(function: ir.Operation) -> bool:
    return (
        "sym_visibility" in function.attributes
        and function.attributes["sym_visibility"].value != "public"
    )


def _argument_type(
    operator: Operator, number: int, kind: str, given: Iterable[ir.Type]
) -> TensorType | NumberType:
    types = list(given)
    name = operator.arguments[number]
    if kind != "Tensor" and kind not in _NUMBERS:
        raise KernelError(operator.name, f"{name} is a {kind}: a body takes tensors and numbers")
    if number >= len(types):
        raise KernelError(operator.name, f"the function has no argument for {name}")
    if kind == "Tensor":
        return _tensor_type(operator, name, types[number])
    builtin, torchs = _NUMBERS[kind]
    if str(types[number]) not in (builtin, torchs):
        said = f"{name} is a {kind}, which is {builtin} or {torchs} to the function, not"
        raise KernelError(operator.name, f"{said} {types[number]}")
    return builtin


def _tensor_type(operator: Operator, name: str, given: ir.Type) -> TensorType:
    if (found := _TORCH_TENSOR.fullmatch(str(given))) is not None:
        sizes = [None if size == "?" else int(size) for size in found[1].split(",") if size]
        return TensorType(tuple(sizes), found[2].lstrip("su"))
    if isinstance(given, ir.RankedTensorType):
        dynamic = [given.is_dynamic_dim(dim) for dim in range(given.rank)]
        sizes = [None if dynamic[dim] else given.get_dim_size(dim) for dim in range(given.rank)]
        return TensorType(tuple(sizes), str(given.element_type))
    said = f"{name} is a tensor, such as tensor<?x?xf32> or !torch.vtensor<[?,?],f32>, not {given}"
    raise KernelError(operator.name, said)
