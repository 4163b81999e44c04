"""A worker process as the pool sees it: started, spoken with, and ended.

Locking: a `WorkerProcess` belongs to the thread that started it; `kill` alone may be called from
another. No process forks while a worker is being started, so that a forked child knows all that it
has inherited of its parent's workers: it closes its copies of their sockets, through which they
would not see the parent end.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto

from torch_shark.workers import boot
from torch_shark.workers.protocol import GarbageError, Kind, receive, send

_PRINTED_CHARACTERS = 400
_MOMENT = 5.0  # seconds in which a process that has closed its socket, or was killed, ends

_starting = threading.Lock()
_all: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


class Ending(Enum):
    """How a worker was lost."""

    KILLED = auto()  # by a signal from outside
    CRASHED = auto()
    TIMED_OUT = auto()
    GARBAGE = auto()


class WorkerLostError(Exception):
    """A worker has ended, or was ended because it did not do what it should.

    Args:
        ending: how.
        what: the same in words.
        printed: the last that it printed, in one line.
    """

    def __init__(self, ending: Ending, what: str, printed: str) -> None:
        super().__init__(what, printed)
        self.ending = ending
        self.what = what
        self.printed = printed

    def __str__(self) -> str:
        return f"{self.what}; it printed last: {self.printed}" if self.printed else self.what


def worker_command(memory_bytes: int) -> list[str]:
    """The command of a worker that finds the modules of this process, within a memory bound.

    Raises:
        OSError: this process is a program of its own, that is no Python interpreter.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        raise OSError("there is no Python interpreter to run the compiler in")
    return [sys.executable, str(boot.__file__), str(memory_bytes), *sys.path]


def worker_environment() -> dict[str, str]:
    """The environment of this process without what is meant for it alone, for one thread."""
    kept = {"PYTHONHOME", "PYTHONPATH"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("TORCH_SHARK_", "PYTHON"))
    }
    return environment | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}


class WorkerProcess:
    """A worker process. What it prints goes to a file that nobody else sees.

    Signals that are blocked in the thread that starts it are blocked in the worker. Linux kills it
    when that thread ends, even if the whole process is killed.

    Args:
        command: the program and its arguments; it is given the socket as its standard input.

    Raises:
        OSError: it can't be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        with _starting:
            self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
            self._channel, theirs = socket.socketpair()
            # The file is cut at each request: the worker goes on at its end, wherever that is.
            fcntl.fcntl(self._printed, fcntl.F_SETFL, os.O_APPEND)
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=self._printed,
                    stderr=self._printed,
                    env=worker_environment(),
                )
            except BaseException:
                self._close()
                raise
            finally:
                theirs.close()
            _all.add(self)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def request(self, payload: bytes, seconds: float) -> None:
        """Send a request, and forget what was printed before; raises as `protocol.send` does."""
        self._printed.truncate(0)
        send(self._channel, Kind.REQUEST, payload, time.monotonic() + seconds)

    def receive(self, seconds: float) -> tuple[Kind, bytes]:
        """Wait for the worker's next frame; raises as `protocol.receive` does."""
        return receive(self._channel, time.monotonic() + seconds)

    def lose(self, error: Exception, seconds: float) -> WorkerLostError:
        """End a worker that can't be spoken with any more, and find out why.

        Args:
            error: what speaking with it raised: EOFError, TimeoutError or GarbageError.
            seconds: the time that it had.
        """
        ending, what = self._find_ending(error, seconds)
        printed = self._last_printed()
        self.end()
        return WorkerLostError(ending, what, printed)

    def kill(self) -> None:
        """Have the process end now; who waits for it learns that it is lost."""
        self._process.kill()

    def end(self) -> None:
        """End the process; a second call does nothing."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # inside the kernel, and gone when that lets it
            self._process.wait(_MOMENT)
        self._close()

    def forget(self) -> None:
        """Close this process's copies, in a forked child, of what belongs to its parent."""
        self._process.returncode = 0
        self._close()

    def _close(self) -> None:
        self._channel.close()
        self._printed.close()

    def _find_ending(self, error: Exception, seconds: float) -> tuple[Ending, str]:
        if isinstance(error, TimeoutError):
            return Ending.TIMED_OUT, f"the compiler took more than {seconds:g} s"
        if isinstance(error, GarbageError):
            return Ending.GARBAGE, "the compiler's process sent garbage"
        try:
            status = self._process.wait(_MOMENT)
        except subprocess.TimeoutExpired:
            return Ending.GARBAGE, "the compiler's process fell silent"
        number = -status if status < 0 else status - 128  # as shells say it, by a status above 128
        if number not in set(signal.Signals):
            return Ending.CRASHED, f"the compiler ended (exit code {status})"
        name = f"signal {number}, {signal.Signals(number).name}"
        if number in (signal.SIGKILL, signal.SIGTERM):
            return Ending.KILLED, f"the compiler's process was killed ({name})"
        return Ending.CRASHED, f"the compiler crashed ({name})"

    def _last_printed(self) -> str:
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - 4 * _PRINTED_CHARACTERS))
        words = self._printed.read().decode(errors="replace").split()
        return " ".join(words)[-_PRINTED_CHARACTERS:]


def _forget_all() -> None:
    for worker in _all:
        worker.forget()
    _all.clear()
    _starting.release()


os.register_at_fork(
    before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_forget_all
)
