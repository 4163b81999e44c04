"""Counters: what the device did, so that nothing about it has to be guessed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from torch_shark import _C, compiler


@dataclass(frozen=True)
class Metrics:
    """Counts since the process began or since `reset_metrics`; times in seconds.

    Args:
        recorded: operators recorded.
        windows: windows submitted.
        inline_windows: windows that ran on the thread that waited for them.
        flushes: windows by the reason that ended them.
        native_steps: operators run by the native device's own kernels, by name.
        regions: runs of compiled regions.
        region_operators: recorded operators that ran inside regions.
        plans: windows planned, one for each new signature.
        pending: windows that are being planned now, and compiled, in the background.
        compiles: regions compiled.
        memory_hits: regions of new plans that this process had already.
        disk_hits: regions of new plans that came from the cache on disk.
        failures: regions and operators that did not compile.
        lowering_seconds: spent making MLIR.
        compiling_seconds: spent in IREE's compiler.
        running_seconds: spent running windows, planning included.
    """

    recorded: int
    windows: int
    inline_windows: int
    flushes: dict[str, int]
    native_steps: dict[str, int]
    regions: int
    region_operators: int
    plans: int
    pending: int
    compiles: int
    memory_hits: int
    disk_hits: int
    failures: int
    lowering_seconds: float
    compiling_seconds: float
    running_seconds: float

    def as_dict(self) -> dict[str, object]:
        """The counters as plain data, for JSON."""
        return asdict(self)


def metrics() -> Metrics:
    """Return the counters as they are now; recorded work that has not run is not waited for."""
    stats = compiler.stats()
    return Metrics(
        **_C.metrics(),
        plans=stats.plans,
        pending=compiler.pending(),
        compiles=stats.compiles,
        memory_hits=stats.memory_hits,
        disk_hits=stats.disk_hits,
        failures=len(stats.failures),
        lowering_seconds=stats.lowering_seconds,
        compiling_seconds=stats.compiling_seconds,
    )


def reset_metrics() -> None:
    """Set all counters to zero."""
    _C.reset_metrics()
    compiler.reset_stats()


def explain() -> str:
    """Say what was compiled and why, and what runs natively and why, one fact a line."""
    stats = compiler.stats()
    lines = [f"compiled {miss}" for miss in stats.misses]
    lines += [f"not on disk: {miss}" for miss in compiler.explained_misses()]
    lines += [f"not compiled: {failure.summary}" for failure in stats.failures]
    lines += [f"decided: {decision}" for decision in compiler.decisions()]
    steps = sorted(_C.metrics()["native_steps"].items(), key=lambda item: -item[1])
    lines += [f"native {name}: {count} times" for name, count in steps]
    return "\n".join(lines)
