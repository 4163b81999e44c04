"""The program of a worker process: it makes the process modest before anything large is imported.

It is run by its path, so that neither torch nor this package is imported first. Its arguments are
the bound of the worker's memory in bytes, and the folders where the parent finds its modules.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from contextlib import suppress

_NICENESS = 10
_PR_SET_PDEATHSIG = 1


def _bound(limit: int, value: int) -> None:
    """Lower a limit of the process to `value`; one that is lower already stays."""
    _, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _be_modest(memory_bytes: int) -> None:
    """Give way to the user's process, in time and in memory, and end with it."""
    os.nice(_NICENESS)
    _bound(resource.RLIMIT_DATA, memory_bytes)
    _bound(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":
        # For a compiler that keeps the GIL from the thread that watches the socket.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # if memory runs out, it is the first to go


def _take_channel() -> socket.socket:
    """Return the socket that is standard input; what the compiler starts does not inherit it."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


def main() -> None:
    """Become a worker."""
    _be_modest(int(sys.argv[1]))
    channel = _take_channel()
    sys.path[:] = sys.argv[2:]

    from torch_shark.workers.worker import serve

    serve(channel)


if __name__ == "__main__":
    main()
