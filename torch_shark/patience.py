"""Patience: nothing is compiled in the background before the program has run for a while.

A worker takes seconds of a core to start. A program that is over sooner would pay for it and get
nothing, and each program's first steps would share their cores with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from torch_shark.lowering.artifact import Answer
from torch_shark.workers import Request


class Patience:
    """Holds requests back for some time after the first one.

    Locking: `_lock` guards `_held`.

    Args:
        seconds: how long.
        submit: takes the requests then, and those that come later at once.
    """

    def __init__(self, seconds: float, submit: Callable[[Request], Future[Answer]]) -> None:
        self._seconds = seconds
        self._submit = submit
        self._lock = threading.Lock()
        self._held: list[tuple[Request, Future[Answer]]] | None = []  # None when it is over

    def submit(self, request: Request) -> Future[Answer]:
        """Have a region compiled, not before the time has come; returns at once."""
        with self._lock:
            if self._held is None:
                return self._submit(request)
            if not self._held:
                timer = threading.Timer(self._seconds, self.end)
                timer.daemon = True
                timer.start()
            answer: Future[Answer] = Future()
            self._held.append((request, answer))
            return answer

    def end(self) -> None:
        """Submit what is held, and from now on everything at once."""
        with self._lock:
            held, self._held = self._held or [], None
            for request, answer in held:
                self._submit(request).add_done_callback(_handing_on(answer))


def _handing_on(answer: Future[Answer]) -> Callable[[Future[Answer]], None]:
    return lambda submitted: answer.set_result(submitted.result())
