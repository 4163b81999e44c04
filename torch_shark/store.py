"""Where executables, refusals and decisions are kept between processes."""

from __future__ import annotations

from typing import Protocol

KeyParts = list[tuple[str, str]]


class ByteStore(Protocol):
    """Bytes by named parts. An unreadable item is a miss."""

    def get(self, key_parts: KeyParts) -> bytes | None:
        """Return the bytes stored under a key, or None."""

    def put(self, key_parts: KeyParts, data: bytes) -> None:
        """Store bytes under a key."""
