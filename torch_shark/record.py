"""The record of one window: plain data that the recorder builds and lowering reads.

A window holds operators (`Entry`) over storages. Views are not recorded: each `TensorRef` carries
its whole geometry over its storage, and a write through a view is a write to the storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class TensorRef:
    """One reference to a storage, with its geometry; strides and offset count elements."""

    storage: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    conj: bool = False
    neg: bool = False


@dataclass(frozen=True, slots=True)
class HostScalar:
    """A 0-d CPU tensor argument. Python numbers (`x * 2.0`) arrive so, with `wrapped` set."""

    value: float | int | bool | complex
    dtype: torch.dtype
    wrapped: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One recorded operator call.

    `args` holds every schema argument in schema order, keyword-only ones included. `outputs` holds
    the results in schema order, list results flattened, each in a storage born here; it is empty
    for in-place and out= operators, whose results are arguments.
    """

    op: str
    args: tuple[Any, ...]
    outputs: tuple[TensorRef | None, ...]


@dataclass(frozen=True, slots=True)
class StorageInfo:
    """What is known of one storage: size in bytes, the geometry it was created with, and life.

    `born`: it holds nothing before the window. `alive`: it can be read after the window.
    """

    nbytes: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    born: bool
    alive: bool


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """The operators of one window in program order, over storages numbered by first use."""

    entries: tuple[Entry, ...]
    storages: tuple[StorageInfo, ...]
