"""This process's memory, as Linux counts it."""

from __future__ import annotations

import re
from pathlib import Path

_PROCESS = Path("/proc/self")


def resident_bytes() -> int:
    """The memory that is resident now."""
    return _field("VmRSS")


def peak_bytes() -> int:
    """The most that was resident since `restart_peak`."""
    return _field("VmHWM")


def restart_peak() -> None:
    """Let the peak start anew, from what is resident now."""
    (_PROCESS / "clear_refs").write_text("5")


def _field(name: str) -> int:
    status = (_PROCESS / "status").read_text()
    match = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert match is not None, status
    return int(match[1]) << 10
