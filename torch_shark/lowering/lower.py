"""The way of a region through lowering: trace, emit, compile.

Importing this module loads the compiler, which takes a second: only who compiles imports it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

from torch_shark.lowering.artifact import Answer, Artifact, LoweringError
from torch_shark.lowering.compile import CompileError, compile_module
from torch_shark.lowering.emit import EmittedModule, emit_module
from torch_shark.lowering.region import Region
from torch_shark.lowering.trace import trace_region
from torch_shark.targets import Target


def lower_region(
    region: Region, targets: Sequence[Target], dump_folder: Path | None = None
) -> Answer:
    """Lower a region, and compile it for each of some targets."""
    start = time.perf_counter()
    try:
        module = _emit(region)
    except LoweringError as error:
        failed = Artifact.failed(str(error))
        return Answer((failed,) * len(targets), True, time.perf_counter() - start)
    lowered = time.perf_counter()
    artifacts = []
    for target in targets:
        try:
            vmfb = compile_module(module.bytecode, target)
            artifacts.append(Artifact(vmfb, module.interface, module.used_inputs))
        except CompileError as error:
            dump = _dump(module, dump_folder)
            failure = LoweringError("compilation", region, str(error), dump)
            artifacts.append(Artifact.failed(str(failure)))
    return Answer(tuple(artifacts), True, lowered - start, time.perf_counter() - lowered)


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
