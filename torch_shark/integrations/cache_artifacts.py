"""Our cache's entries among those that `torch.compiler.save_cache_artifacts` carries elsewhere.

PyTorch keeps the bytes of what is noted until they are saved. So entries are noted from the first
time on that our backend compiles something, with those that were used before.
"""

from __future__ import annotations

import logging

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager
from typing_extensions import override

from torch_shark.cache import CacheKey, CorruptEntryError, DiskCache, decode, encode
from torch_shark.config import config

logger = logging.getLogger("torch_shark.cache")

_TYPE = "torch_shark"
_used: dict[str, CacheKey] | None = {}  # None once entries are noted


def register() -> None:
    """Let PyTorch know the type of our artifacts."""
    CacheArtifactFactory.register(_Entry)


def note(key: CacheKey, payload: bytes) -> None:
    """Take note of an entry that is used, or new."""
    if _used is None:
        CacheArtifactManager.record_artifact(_TYPE, key.digest, encode(key, payload))
    else:
        _used[key.digest] = key


def begin() -> None:
    """Let the entries that are used be saved, from now on and those so far."""
    global _used
    if _used is not None:
        keys, _used = _used.values(), None
        cache = _cache()
        for key in keys:
            payload = cache.get(key)
            if payload is not None:
                note(key, payload)


class _Entry(CacheArtifact):
    """An entry's file."""

    @override
    @staticmethod
    def type() -> str:
        return _TYPE

    @override
    def populate_cache(self) -> None:
        try:
            _cache().put(*decode(self.content))
        except CorruptEntryError as error:
            logger.warning("[shark] a cache artifact is not taken: %s", error)


def _cache() -> DiskCache:
    return DiskCache(config.cache_dir, config.cache_max_bytes)
