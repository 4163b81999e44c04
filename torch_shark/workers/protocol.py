"""Messages between the pool and a worker: frames over a socket.

A frame is a header (a mark, the kind, the payload's length) and a payload. Nothing but the standard
library is imported, and what a worker sends is never unpickled: it may come from a broken process.
"""

from __future__ import annotations

import socket
import struct
import time
from enum import IntEnum

_HEADER = struct.Struct("<4sBQ")
_MARK = b"shrk"
_LONGEST = 1 << 32
_PIECE = 1 << 20


class Kind(IntEnum):
    """What a frame says, and what its payload is.

    Attributes:
        READY: the worker has loaded the compiler; empty.
        REQUEST: the only kind to the worker; pickled arguments of `worker.compile_all`.
        LOWERED: the region is lowered; its MLIR as text.
        COMPILED: the answer for the next target; the artifact's bytes.
        REFUSED: as COMPILED, but before LOWERED for all targets; what was said against the region.
    """

    READY = 1
    REQUEST = 2
    LOWERED = 3
    COMPILED = 4
    REFUSED = 5


class GarbageError(Exception):
    """What was received is no frame."""


def send(
    channel: socket.socket, kind: Kind, payload: bytes = b"", deadline: float | None = None
) -> None:
    """Send a frame.

    Args:
        channel: where to.
        kind: what it says.
        payload: what belongs to it.
        deadline: by `time.monotonic`; None waits for as long as it takes.

    Raises:
        EOFError: nobody is at the other end.
        TimeoutError: the deadline has passed.
    """
    try:
        for part in (_HEADER.pack(_MARK, kind, len(payload)), payload):
            _set_timeout(channel, deadline)
            channel.sendall(part)
    except ConnectionError as error:
        raise EOFError from error


def receive(channel: socket.socket, deadline: float | None = None) -> tuple[Kind, bytes]:
    """Wait for a frame; return its kind and its payload.

    Args:
        channel: where from.
        deadline: by `time.monotonic`; None waits for as long as it takes.

    Raises:
        EOFError: nobody is at the other end.
        TimeoutError: the deadline has passed.
        GarbageError: it is no frame.
    """
    mark, number, size = _HEADER.unpack(_read(channel, _HEADER.size, deadline))
    if mark != _MARK or number not in set(Kind) or size > _LONGEST:
        raise GarbageError
    return Kind(number), _read(channel, size, deadline)


def _read(channel: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    try:
        while len(data) < size:
            _set_timeout(channel, deadline)
            piece = channel.recv(min(size - len(data), _PIECE))
            if not piece:
                raise EOFError
            data += piece
    except ConnectionError as error:
        raise EOFError from error
    return bytes(data)


def _set_timeout(channel: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    channel.settimeout(left)
