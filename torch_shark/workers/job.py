"""A request to compile a region, and the job that leads from it to its answer."""

from __future__ import annotations

import hashlib
import pickle
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import torch

from torch_shark.kernels.kernel import Kernel
from torch_shark.lowering.artifact import Answer, Artifact, LoweringError
from torch_shark.lowering.region import Region
from torch_shark.targets import Target
from torch_shark.workers.process import WorkerLostError
from torch_shark.workers.protocol import GarbageError, Kind

STOPPED = "[shark] the compiler was stopped before the region was compiled"
_NAMED_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class Request:
    """A region to lower once, and to compile for each of some targets. It holds no tensor's data.

    Attributes:
        region: what to lower: a region, or a user's kernel alone.
        targets: candidates that differ in their flags, at least one, the safest first: what ends
            the compiler in one of them fails those after it too.
        dump_folder: where the MLIR of what does not compile is saved; None saves nothing.
        default_dtype: torch's default dtype when the region was recorded.
    """

    region: Region | Kernel
    targets: tuple[Target, ...]
    dump_folder: Path | None = None
    default_dtype: torch.dtype = field(default_factory=torch.get_default_dtype)

    def __post_init__(self) -> None:
        if not self.targets:
            raise ValueError("[shark] expected at least one target to compile for, got none")


class Job:
    """A request on its way, used by one thread at a time; `future` is for who made it."""

    def __init__(self, request: Request) -> None:
        self.future: Future[Answer] = Future()
        self.lowering_seconds = 0.0
        self.compiling_seconds = 0.0
        self._request = request
        self._artifacts: list[Artifact] = []
        self._mlir: bytes | None = None

    def message(self) -> bytes:
        """What a worker has to know to do the rest: the payload of a REQUEST."""
        request = self._request
        self._mlir = None
        targets = request.targets[len(self._artifacts) :]
        return pickle.dumps((request.region, targets, request.default_dtype))

    @property
    def is_done(self) -> bool:
        """Whether every target is answered."""
        return len(self._artifacts) == len(self._request.targets)

    def take(self, kind: Kind, payload: bytes, seconds: float) -> None:
        """Take a worker's frame, `seconds` after the one before.

        Raises:
            GarbageError: it is none that can come now.
        """
        if self._mlir is None:
            self.lowering_seconds += seconds
        else:
            self.compiling_seconds += seconds
        if kind is Kind.LOWERED and self._mlir is None:
            self._mlir = payload
        elif kind is Kind.REFUSED:
            self._refuse(payload.decode(errors="replace"))
        elif kind is Kind.COMPILED and self._mlir is not None:
            artifact = Artifact.from_bytes(payload)
            if artifact is None:
                raise GarbageError
            self._artifacts.append(artifact)
        else:
            raise GarbageError

    def lose(self, lost: WorkerLostError) -> None:
        """Take note that the worker is lost: what it has not answered has failed."""
        operators = self._request.region.operators()
        if len(operators) > _NAMED_CHARACTERS:
            count = operators.count(", ") + 1
            operators = f"{operators[:_NAMED_CHARACTERS]}... ({count} operators)"
        reason = f"[shark] {lost.what} in {self._step} of {operators}"
        if (dump := self._save_mlir()) is not None:
            reason += f"; the MLIR is saved at {dump}"
        if lost.printed:
            reason += f"; it printed last: {lost.printed}"
        self.fail(reason)

    def fail(self, reason: str) -> None:
        """Let what is not answered have failed for a reason."""
        missing = len(self._request.targets) - len(self._artifacts)
        self._artifacts += [Artifact.failed(reason)] * missing

    def give_up(self) -> None:
        """Fail before any worker had it, unless it is cancelled."""
        if self.future.set_running_or_notify_cancel():
            self.fail(STOPPED)
            self.answer(lasting=False)

    def answer(self, lasting: bool) -> None:
        """Give the answer to who waits for it."""
        artifacts = tuple(self._artifacts)
        self.future.set_result(
            Answer(artifacts, lasting, self.lowering_seconds, self.compiling_seconds)
        )

    @property
    def _step(self) -> str:
        return "tracing" if self._mlir is None else "compilation"

    def _refuse(self, said: str) -> None:
        """Let the next target have failed, or all if the region is not lowered yet."""
        error = LoweringError(self._step, self._request.region, said, self._save_mlir())
        if self._mlir is None:
            self.fail(str(error))
        else:
            self._artifacts.append(Artifact.failed(str(error)))

    def _save_mlir(self) -> Path | None:
        folder = self._request.dump_folder
        if folder is None or self._mlir is None:
            return None
        path = folder / f"region-{hashlib.blake2b(self._mlir, digest_size=8).hexdigest()}.mlir"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._mlir)
        except OSError:
            return None
        return path
