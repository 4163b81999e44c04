"""Memory of the device, in bytes: a part of the namespace ``torch.shark``.

Counts are those of the caching pool: results of recorded operators take memory when they run, so
each function waits for them first. The keys of statistics are those of ``torch.cuda``.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_shark.index import DeviceLike, as_device

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def _settled(device: DeviceLike) -> torch.device:
    where = as_device(device)
    torch.accelerator.synchronize(where)
    return where


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """All counts, e.g. "allocated_bytes.all.current", "reserved_bytes.all.peak".

    Of a count there are "current", "peak" (since `reset_peak_memory_stats`), and, where the pool
    counts them, "allocated" and "freed" over all time.
    """
    return dict(torch.accelerator.memory_stats(_settled(device)))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """`memory_stats`, a dictionary for each part of a key."""
    nested: dict[str, Any] = {}
    for key, value in memory_stats(device).items():
        *parts, last = key.split(".")
        inner = nested
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors of the device occupy now."""
    return torch.accelerator.memory_allocated(_settled(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The highest `memory_allocated` since `reset_peak_memory_stats`, temporaries included."""
    return torch.accelerator.max_memory_allocated(_settled(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes taken from the system: allocated ones and those kept for reuse."""
    return torch.accelerator.memory_reserved(_settled(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The highest `memory_reserved` since `reset_peak_memory_stats`."""
    return torch.accelerator.max_memory_reserved(_settled(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Begin to look for peaks anew."""
    torch.accelerator.reset_peak_memory_stats(_settled(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Begin to count over all time anew; the pool's counts of that kind are not reset."""
    torch.accelerator.reset_accumulated_memory_stats(_settled(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total bytes: the memory that the system could give now, and all that it has."""
    return torch.accelerator.get_memory_info(_settled(device))


def empty_cache() -> None:
    """Give memory that is kept for reuse back to the system."""
    torch.accelerator.empty_cache()


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A table of what is allocated and reserved, for people.

    Args:
        device: the device; the current one if None.
        abbreviated: accepted as by ``torch.cuda.memory_summary``; the table is short.
    """
    stats = memory_stats(device)
    rows = [f"{'shark memory, MiB':<20}{'current':>12}{'peak':>12}"]
    for name in ("allocated", "reserved"):
        count = f"{name}_bytes.all"
        current, peak = (stats[f"{count}.{each}"] / 2**20 for each in ("current", "peak"))
        rows.append(f"{name:<20}{current:>12.2f}{peak:>12.2f}")
    return "\n".join(rows)
