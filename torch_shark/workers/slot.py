"""A thread of the pool: it takes jobs from the queue and has its worker do them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from torch_shark.workers.job import STOPPED, Job
from torch_shark.workers.process import (
    Ending,
    WorkerLostError,
    WorkerProcess,
    worker_command,
)
from torch_shark.workers.protocol import GarbageError

_IDLE_SECONDS = 60.0  # after which a worker gives back its memory
_START_SECONDS = 120.0
_MOST_FAILED_STARTS = 3  # in a row
_BROKEN = (EOFError, TimeoutError, GarbageError)


@dataclass(slots=True)
class Counters:
    """What has happened; times in seconds of wall time.

    Attributes:
        done: requests answered, those that failed among them.
        started: worker processes started.
        crashed: workers that ended, were killed, or sent garbage, while they had a request.
        timed_out: workers that took too long.
        lowering_seconds: spent tracing and making MLIR.
        compiling_seconds: spent in IREE's compiler.
    """

    done: int = 0
    started: int = 0
    crashed: int = 0
    timed_out: int = 0
    lowering_seconds: float = 0.0
    compiling_seconds: float = 0.0


class NoWorkerError(Exception):
    """No worker can be had; the text says why."""


class Slot:
    """A thread and the worker that it keeps. All but `stop` and `join` is the thread's own.

    Args:
        jobs: the pool's queue; None ends the thread.
        command: the worker's command; None for this package's own.
        memory_bytes: bound of a worker's memory.
        seconds: how long a worker may take for one step, lowering or compiling for one target.
    """

    def __init__(
        self,
        jobs: SimpleQueue[Job | None],
        command: Sequence[str] | None,
        memory_bytes: int,
        seconds: float,
    ) -> None:
        self.counters = Counters()
        self._jobs = jobs
        self._command = command
        self._memory_bytes = memory_bytes
        self._seconds = seconds
        self._worker: WorkerProcess | None = None
        self._failed_starts: list[str] = []
        self._stopping = False
        # A daemon: the interpreter does not wait for it when it ends.
        self._thread = threading.Thread(target=self._run, name="shark_compiler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Kill the worker; from now on every job fails at once."""
        self._stopping = True
        if (worker := self._worker) is not None:
            worker.kill()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, but no longer than some seconds."""
        self._thread.join(seconds)

    def _run(self) -> None:
        # Workers inherit it, and so don't mind a Ctrl-C in the terminal. And where the user's
        # process lets SIGPIPE end it, it must not when a worker ends.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGPIPE})
        while (job := self._next_job()) is not None:
            if self._stopping:
                job.give_up()
            elif job.future.set_running_or_notify_cancel():
                lasting = self._carry_out(job)
                self.counters.done += 1
                self.counters.lowering_seconds += job.lowering_seconds
                self.counters.compiling_seconds += job.compiling_seconds
                job.answer(lasting)
        self._end_worker()

    def _next_job(self) -> Job | None:
        try:
            return self._jobs.get(timeout=None if self._worker is None else _IDLE_SECONDS)
        except Empty:
            self._end_worker()
            return self._jobs.get()

    def _carry_out(self, job: Job) -> bool:
        """Do a job, or let it fail; whether its answer lasts."""
        try:
            self._converse_twice(job)
        except Exception as error:
            if self._stopping:
                job.fail(STOPPED)
            elif isinstance(error, WorkerLostError):
                job.lose(error)
                return error.ending is Ending.CRASHED
            else:
                job.fail(f"[shark] the region did not reach the compiler: {error}")
                self._end_worker()  # it may be about to answer
            return False
        return True

    def _converse_twice(self, job: Job) -> None:
        """Have a worker do a job, and another what is left of it if the first is killed."""
        try:
            self._converse(job)
        except WorkerLostError as lost:
            if lost.ending is not Ending.KILLED or self._stopping:
                raise
            self._converse(job)

    def _converse(self, job: Job) -> None:
        """Have a worker do a job.

        Raises:
            WorkerLostError: the worker is lost in the midst of it.
            NoWorkerError: none starts.
        """
        message = job.message()
        worker = self._ready_worker()
        try:
            worker.request(message, self._seconds)
            while not job.is_done:
                start = time.monotonic()
                kind, payload = worker.receive(self._seconds)
                job.take(kind, payload, time.monotonic() - start)
        except _BROKEN as error:
            lost = self._lose_worker(worker, error, self._seconds)
            if lost.ending is Ending.TIMED_OUT:
                self.counters.timed_out += 1
            elif not self._stopping:
                self.counters.crashed += 1
            raise lost from error

    def _ready_worker(self) -> WorkerProcess:
        """The worker that is there, or a new one if there is none or it was killed meanwhile."""
        if self._worker is not None and self._worker.is_alive():
            return self._worker
        self._end_worker()
        if len(self._failed_starts) == _MOST_FAILED_STARTS:
            raise NoWorkerError(self._failed_starts[-1])
        try:
            worker = self._start_worker()
            self._failed_starts.clear()
            return worker
        except (OSError, WorkerLostError) as error:
            if isinstance(error, WorkerLostError) and error.ending is Ending.KILLED:
                raise
            self._failed_starts.append(f"its worker does not start: {error}")
            raise NoWorkerError(self._failed_starts[-1]) from error

    def _start_worker(self) -> WorkerProcess:
        command = self._command or worker_command(self._memory_bytes)
        worker = self._worker = WorkerProcess(command)
        self.counters.started += 1
        if self._stopping:  # and `stop` may have come too early to see the worker
            worker.kill()
        try:
            worker.receive(_START_SECONDS)
        except _BROKEN as error:
            raise self._lose_worker(worker, error, _START_SECONDS) from error
        return worker

    def _lose_worker(
        self, worker: WorkerProcess, error: Exception, seconds: float
    ) -> WorkerLostError:
        self._worker = None
        return worker.lose(error, seconds)

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None
