"""Keep a folder of entries below a size by removing the least recently used ones.

Processes evict without a lock. Each removes the oldest files of the same list, so two at once
remove the same ones, and a file that has vanished counts as removed.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from .store import ENTRY_SUFFIX, TEMPORARY_SUFFIX

ORPHAN_SECONDS = 3600
"""A temporary file is left to its writer for this long, then taken for a dead process's remains."""


def evict(folder: Path, max_bytes: int) -> int:
    """Remove the least recently used entries until those left hold at most `max_bytes` together.

    Orphaned temporary files are removed too. Never raises for what the file system does.

    Args:
        folder: the folder of a `Store`; need not exist.
        max_bytes: bound of the summed sizes of all entries, in bytes.

    Returns:
        How many entries this call removed.
    """
    entries: list[tuple[int, int, Path]] = []
    with contextlib.suppress(OSError, ValueError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                if path.suffix == ENTRY_SUFFIX:
                    entries.append((status.st_mtime_ns, status.st_size, path))
                elif path.suffix == TEMPORARY_SUFFIX:
                    _remove_orphan(path, status.st_mtime)

    excess = sum(size for _, size, _ in entries) - max_bytes
    evicted = 0
    for last_use, size, path in sorted(entries):
        if excess <= 0:
            break
        try:
            if path.stat().st_mtime_ns != last_use:
                continue  # used or rewritten meanwhile: no longer among the oldest
            path.unlink()
            evicted += 1
        except FileNotFoundError:
            pass  # another process was faster: the space is free all the same
        except OSError:
            continue
        excess -= size
    return evicted


def _remove_orphan(path: Path, modified: float) -> None:
    if time.time() - modified > ORPHAN_SECONDS:
        path.unlink()
