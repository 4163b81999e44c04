"""What compiled code and times depend on besides the region: versions, flags, the machine."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

from torch_shark import processor
from torch_shark.targets import Target


@cache
def environment(target: Target) -> tuple[tuple[str, str], ...]:
    """Return the parts of a key that are the same for all regions of a target on this machine."""
    sources = Path(__file__).parent
    ours = hashlib.blake2b(digest_size=16)
    for source in sorted([sources / "targets.py", *(sources / "lowering").glob("*.py")]):
        ours.update(source.read_bytes())
    return (
        ("target", target.name),
        ("flags", " ".join(target.flags)),
        ("lowering", ours.hexdigest()),
        ("torch", version("torch")),
        ("torch-mlir", version("torch-mlir")),
        ("iree", version("iree-base-compiler")),
        ("cpu", _cpu_features() if target.host_features else ""),
    )


@cache
def machine() -> str:
    """Return what times depend on: the processor's name, and how many there are to run on."""
    named = re.search(r"^model name\s*:\s*(.*)$", processor.description(), re.MULTILINE)
    model = named[1] if named is not None else platform.processor()
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {count} processors"


def _cpu_features() -> str:
    """What the compiler makes of `host`: the machine and its CPU's features."""
    features = processor.features()
    if features is None:
        return platform.processor()
    named = " ".join(sorted(features))
    return f"{platform.machine()} {hashlib.blake2b(named.encode(), digest_size=8).hexdigest()}"
