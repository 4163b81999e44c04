"""A model to a bundle: traced, decomposed, compiled for each target, written at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import iree.runtime as rt
import torch
from torch.export import ExportedProgram

from torch_shark.export.bundle import PARAMETERS, describe, new_folder, write_manifest
from torch_shark.export.capture import capture, check, check_for, signature
from torch_shark.export.compiler import compile_for
from torch_shark.export.decompose import decompose
from torch_shark.export.emit import ExportedModule, emit_program
from torch_shark.export.errors import ExportError
from torch_shark.export.manifest import Manifest, TargetEntry
from torch_shark.export.prepare import prepare
from torch_shark.lowering.compile import CompileError
from torch_shark.targets import Target, shipping_target


def write_bundle(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    path: Path,
    dynamic_shapes: Any,
    targets: Sequence[str],
) -> None:
    """Do what `torch.shark.export` says."""
    if isinstance(targets, str) or not targets:
        raise TypeError(f"[shark] expected a list of targets, got {targets!r}")
    chosen = list(dict.fromkeys(map(shipping_target, targets)))
    name = type(model).__name__
    with new_folder(path) as folder:
        for_cpu = all(target.driver == "local-task" for target in chosen)
        program = decompose(capture(model, args, kwargs, dynamic_shapes), for_cpu)
        check(program, name)
        called = signature(program, name)
        prepare(program)
        module = _emit(program, name)
        entries = []
        for target in chosen:
            file = f"{target.name.replace(':', '-')}.vmfb"
            check_for(target, program, name)
            (folder / file).write_bytes(_compile(module, target, name))
            entries.append(
                TargetEntry(target.name, file, target.driver, target.flags, target.cpu_features)
            )
        if module.parameters:
            _write_parameters(folder / PARAMETERS, module.parameters)
        manifest = Manifest(
            versions={
                "torch_shark": version("torch_shark"),
                "torch": torch.__version__,
                "torch-mlir": version("torch-mlir"),
                "iree": version("iree-base-compiler"),
            },
            function="module.main",
            signature=called,
            parameters=PARAMETERS if module.parameters else None,
            state=module.state,
            targets=tuple(entries),
            files=describe(folder),
        )
        write_manifest(folder, manifest)


def _emit(program: ExportedProgram, name: str) -> ExportedModule:
    try:
        return emit_program(program)
    except (NotImplementedError, TypeError, ValueError, AssertionError) as error:
        raise ExportError(name, f"torch-mlir's importer failed.\n{error}") from error


def _compile(module: ExportedModule, target: Target, name: str) -> bytes:
    try:
        return compile_for(module.text, target)
    except CompileError as failed:
        error = failed
    try:  # again, for the user's lines in what is said
        compile_for(module.located, target)
    except CompileError as located:
        error = located
    raise ExportError(name, f"IREE's compiler failed for {target.name}.\n{error}") from error


def _write_parameters(path: Path, parameters: dict[str, torch.Tensor]) -> None:
    """Write IREE's own archive: its entries are aligned, and the runtime maps the file."""
    index = rt.ParameterIndex()
    kept = []  # the index only refers to what it is given
    for name, tensor in parameters.items():
        data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        kept.append(data)
        index.add_buffer(name, data)
    index.create_archive_file(str(path))
