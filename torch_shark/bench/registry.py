"""What an entry of the suite is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import torch

# Runs the program once; its results may still be pending when it returns.
Step: TypeAlias = Callable[[], Sequence[torch.Tensor]]

# What a peer does to a module or function that an entry names as worth compiling.
Compiled: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class Entry:
    """One program of the suite.

    Attributes:
        name: what it is called on the command line.
        about: the program in a few words, for the table.
        build: makes the program on a device and returns its step. Random numbers come from the
            global generator, drawn on the CPU, so that each device gets the same program. What a
            user would hand to a compiler goes through the second argument.
        training: it computes gradients or updates parameters.
        pure: each step gives the same results, of a function of tensors: peers for inference take
            part.
        steps: how many steps are measured, from the first on, where their sum is the figure; None
            where the figure is the steady time of a step.
        passes: how often a step has to read its inputs, one pass after another.
        fused: makes the same program of PyTorch's own fused kernels, where there are some.
    """

    name: str
    about: str
    build: Callable[[torch.device, Compiled], Step]
    training: bool = False
    pure: bool = False
    steps: int | None = None
    passes: int = 1
    fused: Callable[[torch.device, Compiled], Step] | None = None


MODULES = ("entries_models", "entries_kernels")  # in the order of the table


def entries() -> dict[str, Entry]:
    """All entries by name."""
    return {entry.name: entry for module in MODULES for entry in _entries_of(module)}


def entry_named(name: str) -> Entry:
    """The entry of a name; models are imported only to find one of them, since that takes seconds.

    Raises:
        ValueError: there is no such entry.
    """
    for module in reversed(MODULES):
        for entry in _entries_of(module):
            if entry.name == name:
                return entry
    raise ValueError(f"[shark] expected one of {', '.join(entries())}, got {name!r}")


def _entries_of(module: str) -> tuple[Entry, ...]:
    found: tuple[Entry, ...] = import_module(f"torch_shark.bench.{module}").ENTRIES
    return found
