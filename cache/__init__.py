"""A cache on disk: named parts in the key, bytes in the entries, a bound on the size."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from .eviction import evict
from .key import CacheKey, Part
from .store import CorruptEntryError, Store, decode, encode

__all__ = ["CacheKey", "CorruptEntryError", "Counters", "DiskCache", "Part", "decode", "encode"]

_MOST_COMPARED = 200


@dataclass
class Counters:
    """What a `DiskCache` of this process has done since it was made."""

    hits: int = 0
    misses: int = 0
    writes: int = 0
    removed_corrupt: int = 0
    evicted: int = 0


class DiskCache:
    """Entries in a folder that several processes share, bounded in size.

    No method raises for the state of the folder. Calls from several threads take turns.

    Args:
        folder: where the entries are; made at the first `put`.
        max_bytes: bound of all entries together, in bytes; a payload that is larger is not stored.
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int) -> None:
        self._store = Store(Path(folder))
        self._max_bytes = max_bytes
        self._counters = Counters()
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path:
        """Where the entries are."""
        return self._store.folder

    @property
    def counters(self) -> Counters:
        """A copy of the counters as they are now."""
        with self._lock:
            return replace(self._counters, removed_corrupt=self._store.removed_corrupt)

    def get(self, key: CacheKey) -> bytes | None:
        """Return the payload stored for `key`, or None."""
        with self._lock:
            payload = self._store.get(key)
            if payload is None:
                self._counters.misses += 1
            else:
                self._counters.hits += 1
            return payload

    def put(self, key: CacheKey, payload: bytes) -> None:
        """Store `payload` for `key`, then evict what exceeds the bound."""
        if len(payload) > self._max_bytes:
            return
        with self._lock:
            if self._store.put(key, payload):
                self._counters.writes += 1
                self._counters.evicted += evict(self.folder, self._max_bytes)

    def explain_miss(self, key: CacheKey) -> str:
        """Say in one sentence in which parts the nearest entry differs from `key`.

        The first part of a key says what is stored, the others where it is valid. The nearest entry
        has the same first part, then the fewest differences; of several, the latest used one. Only
        the latest used entries are compared, so that a large cache costs a miss little.
        """
        latest = list(islice(self._store.stored_keys(), _MOST_COMPARED))
        if not latest:
            return f"the cache folder {self.folder} holds no entries"
        nearest = min(
            latest,
            key=lambda stored: (stored.parts[0] != key.parts[0], len(key.differences(stored))),
        )
        if nearest.parts[0] != key.parts[0]:
            return f"the cache has no entry of this {key.parts[0].name}"
        if nearest == key:
            return "the cache holds this entry"
        return "differs from the nearest entry in: " + ", ".join(key.differences(nearest))
