"""The way of a region through lowering: trace, emit, compile.

Importing this module loads the compiler, which takes a second: only who compiles imports it.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from torch_shark.lowering.artifact import Artifact, LoweringError
from torch_shark.lowering.compile import CompileError, compile_module
from torch_shark.lowering.emit import EmittedModule, emit_module
from torch_shark.lowering.region import Region
from torch_shark.lowering.trace import trace_region
from torch_shark.targets import Target


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long lowering (trace and emit) and compiling took."""

    lowering: float
    compiling: float


def lower_region(
    region: Region, target: Target, dump_folder: Path | None
) -> tuple[Artifact, Seconds]:
    """Lowers and compiles a region.

    Raises:
        LoweringError: some step refused it.
    """
    start = time.perf_counter()
    module = _emit(region)
    lowered = time.perf_counter()
    try:
        vmfb = compile_module(module.bytecode, target)
    except CompileError as error:
        raise LoweringError(
            "compilation", region, str(error), _dump(module, dump_folder)
        ) from error
    seconds = Seconds(lowered - start, time.perf_counter() - lowered)
    return Artifact(vmfb, module.interface, module.used_inputs), seconds


def check_lowers(region: Region, target: Target, whole: bool) -> None:
    """Lowers a region to IREE's input form, or compiles it wholly, and forgets the result.

    Raises:
        LoweringError: some step refused it.
    """
    module = _emit(region)
    try:
        compile_module(module.bytecode, target, None if whole else "input")
    except CompileError as error:
        raise LoweringError("lowering", region, str(error)) from error


def _emit(region: Region) -> EmittedModule:
    try:
        return emit_module(trace_region(region), region)
    except Exception as error:  # Decompositions and the importer raise whatever they like.
        raise LoweringError("tracing", region, f"{type(error).__name__}: {error}") from error


def _dump(module: EmittedModule, folder: Path | None) -> Path | None:
    """Saves a module that does not compile; None if there is no place for it."""
    if folder is None:
        return None
    name = hashlib.blake2b(module.text.encode(), digest_size=8).hexdigest()
    path = folder / f"region-{name}.mlir"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(module.text)
    except OSError:
        return None
    return path
