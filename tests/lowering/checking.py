"""The check that most tests of lowering share: a function planned and run equals the CPU."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from recording import Recording, Run, alive_values, record, run_plan

from torch_shark.lowering.artifact import Answer
from torch_shark.lowering.region import Region
from torch_shark.planner import Compile, Planner
from torch_shark.store import KeyParts
from torch_shark.targets import Target
from torch_shark.workers.job import Job, Request
from torch_shark.workers.protocol import Kind

# Half-width results may differ by the rounding of one intermediate: two units in the last place.
_TOLERANCES = {
    torch.float32: (1e-5, 1e-5),
    torch.float64: (1e-12, 1e-12),
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 8e-3),
}


class MemoryStore:
    """A byte store that lives as long as the test."""

    def __init__(self) -> None:
        self.items: dict[tuple[tuple[str, str], ...], bytes] = {}

    def get(self, key_parts: KeyParts) -> bytes | None:
        return self.items.get(tuple(key_parts))

    def put(self, key_parts: KeyParts, data: bytes) -> None:
        self.items[tuple(key_parts)] = data


def in_process(dump_folder: Path | None = None) -> Compile:
    """Returns what compiles in this process, at once."""

    def compile_region(region: Region, targets: Sequence[Target]) -> Future[Answer]:
        from torch_shark.workers import worker  # loads the compiler

        job = Job(Request(region, tuple(targets), dump_folder))
        began = time.monotonic()

        def take(kind: Kind, payload: bytes = b"") -> None:
            nonlocal began
            now = time.monotonic()
            job.take(kind, payload, now - began)
            began = now

        worker.compile_all(take, *pickle.loads(job.message()))
        job.answer(lasting=True)
        return job.future

    return compile_region


def assert_same(run: Run, recording: Recording, atol: float | None = None) -> None:
    """Compares every storage that is alive after the window: inputs must be left as they were."""
    for planned, expected in alive_values(run, recording):
        rtol, default_atol = _TOLERANCES.get(expected.dtype, (0.0, 0.0))
        torch.testing.assert_close(
            planned, expected, rtol=rtol, atol=atol or default_atol, equal_nan=True
        )


def check(
    planner: Planner,
    function: Callable[..., Any],
    *args: Any,
    native: Sequence[str] = (),
    host: Sequence[torch.Tensor] = (),
    atol: float | None = None,
) -> Run:
    """Records a function, plans and runs it, and compares; returns the run for its counters.

    Args:
        planner: makes the plan.
        function: returns the tensors that stay alive.
        args: its arguments.
        native: the operators that are expected to run natively, in order.
        host: 0-d CPU tensors among the arguments.
        atol: absolute tolerance, if not the dtype's.
    """
    recording = record(function, *args, host=host)
    run = run_plan(planner.plan(recording.record), recording)
    assert run.native == list(native), planner.stats.failures
    assert_same(run, recording, atol)
    return run
