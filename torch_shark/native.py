"""The native device: whose kernels replay operators, and whose memory tensors have.

It is chosen once, when PyTorch has just been imported, by the knob `target`: which operators are
recorded depends on it.
"""

from __future__ import annotations

import torch

from torch_shark import _C
from torch_shark.config import config
from torch_shark.errors import ConfigError, TargetAbsentError

# Over a GPU work is sent while more is recorded, so that launches overlap the program's Python.
_WINDOW_OPERATORS = {"cpu": 4096, "cuda": 12}

_chosen: str | None = None


def choose() -> None:
    """Have operators recorded for the native device that the knobs name; called once.

    Raises:
        TargetAbsentError: the machine, or this PyTorch, has no such device.
    """
    global _chosen
    _chosen = _wanted()
    _C.register_operators(_chosen)


def native_device() -> str:
    """Return the type of the native device: "cpu" or "cuda"."""
    assert _chosen is not None
    return _chosen


def check_choice() -> None:
    """See that the knob `target` still names the native device.

    Raises:
        ConfigError: it names another.
        TargetAbsentError: it names one that is not there.
    """
    if _wanted() != _chosen:
        raise ConfigError(
            "config.target", config.target, f"the target that `import torch` found ({_chosen})"
        )


def policy() -> str:
    """Return the policy by which windows run: over a GPU they are replayed natively.

    Raises:
        ConfigError: all that can be compiled is to be, and windows on a GPU are not compiled yet.
    """
    if _chosen == "cpu":
        return config.policy
    if config.policy == "iree":
        raise ConfigError("config.policy", "iree", f"'auto' or 'native' over {_chosen}")
    return "native"


def window_operators() -> int:
    """Return after how many operators a window ends."""
    return config.window_operators or _WINDOW_OPERATORS[native_device()]


def _wanted() -> str:
    # It asks the driver's management library, which sets nothing up.
    present = torch.version.cuda is not None and torch.cuda.device_count() > 0
    if config.target == "cuda" and not present:
        raise TargetAbsentError("cuda", _why_absent())
    return "cuda" if present and config.target in ("cuda", "auto") else "cpu"


def _why_absent() -> str:
    if torch.version.cuda is None:
        return f"this PyTorch ({torch.__version__}) is built without CUDA"
    return "PyTorch finds no CUDA device"
