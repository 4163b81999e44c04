"""The pool of compile workers: requests go into a queue, answers come as futures."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import fields
from queue import Empty, SimpleQueue

from torch_shark.lowering.artifact import Answer
from torch_shark.workers.job import Job, Request
from torch_shark.workers.slot import Counters, Slot

_CLOSING_SECONDS = 2.0
_COUNTERS = fields(Counters)

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """Compiles regions in processes of their own, which are started when there is work for them.

    A compiler that crashes, hangs or runs out of memory takes its worker with it and nothing else.
    Workers end with this process, however it ends. A forked child has a new pool, without workers
    or requests: futures that it inherited are answered in its parent only.

    Locking: `_lock` guards the members that `submit`, `close` and finished requests change. All
    else belongs to the slots' threads.

    Args:
        count: how many workers there are at most.
        memory_bytes: bound of a worker's data in memory; torch and the compiler alone take 0.5 GB.
        seconds: how long lowering a region, and compiling it for one target, may take.
        command: the workers' command, for tests; None for this package's own.
    """

    def __init__(
        self,
        count: int = 1,
        *,
        memory_bytes: int,
        seconds: float,
        command: Sequence[str] | None = None,
    ) -> None:
        self._count = count
        self._memory_bytes = memory_bytes
        self._seconds = seconds
        self._command = command
        self._closed = False
        self._begin()
        _pools.add(self)
        atexit.register(self.close)

    def submit(self, request: Request) -> Future[Answer]:
        """Have a region compiled; returns at once.

        The future never raises: what a compiler does to its worker is in the answer. It can be
        cancelled until a worker has it. Its callbacks run in the pool's thread, which waits.
        """
        job = Job(request)
        job.future.add_done_callback(self._settle)
        with self._lock:
            self._unsettled += 1
            accepted = not self._closed and self._have_slot()
            if accepted:
                self._jobs.put(job)
        if not accepted:
            job.give_up()
        return job.future

    @property
    def counters(self) -> Counters:
        """What has happened so far, in all workers."""
        with self._lock:
            slots = list(self._slots)
        return Counters(
            **{f.name: sum(getattr(slot.counters, f.name) for slot in slots) for f in _COUNTERS}
        )

    def close(self) -> None:
        """Kill the workers; requests that are not answered fail. A second call does nothing."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            slots = list(self._slots)
        for slot in slots:
            slot.stop()
        with suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:
                job.give_up()
        for _ in slots:
            self._jobs.put(None)
        for slot in slots:
            slot.join(_CLOSING_SECONDS)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._slots: list[Slot] = []
        self._unsettled = 0

    def _have_slot(self) -> bool:
        """Start another thread if all are busy and there may be more; False if there is none."""
        if len(self._slots) < min(self._count, self._unsettled):
            # Python starts no thread any more once it is ending, and the system not at its limit.
            with suppress(RuntimeError):
                self._slots.append(
                    Slot(self._jobs, self._command, self._memory_bytes, self._seconds)
                )
        return bool(self._slots)

    def _settle(self, _: Future[Answer]) -> None:
        with self._lock:
            self._unsettled -= 1


def _begin_all() -> None:
    for pool in _pools:
        pool._begin()


os.register_at_fork(after_in_child=_begin_all)
