"""An exported program as an MLIR module whose parameters are in a file of their own.

IREE's own importer translates the nodes; the function around them is ours. Each parameter and
buffer is a global that the runtime fills from the archive when the module is loaded; a buffer that
the model writes is a mutable one, and stays with the loaded program from call to call.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import torch
from iree.compiler import ir
from iree.compiler.dialects import func
from iree.compiler.extras.fx_importer import FxImporter, GraphNodeImporter, rewrite_as_strided
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.fx import Node

from torch_shark.export.manifest import SCOPE
from torch_shark.kernels.kernel import Kernel, registered_kernels
from torch_shark.lowering.elements import ELEMENTS
from torch_shark.lowering.emit import write_barriers
from torch_shark.lowering.kernels import write_kernels


@dataclass(frozen=True, slots=True)
class ExportedModule:
    """A program as an MLIR module.

    Attributes:
        text: the module, which tells nothing of the user's files: an executable keeps their names.
        located: the module as bytecode, with the user's lines, for the compiler's errors.
        parameters: what the archive has to hold, by name.
        state: the names among them of the buffers that the program writes.
    """

    text: bytes
    located: bytes
    parameters: dict[str, torch.Tensor]
    state: tuple[str, ...]


def emit_program(program: ExportedProgram) -> ExportedModule:
    """Translate a program whose operators are decomposed.

    Raises:
        NotImplementedError, TypeError, ValueError, AssertionError: the importer knows no
            translation of a node.
    """
    rewrite_as_strided(program.graph)
    specs = program.graph_signature
    # By position: rewriting the graph gave some nodes other names.
    inputs = list(zip(specs.input_specs, program.graph.find_nodes(op="placeholder"), strict=True))
    user_inputs = [
        node
        for spec, node in inputs
        if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    ]
    (returned,) = program.graph.output_node().args
    assert isinstance(returned, (list, tuple))
    pairs = list(zip(specs.output_specs, returned, strict=True))
    results = [
        node
        for spec, node in pairs
        if spec.kind == OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
    ]
    written = {spec.target: node for spec, node in pairs if spec.kind == OutputKind.BUFFER_MUTATION}

    context = ir.Context()
    importer = FxImporter(context=context, config_check=False)
    cache = importer._cc
    with context, ir.Location.unknown(context):
        parameters = _Parameters(importer, program, set(written))
        types = [cache.node_val_to_type(node) for node in user_inputs]
        result_types = [cache.node_val_to_type(node) for node in results]
        function = func.FuncOp("main", (types, result_types))
        function.attributes["torch.assume_strict_symbolic_shapes"] = ir.UnitAttr.get()
        block = ir.Block.create_at_start(function.body, types)
        importer_of_nodes = GraphNodeImporter(importer, context, cache, block)
        for node, value in zip(user_inputs, block.arguments, strict=True):
            importer_of_nodes.bind_node_value(node, value)
        with ir.InsertionPoint(block):
            for spec, node in inputs:
                if spec.kind != InputKind.USER_INPUT and (node.users or spec.target in written):
                    importer_of_nodes.bind_node_value(node, parameters.load(node, spec))
        importer._import_all_child_modules(program.graph.owning_module, "main")
        importer_of_nodes.import_nodes(program.graph.nodes, skip_placeholders_outputs=True)
        with ir.InsertionPoint(block):
            for target, node in written.items():
                parameters.store(target, importer_of_nodes.resolve_node_value(node))
            func.ReturnOp([importer_of_nodes.resolve_node_value(node) for node in results])
        write_barriers(block)
        write_kernels(importer.module_op, block, _kernels())
        importer._m_ip.insert(function)
    text = importer.module_op.get_asm(enable_debug_info=False).encode()
    located = io.BytesIO()
    importer.module_op.write_bytecode(located)
    return ExportedModule(text, located.getvalue(), parameters.tensors, tuple(written))


def _kernels() -> dict[str, Kernel]:
    """Return the users' kernels by the names that operators have in the torch dialect."""
    return {
        "torch." + kernel.operator.replace("::", "."): kernel for kernel in registered_kernels()
    }


class _Parameters:
    """The module's globals, and the tensors that fill them."""

    def __init__(self, importer: FxImporter, program: ExportedProgram, written: set[str]) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._importer = importer
        self._program = program
        self._written = written
        self._names: dict[Any, str] = {}
        # Before the functions: the compiler refuses a store to a global that comes later.
        self._globals = ir.InsertionPoint.at_block_begin(importer.module_op.regions[0].blocks[0])

    def load(self, node: Node, spec: Any) -> ir.Value:
        """Return the value that a parameter, buffer or constant has when the function begins."""
        held = self._program.state_dict if spec.persistent else self._program.constants
        tensor = self._program.state_dict.get(spec.target, held.get(spec.target))
        if tensor is None:
            tensor = self._program.constants[spec.target]
        name = self._declare(spec.target, tensor.detach())
        loaded = ir.Operation.create(
            "util.global.load",
            results=[_builtin_type(tensor)],
            attributes={"global": ir.FlatSymbolRefAttr.get(name)},
        )
        return ir.Operation.create(
            "torch_c.from_builtin_tensor",
            results=[self._importer._cc.node_val_to_type(node)],
            operands=[loaded.result],
        ).result

    def store(self, target: str, value: ir.Value) -> None:
        """Write what a buffer has when the function ends."""
        builtin = ir.Operation.create(
            "torch_c.to_builtin_tensor",
            results=[_builtin_type(self.tensors[target])],
            operands=[value],
        )
        ir.Operation.create(
            "util.global.store",
            operands=[builtin.result],
            attributes={"global": ir.FlatSymbolRefAttr.get(target)},
        )

    def _declare(self, target: str, tensor: torch.Tensor) -> str:
        """Return the name of a tensor's global: tied parameters have one."""
        is_written = target in self._written
        same = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if not is_written and tensor.numel():
            target = self._names.setdefault(same, target)
        if target not in self.tensors:
            self.tensors[target] = tensor
            mutable = "mutable " if is_written else ""
            self._globals.insert(
                ir.Operation.parse(
                    f'util.global private {mutable}@"{target}" = '
                    f'#flow.parameter.named<"{SCOPE}"::"{target}"> : {_builtin_type(tensor)}'
                )
            )
        return target


def _builtin_type(tensor: torch.Tensor) -> ir.Type:
    sizes = "".join(f"{size}x" for size in tensor.shape)
    return ir.Type.parse(f"tensor<{sizes}{ELEMENTS[tensor.dtype]}>")
