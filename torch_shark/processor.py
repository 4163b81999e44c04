"""What Linux tells of the CPU; elsewhere nothing is known."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


@cache
def description() -> str:
    """Return the text of /proc/cpuinfo."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def features() -> frozenset[str] | None:
    """Return the names of what the CPU can do, as "avx2"; None if it is not known."""
    named = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", description(), re.MULTILINE)
    return None if named is None else frozenset(named[1].split())
