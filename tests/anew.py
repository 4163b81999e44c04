"""A planner that knows nothing, as a new process begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torch_shark import compiler, config


def start_anew() -> None:
    """Forget the planners and, with the plans, all executables."""
    compiler.forget()
    compiler.install()


@contextmanager
def new_planner(**knobs: object) -> Iterator[None]:
    """Set knobs, and plan with nothing known before; nothing of it is known afterwards."""
    with config.scope(**knobs):
        start_anew()
        yield
        torch.shark.synchronize()
    start_anew()
