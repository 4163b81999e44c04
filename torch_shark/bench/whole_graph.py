"""A module or function as one IREE executable, as `torch.export` and torch-mlir give it."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import iree.runtime as rt
import torch
from iree.compiler import ir
from iree.compiler.extras.fx_importer import FxImporter
from torch import nn
from torch._decomp import get_decompositions
from torch.utils._pytree import tree_leaves
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

from torch_shark.lowering.compile import compile_module
from torch_shark.targets import get_target

# It packs the operands of matrix products: those that are weights once, when compiling.
TARGET = replace(get_target("cpu"), flags=(*get_target("cpu").flags, "--iree-opt-data-tiling=true"))


class WholeGraph:
    """Compiles its function at the first call, for the shapes that it is then given.

    Tensors that are passed are imported once: they must not change between calls.

    Args:
        function: a module, or a function of tensors, that returns one tensor.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._module = function if isinstance(function, nn.Module) else _Function(function)
        self._invoke: Callable[..., Any] | None = None
        self._imported: dict[int, tuple[torch.Tensor, rt.DeviceArray]] = {}
        self.compile_seconds = 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Call it, once compiled."""
        if self._invoke is None:
            start = time.perf_counter()
            self._config = rt.Config("local-task")
            executable = compile_module(_export(self._module, args, kwargs), TARGET)
            module = rt.VmModule.copy_buffer(self._config.vm_instance, executable)
            self._invoke = rt.load_vm_module(module, self._config)["main"]
            self.compile_seconds = time.perf_counter() - start
        result = self._invoke(*[self._import(leaf) for leaf in tree_leaves((args, kwargs))])
        return torch.from_numpy(result.to_host())

    def _import(self, tensor: torch.Tensor) -> rt.DeviceArray:
        if id(tensor) not in self._imported:
            array = rt.asdevicearray(self._config.device, tensor.numpy())
            self._imported[id(tensor)] = tensor, array
        return self._imported[id(tensor)][1]


class _Function(nn.Module):
    """A function as the module that `torch.export` wants."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any) -> Any:
        return self._function(*args)


def _export(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """A module as MLIR bytecode, its parameters as constants."""
    aten = torch.ops.aten
    table = get_decomposition_table()
    table.update(get_decompositions([aten._scaled_dot_product_flash_attention_for_cpu]))
    program = torch.export.export(module, args, kwargs).run_decompositions(table)
    # The importer looks for buffers there, those that are not saved included.
    program.state_dict.update(program.constants)
    importer = FxImporter(context=ir.Context(), config_check=False)
    importer.import_frozen_program(program)
    bytecode = io.BytesIO()
    importer.module_op.write_bytecode(bytecode)
    return bytecode.getvalue()
