"""Modules of MLIR, and the types in them."""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from torch_shark.lowering.interface import RegionInterface


@dataclass(frozen=True, slots=True)
class EmittedModule:
    """A region as an MLIR module.

    Attributes:
        bytecode: the module, as MLIR bytecode.
        text: the module, as text, for dumps.
        interface: how the compiled function is called; inputs that are overwritten before they are
            read are no arguments of it.
    """

    bytecode: bytes
    text: str
    interface: RegionInterface


def create(name: str, result: ir.Type, *operands: ir.Value) -> ir.Value:
    """Return the result of a new operation that has one."""
    return ir.Operation.create(name, results=[result], operands=operands).result


def builtin_type(tensor: ir.Type) -> ir.Type:
    """Returns tensor<2x3xi64> for !torch.vtensor<[2,3],si64>."""
    sizes, _, element = str(tensor).removeprefix("!torch.vtensor<[")[:-1].partition("],")
    dims = [f"{size}x" for size in sizes.split(",") if size]
    return ir.Type.parse(f"tensor<{''.join(dims)}{element.lstrip('su')}>")
