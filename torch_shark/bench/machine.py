"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path

PACKAGES = (
    "torch_shark",
    "torch",
    "torch-mlir",
    "iree-base-compiler",
    "iree-base-runtime",
    "transformers",
)


def describe() -> dict[str, object]:
    """The processor, memory and system, the versions of packages, and how busy the machine is."""
    release = platform.release().partition("-")[0]
    return {
        "date": date.today().isoformat(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {release}, {platform.machine()}",
        "load": os.getloadavg()[0],
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in PACKAGES},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
