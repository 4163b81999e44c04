"""The way of a region through lowering: trace, emit, compile."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from torch_shark.lowering.compile import CompileError, compile_module
from torch_shark.lowering.emit import EmittedModule, emit_module
from torch_shark.lowering.interface import RegionInterface
from torch_shark.lowering.region import Region
from torch_shark.lowering.trace import trace_region
from torch_shark.targets import Target


class LoweringError(Exception):
    """A region does not lower or compile.

    The text names the step that failed, the operators, what was said, and the saved MLIR.
    """

    def __init__(self, step: str, region: Region, said: str, dump: Path | None = None) -> None:
        saved = f"\nThe MLIR is saved at {dump}" if dump is not None else ""
        super().__init__(f"[shark] {step} failed for {region.operators()}:\n{said}{saved}")
        self.step = step


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long lowering (trace and emit) and compiling took."""

    lowering: float
    compiling: float


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled region, as it is stored; or the record that it does not compile.

    Attributes:
        vmfb: the IREE executable.
        interface: how it is called; None if the region does not compile.
        used_inputs: positions of the region's inputs that it takes.
        reason: why the region does not compile.
    """

    vmfb: bytes
    interface: RegionInterface | None
    used_inputs: tuple[int, ...] = ()
    reason: str = ""

    @staticmethod
    def failed(reason: str) -> Artifact:
        """Returns the record of a failure."""
        return Artifact(b"", None, (), reason)

    def to_bytes(self) -> bytes:
        """Returns a line of JSON, and the executable after it."""
        head = {
            "interface": self.interface.to_json() if self.interface is not None else None,
            "used_inputs": self.used_inputs,
            "reason": self.reason,
        }
        return json.dumps(head).encode() + b"\n" + self.vmfb

    @staticmethod
    def from_bytes(data: bytes) -> Artifact | None:
        """Reads what `to_bytes` wrote; None if it is something else."""
        head, _, vmfb = data.partition(b"\n")
        try:
            fields = json.loads(head)
            text = fields["interface"]
            interface = RegionInterface.from_json(text) if text is not None else None
            return Artifact(vmfb, interface, tuple(fields["used_inputs"]), fields["reason"])
        except (ValueError, KeyError, TypeError):
            return None


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
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"region-{hash(module.text) & 0xFFFFFFFFFFFF:012x}.mlir"
    path.write_text(module.text)
    return path
