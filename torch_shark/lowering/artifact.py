"""What lowering a region gives: an artifact that can be stored, or an error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from torch_shark.kernels.kernel import Kernel
from torch_shark.lowering.interface import RegionInterface
from torch_shark.lowering.region import Region


class LoweringError(Exception):
    """A region does not lower or compile.

    The text names the step that failed, the operators, all that was said, and the saved MLIR;
    `summary` is one line of it.
    """

    def __init__(
        self, step: str, region: Region | Kernel, said: str, dump: Path | None = None
    ) -> None:
        saved = f"\nThe MLIR is saved at {dump}" if dump is not None else ""
        super().__init__(f"[shark] {step} failed for {region.operators()}:\n{said}{saved}")

    @classmethod
    def again(cls, text: str) -> LoweringError:
        """Return an error of a known text: one that a worker or an earlier process met."""
        error = cls.__new__(cls)
        error.args = (text,)
        return error

    @property
    def summary(self) -> str:
        """The step, the operators, the first line of what was said, and where the MLIR is."""
        head, *said = str(self).removeprefix("[shark] ").split("\n")
        return " ".join(
            [head, *said[:1], *(line for line in said[1:] if line.startswith("The MLIR"))]
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of compiling a region.

    Attributes:
        artifacts: one for each of the targets; a failed one says why.
        lasting: the same region would be answered so again. If not, a failure says nothing of it:
            a worker was killed, did not start or took too long. Don't store it.
        lowering_seconds: wall time until the region was MLIR.
        compiling_seconds: wall time in IREE's compiler, for all targets.
    """

    artifacts: tuple[Artifact, ...]
    lasting: bool
    lowering_seconds: float = 0.0
    compiling_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled region, as it is stored; or the record that it does not compile.

    Attributes:
        vmfb: the IREE executable.
        interface: how it is called; None if the region does not compile.
        reason: why the region does not compile.
    """

    vmfb: bytes
    interface: RegionInterface | None
    reason: str = ""

    @staticmethod
    def failed(reason: str) -> Artifact:
        """Returns the record of a failure."""
        return Artifact(b"", None, reason)

    def to_bytes(self) -> bytes:
        """Returns a line of JSON, and the executable after it."""
        head = {
            "interface": self.interface.to_json() if self.interface is not None else None,
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
            return Artifact(vmfb, interface, fields["reason"])
        except (ValueError, KeyError, TypeError):
            return None
