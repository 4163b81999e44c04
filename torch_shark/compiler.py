"""The planner of this process: made when the first window is to be planned, over the disk cache."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from torch_shark import config
from torch_shark.cache import CacheKey, DiskCache

if TYPE_CHECKING:
    from torch_shark.plan import KeyParts, Planner, PlannerStats, Step
    from torch_shark.record import WindowRecord

_lock = threading.Lock()
_planner: Planner | None = None


class _CacheOnDisk:
    """The disk cache as the planner wants it, with an explanation of each miss."""

    def __init__(self, cache: DiskCache) -> None:
        self._cache = cache

    def get(self, key_parts: KeyParts) -> bytes | None:
        return self._cache.get(CacheKey.of(key_parts))

    def put(self, key_parts: KeyParts, data: bytes) -> None:
        self._cache.put(CacheKey.of(key_parts), data)


def plan(record: WindowRecord) -> list[Step]:
    """Return the steps of a window; the core calls this for each new signature."""
    with _lock:
        return _get_planner().plan(record)


def stats() -> PlannerStats:
    """Return the counters of the planner, all zero if there is none yet."""
    from torch_shark.plan import PlannerStats

    return PlannerStats() if _planner is None else _planner.stats


def reset_stats() -> None:
    """Set the planner's counters to zero."""
    from torch_shark.plan import PlannerStats

    if _planner is not None:
        _planner.stats = PlannerStats()


def forget() -> None:
    """Drop the planner and all that it has loaded; the next window makes another."""
    global _planner
    with _lock:
        _planner = None


def _get_planner() -> Planner:
    global _planner
    if _planner is None:
        from torch_shark.plan import Planner
        from torch_shark.runtime.executable import Executable
        from torch_shark.targets import get_target

        disk = DiskCache(config.cache_dir, config.cache_max_bytes) if config.disk_cache else None
        _planner = Planner(
            get_target(config.target),
            Executable,
            _CacheOnDisk(disk) if disk is not None else None,
            config.dump_dir,
        )
    return _planner
