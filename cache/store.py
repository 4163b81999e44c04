"""Bytes in, bytes out: one file per entry, written whole or not at all.

An entry's file is, in little-endian order: magic, format version (u32), length of the record (u32),
length of the payload (u64), SHA-256 of all of that and of what follows (32 bytes), the record (the
key's parts as JSON, so that a miss can be explained) and the payload.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .key import CacheKey, Part

logger = logging.getLogger("torch_shark.cache")

ENTRY_SUFFIX = ".entry"
TEMPORARY_SUFFIX = ".part"

_MAGIC = b"SHARKENT"
_FORMAT_VERSION = 1
_PREFIX = struct.Struct("<8sIIQ")
_CHECKSUM_BYTES = hashlib.sha256().digest_size


class CorruptEntryError(ValueError):
    """A file in the cache's folder is not an entry as this version writes it."""


class Store:
    """Entries in one folder.

    Nothing here raises into the caller: what can't be read is a miss, and what can't be written is
    dropped with one warning. The folder is made at the first `put`.

    Args:
        folder: where the entries are; need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.removed_corrupt = 0
        self._warned = False

    def get(self, key: CacheKey) -> bytes | None:
        """Return the payload stored for `key` and mark it as just used, or None.

        A file that is truncated, altered or of another format version is removed.
        """
        path = self._path(key)
        try:
            stored_key, payload = decode(path.read_bytes())
            if stored_key != key:
                raise CorruptEntryError(f"expected the entry of {key.digest}, got another's")
        except CorruptEntryError as error:
            logger.info("removing %s: %s", path, error)
            self._remove_corrupt(path)
            return None
        except (OSError, ValueError):  # ValueError: a path that no file can have
            return None
        with contextlib.suppress(OSError):  # a folder that we may only read still serves
            _touch(path)
        return payload

    def put(self, key: CacheKey, payload: bytes) -> bool:
        """Store `payload` for `key`, in place of what was there; return whether it was stored."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._replace(self._path(key), encode(key, payload))
        except (OSError, ValueError) as error:
            self._warn(error)
            return False
        return True

    def stored_keys(self) -> Iterator[CacheKey]:
        """Yield the keys of all readable entries, the latest used first."""
        for path in sorted(_entries(self.folder), key=_last_use, reverse=True):
            with contextlib.suppress(OSError, CorruptEntryError), path.open("rb") as file:
                record_length, _ = _decode_prefix(file.read(_PREFIX.size))
                file.seek(_CHECKSUM_BYTES, os.SEEK_CUR)
                yield _decode_record(file.read(record_length))

    def _path(self, key: CacheKey) -> Path:
        return self.folder / (key.digest + ENTRY_SUFFIX)

    def _replace(self, path: Path, data: bytes) -> None:
        descriptor, name = tempfile.mkstemp(suffix=TEMPORARY_SUFFIX, dir=self.folder)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            _touch(temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _remove_corrupt(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
            self.removed_corrupt += 1

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "[shark] nothing is kept in the cache folder %s (%s): "
                "set TORCH_SHARK_CACHE_DIR to a folder that can be written",
                self.folder,
                error,
            )


def encode(key: CacheKey, payload: bytes) -> bytes:
    """Return the bytes of an entry's file."""
    record = json.dumps([[part.name, part.hash, part.text] for part in key.parts]).encode()
    prefix = _PREFIX.pack(_MAGIC, _FORMAT_VERSION, len(record), len(payload))
    return b"".join((prefix, _checksum(prefix, record, payload), record, payload))


def decode(data: bytes) -> tuple[CacheKey, bytes]:
    """Return the key and the payload of an entry's file.

    Raises:
        CorruptEntryError: the bytes are something else.
    """
    record_length, payload_length = _decode_prefix(data[: _PREFIX.size])
    record_start = _PREFIX.size + _CHECKSUM_BYTES
    payload_start = record_start + record_length
    if len(data) != payload_start + payload_length:
        raise CorruptEntryError(f"expected {payload_start + payload_length} bytes, got {len(data)}")
    prefix, checksum = data[: _PREFIX.size], data[_PREFIX.size : record_start]
    record, payload = data[record_start:payload_start], data[payload_start:]
    if _checksum(prefix, record, payload) != checksum:
        raise CorruptEntryError("the checksum differs")
    return _decode_record(record), payload


def _decode_prefix(prefix: bytes) -> tuple[int, int]:
    """Return the lengths in bytes of the record and of the payload."""
    if len(prefix) < _PREFIX.size:
        raise CorruptEntryError(f"expected a header of {_PREFIX.size} bytes, got {len(prefix)}")
    magic, version, record_length, payload_length = _PREFIX.unpack(prefix)
    if magic != _MAGIC or version != _FORMAT_VERSION:
        raise CorruptEntryError(f"expected format {_FORMAT_VERSION}, got {magic!r} {version}")
    return record_length, payload_length


def _decode_record(record: bytes) -> CacheKey:
    try:
        return CacheKey(tuple(Part(name, hash, text) for name, hash, text in json.loads(record)))
    except (ValueError, TypeError) as error:
        raise CorruptEntryError("the record of the key's parts is not readable") from error


def _checksum(*pieces: bytes) -> bytes:
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()


def _entries(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError, ValueError):
        return [path for path in folder.iterdir() if path.suffix == ENTRY_SUFFIX]
    return []


def _last_use(path: Path) -> int:
    """Time of the last use in ns; 0 for a file that another process has just removed."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _touch(path: Path) -> None:
    # An explicit time: the kernel's own stamps are milliseconds apart, too coarse for an order.
    now = time.time_ns()
    os.utime(path, ns=(now, now))
