"""A process of the suite that answers with lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any


class Process:
    """A module of this package, run by a process of its own, which is killed if it takes too long.

    Its lines are `{"ready": true}` where it waits to be asked for something, and last the result. A
    process that ends without has the result `{"failed": ...}`.

    Args:
        module: which.
        arguments: its command line.
        environment: variables beside those of this process.
        limit: the longest time until a line, in seconds.
    """

    def __init__(
        self, module: str, arguments: list[str], environment: dict[str, str], limit: float
    ) -> None:
        # OpenMP threads that spin would take the cores from other threads, whichever the peer.
        variables = {"OMP_WAIT_POLICY": "passive"} | dict(os.environ) | environment
        self._limit = limit
        self._result: dict[str, Any] | None = None
        self._open = ExitStack()
        self._errors = self._open.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._process = self._open.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", f"torch_shark.bench.{module}", *arguments],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._open.close()

    def wait(self) -> None:
        """Return when it waits to be asked, or has ended."""
        late = threading.Event()

        def kill() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(self._limit, kill)
        timer.start()
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if late.is_set():
            self._result = {"failed": f"not done after {self._limit:.0f} s"}
        elif not line:
            status = self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace")
            self._result = {"failed": f"exit status {status}\n{said}"}
        elif (answer := json.loads(line)) != {"ready": True}:
            self._result = answer

    def ask(self, line: str) -> None:
        """Give it a line and wait for its answer, unless it has ended."""
        if self._result is None:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended, which the answer will tell
                self._process.stdin.write(line)
                self._process.stdin.flush()
            self.wait()

    def finish(self) -> dict[str, Any]:
        """Have it end; return its result."""
        if self._result is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self.wait()
        assert self._result is not None
        return self._result
