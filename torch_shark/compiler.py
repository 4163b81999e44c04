"""The planners of this process: one for each way that the knobs were set when it had to plan."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from torch_shark import _C
from torch_shark.cache import CacheKey, DiskCache
from torch_shark.config import config
from torch_shark.integrations import cache_artifacts

if TYPE_CHECKING:
    from torch_shark.kernels.kernel import Kernel
    from torch_shark.lowering.artifact import Answer
    from torch_shark.lowering.region import Region
    from torch_shark.patience import Patience
    from torch_shark.plan import Step
    from torch_shark.planner import Planner, PlannerStats, Waiting
    from torch_shark.record import WindowRecord
    from torch_shark.store import KeyParts
    from torch_shark.targets import Target
    from torch_shark.workers import Pool, Request


@dataclass(frozen=True, slots=True)
class Settings:
    """The knobs by which planners differ."""

    policy: str
    target: str
    flags: tuple[str, ...]
    disk_cache: bool
    cache_dir: Path
    cache_max_bytes: int
    dump_dir: Path

    @classmethod
    def now(cls) -> Settings:
        """Return what the knobs are."""
        return cls(
            config.policy,
            "cpu",
            config.compile_flags,
            config.disk_cache,
            config.cache_dir,
            config.cache_max_bytes,
            config.dump_dir or config.cache_dir / "failed",
        )

    def compiled_for(self) -> Target:
        """Return the target with the flags that were added."""
        from torch_shark.targets import get_target

        target = get_target(self.target)
        return replace(target, flags=(*target.flags, *self.flags))

    def store(self) -> _CacheOnDisk | None:
        """Return the cache on disk, if there is to be one."""
        if not self.disk_cache:
            return None
        return _CacheOnDisk(DiskCache(self.cache_dir, self.cache_max_bytes))


_lock = threading.Lock()
_planners: dict[Settings, Planner] = {}
_numbers: dict[Settings, int] = {}
_explained_misses: deque[str] = deque(maxlen=100)
_pending: list[_C.Signature] = []
_patience: list[Patience] = []
_LOOK_SECONDS = 0.01


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
        else:
            cache_artifacts.note(key, data)
        return data

    def put(self, key_parts: KeyParts, data: bytes) -> None:
        key = CacheKey.of(key_parts)
        self._cache.put(key, data)
        cache_artifacts.note(key, data)


def install(plan_window: Callable[[WindowRecord], list[Step]] | None = None) -> None:
    """Have the core ask here for plans; those that it has are forgotten.

    Args:
        plan_window: stands for `plan`, for tests.
    """
    _C.set_planner(plan_window or plan, request)


def plan(record: WindowRecord) -> list[Step]:
    """Return the steps of a window; the core calls this for each new signature.

    Planning has a thread of its own: the caller's may be inside any mode of PyTorch's (a default
    device, a dispatch mode, autocast), which would change what is traced.
    """
    answer: Future[list[Step]] = Future()
    settings = Settings.now()

    def work() -> None:
        try:
            answer.set_result(_planner(settings).plan(record))
        except BaseException as error:
            answer.set_exception(error)

    _work("iree").put(work)
    return answer.result()


def request(record: WindowRecord, signature: _C.Signature, wide: bool) -> None:
    """Begin to plan a window; the core is handed the steps when they are there.

    A window is asked for first as it is, then, if it goes on running, wide: with matrix products in
    its regions, which are to prove themselves.

    A window that waits for the compiler keeps no other waiting. One that cannot be planned stays
    native; that is told once, for it is a fault of ours.
    """
    from torch_shark.plan import NativeStep

    work, settings = _work("auto"), Settings.now()

    def planning() -> Waiting[None]:
        if wide:
            widened = yield from _planner(settings).widening(record)
            if widened is not None:
                _C.install_plan(signature, *widened)
        else:
            steps = yield from _planner(settings).planning(record)
            compiled = not all(isinstance(step, NativeStep) for step in steps)
            _C.install_plan(signature, steps, _C.Choice(2) if compiled else None)

    def advance() -> None:
        try:
            answer = next(waiting, None)
        except Exception as error:
            print(f"[shark] planning a window failed; it runs natively: {error!r}", file=sys.stderr)
            answer = None
        if answer is None:
            _pending.remove(signature)
        else:
            answer.add_done_callback(lambda _: work.put(advance))

    waiting = planning()
    _pending.append(signature)
    work.put(advance)


def pending() -> int:
    """Return how many windows have been asked for and are not planned yet."""
    return len(_pending)


def finish() -> None:
    """Compile at once what has been asked for under `auto`, and wait for it."""
    done = threading.Event()
    _work("auto").put(done.set)  # behind the windows that are not looked at yet
    done.wait()
    while _patience:
        _patience.pop().end()
    while _pending:
        time.sleep(_LOOK_SECONDS)


@cache
def _work(policy: str) -> SimpleQueue[Callable[[], None]]:
    """The queue of a policy's planning thread; the first call starts the thread."""
    work: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def serve() -> None:
        while True:
            work.get()()

    threading.Thread(target=serve, name=f"shark_planner_{policy}", daemon=True).start()
    return work


def stats() -> PlannerStats:
    """Return the counters of the planners together, all zero if there are none yet."""
    from torch_shark.planner import PlannerStats

    total = PlannerStats()
    for planner in _planners.values():
        total.add(planner.stats)
    return total


def decisions() -> list[str]:
    """Return a sentence for each region that was measured, with what it was decided to do."""
    return [told for planner in _planners.values() for told in planner.decisions]


def explained_misses() -> list[str]:
    """Return why the latest look-ups in the disk cache found nothing."""
    return list(_explained_misses)


def reset_stats() -> None:
    """Set the planners' counters to zero."""
    from torch_shark.planner import PlannerStats

    _explained_misses.clear()
    for planner in _planners.values():
        planner.stats = PlannerStats()


def forget() -> None:
    """Drop the planners and all that they have loaded; the next window makes others."""
    with _lock:
        _planners.clear()


def settings_number() -> int:
    """Return a number for the knobs as they are: windows under others have other plans."""
    return _numbers.setdefault(Settings.now(), len(_numbers))


def _planner(settings: Settings) -> Planner:
    with _lock:
        if settings not in _planners:
            _planners[settings] = _make_planner(settings)
        return _planners[settings]


def _make_planner(settings: Settings) -> Planner:
    from torch_shark.measure import Measured
    from torch_shark.patience import Patience
    from torch_shark.planner import Planner
    from torch_shark.runtime.executable import Executable

    target, store = settings.compiled_for(), settings.store()
    if settings.policy == "auto":
        patience = Patience(config.compile_delay / 1000, _pool().submit)
        _patience.append(patience)
        measured = Measured(target.candidates(), store)
        compile_region = _compiling(patience.submit, settings)
        return Planner(target, compile_region, Executable, store, measured, any_size=True)
    return Planner(target, _compiling(_pool().submit, settings), Executable, store)


def compile_kernel(kernel: Kernel) -> bytes:
    """Return the executable of a user's kernel alone; wait for the compiler if it is not stored.

    Raises:
        KernelError: it does not compile.
    """
    from torch_shark.environment import environment
    from torch_shark.kernels import KernelError

    settings = Settings.now()
    target, store = settings.compiled_for(), settings.store()
    key = [("kernel", kernel.digest), *environment(target)]
    stored = store.get(key) if store is not None else None
    if stored is not None:
        return stored
    (artifact,) = _compiling(_pool().submit, settings)(kernel, (target,)).result().artifacts
    if artifact.interface is None:
        raise KernelError(kernel.operator, artifact.reason.removeprefix("[shark] "))
    if store is not None:
        store.put(key, artifact.vmfb)
    return artifact.vmfb


def _compiling(
    submit: Callable[[Request], Future[Answer]], settings: Settings
) -> Callable[[Region | Kernel, Sequence[Target]], Future[Answer]]:
    """The way to have a region, or a user's kernel, compiled."""
    from torch_shark.workers import Request

    def compile_region(region: Region | Kernel, targets: Sequence[Target]) -> Future[Answer]:
        if config.debug >= 1:
            print(f"[shark] compiling {region.operators()}", file=sys.stderr)
        return submit(Request(region, tuple(targets), settings.dump_dir))

    return compile_region


@cache
def _pool() -> Pool:
    """The workers of this process."""
    from torch_shark.workers import Pool

    return Pool(
        config.compile_workers,
        memory_bytes=config.compile_memory,
        seconds=config.compile_seconds,
    )
