"""Pools over fake workers, whose numbers are known, and a region to send to them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

from torch_shark.lowering.region import Region
from torch_shark.record import Entry, StorageInfo, TensorRef
from torch_shark.targets import get_target
from torch_shark.workers import Pool, Request

MLIR = b"module {}"  # what a fake worker makes of any region
FAKE = Path(__file__).parent / "fake_worker.py"


def make_region(op: str = "aten::exp", size: int = 16, count: int = 1) -> Region:
    """A chain of one unary operator."""
    geometry = (torch.float32, (size,), (1,))
    refs = [TensorRef(s, *geometry, 0) for s in range(count + 1)]
    entries = [Entry(op, (refs[i],), (refs[i + 1],)) for i in range(count)]
    storages = [
        StorageInfo(4 * size, *geometry, born=s > 0, alive=s == count) for s in range(count + 1)
    ]
    return Region(tuple(entries), tuple(storages), (0,), (count,), (), ())


def is_gone(pid: int) -> bool:
    """Whether a process ends within a moment."""
    for _ in range(2000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


class Fakes:
    """A pool over fake workers."""

    def __init__(self, folder: Path, *behaviours: str, **limits: Any) -> None:
        self.log = folder / "started"
        self.log.touch()
        self.dumps = folder / "dumps"
        limits = {"memory_bytes": 1 << 30, "seconds": 60.0} | limits
        command = (sys.executable, "-S", str(FAKE), str(self.log), *behaviours)
        self.pool = Pool(command=command, **limits)

    def request(self, targets: int = 1, region: Region | None = None) -> Request:
        return Request(region or make_region(), (get_target("cpu"),) * targets, self.dumps)

    def pids(self) -> list[int]:
        return [int(line) for line in self.log.read_text().splitlines()]

    def counts(self) -> tuple[int, int, int, int]:
        """Requests done; workers started, crashed and timed out."""
        c = self.pool.counters
        return c.done, c.started, c.crashed, c.timed_out
