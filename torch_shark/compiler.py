"""The planner of this process: made when the first window is to be planned, over the disk cache."""

from __future__ import annotations

import sys
import threading
from collections import deque
from concurrent.futures import Future
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING

from torch_shark.cache import CacheKey, DiskCache
from torch_shark.config import config

if TYPE_CHECKING:
    from torch_shark.plan import KeyParts, Planner, PlannerStats, Step
    from torch_shark.record import WindowRecord

_lock = threading.Lock()
_planner: Planner | None = None
_explained_misses: deque[str] = deque(maxlen=100)


class _CacheOnDisk:
    """The disk cache as the planner wants it; misses are explained when they happen."""

    def __init__(self, cache: DiskCache) -> None:
        self._cache = cache

    def get(self, key_parts: KeyParts) -> bytes | None:
        key = CacheKey.of(key_parts)
        data = self._cache.get(key)
        if data is None:
            name, text = key_parts[0]
            _explained_misses.append(f"{name} {text}: {self._cache.explain_miss(key)}")
        return data

    def put(self, key_parts: KeyParts, data: bytes) -> None:
        self._cache.put(CacheKey.of(key_parts), data)


def liftable() -> dict[str, list[int]]:
    """Return the arguments, by operator, whose floats are inputs of plans; the core asks once."""
    from torch_shark.lowering.scalars import LIFTABLE, liftable_positions

    return {name: sorted(liftable_positions(name)) for name in LIFTABLE}


def plan(record: WindowRecord) -> list[Step]:
    """Return the steps of a window; the core calls this for each new signature.

    Planning has a thread of its own: the caller's may be inside any mode of PyTorch's (a default
    device, a dispatch mode, autocast), which would change what is traced.
    """
    answer: Future[list[Step]] = Future()
    _requests().put((record, answer))
    return answer.result()


@cache
def _requests() -> SimpleQueue[tuple[WindowRecord, Future[list[Step]]]]:
    """The planning thread's queue; the first call starts the thread."""
    requests: SimpleQueue[tuple[WindowRecord, Future[list[Step]]]] = SimpleQueue()

    def serve() -> None:
        while True:
            record, answer = requests.get()
            try:
                answer.set_result(_plan(record))
            except BaseException as error:
                answer.set_exception(error)

    threading.Thread(target=serve, name="shark_planner", daemon=True).start()
    return requests


def _plan(record: WindowRecord) -> list[Step]:
    with _lock:
        planner = _get_planner()
        before = planner.stats.compiles
        steps = planner.plan(record)
        if config.debug >= 1 and planner.stats.compiles > before:
            for miss in planner.stats.misses[before - planner.stats.compiles :]:
                print(f"[shark] compiled region {miss}", file=sys.stderr)
        return steps


def stats() -> PlannerStats:
    """Return the counters of the planner, all zero if there is none yet."""
    from torch_shark.plan import PlannerStats

    return PlannerStats() if _planner is None else _planner.stats


def explained_misses() -> list[str]:
    """Return why the latest look-ups in the disk cache found nothing."""
    return list(_explained_misses)


def reset_stats() -> None:
    """Set the planner's counters to zero."""
    from torch_shark.plan import PlannerStats

    _explained_misses.clear()
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
            config.dump_dir or config.cache_dir / "failed",
        )
    return _planner
