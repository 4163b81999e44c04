"""The two places where regions are compiled: this process, while the program waits, and workers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from torch_shark.lowering.artifact import Answer
from torch_shark.lowering.region import Region
from torch_shark.targets import Target
from torch_shark.workers import Pool, Request


class InProcess:
    """Compiles in this process, at once. The compiler is loaded by the first region.

    Args:
        dump_folder: where the MLIR of what does not compile is saved; None saves nothing.
    """

    def __init__(self, dump_folder: Path | None = None) -> None:
        self._dump_folder = dump_folder

    def compile(self, region: Region, targets: Sequence[Target]) -> Future[Answer]:
        """Compile a region for each of some targets; the future is done."""
        from torch_shark.lowering.lower import lower_region

        answer: Future[Answer] = Future()
        answer.set_result(lower_region(region, targets, self._dump_folder))
        return answer

    def refusal(self, region: Region, target: Target, whole: bool) -> str:
        """Return why a region does not lower, or does not compile as a whole; empty if it does."""
        from torch_shark.lowering.lower import check_lowers

        return check_lowers(region, target, whole)


class InWorkers:
    """Compiles in worker processes.

    Args:
        pool: the workers.
        dump_folder: where the MLIR of what does not compile is saved; None saves nothing.
    """

    def __init__(self, pool: Pool, dump_folder: Path | None = None) -> None:
        self._pool = pool
        self._dump_folder = dump_folder

    def compile(self, region: Region, targets: Sequence[Target]) -> Future[Answer]:
        """Have a region compiled for each of some targets; returns at once."""
        return self._pool.submit(Request(region, tuple(targets), self._dump_folder))

    def refusal(self, region: Region, target: Target, whole: bool) -> str:
        """Return why a region does not compile; empty if it does. A worker compiles all of it."""
        return self.compile(region, (target,)).result().artifacts[0].reason
