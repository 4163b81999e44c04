"""Models that are compiled once and shipped: `torch.shark.export` and `torch.shark.load`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch_shark.export.program import Program

__all__ = ["export", "load"]


def export(
    model: torch.nn.Module,
    example_inputs: Sequence[Any],
    path: str | os.PathLike[str],
    dynamic_shapes: Any = None,
    targets: Sequence[str] = ("cpu",),
    *,
    example_kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Compile a model ahead of time and write it to a folder, a bundle.

    The model is traced by `torch.export.export`. The folder appears at once, whole, and replaces a
    bundle that was there.

    Args:
        model: the module; on the CPU or on the shark device.
        example_inputs: positional arguments to trace it with; tensors with their sizes and dtypes,
            numbers and texts with their values.
        path: the folder.
        dynamic_shapes: which sizes may differ from call to call, as `torch.export.export` takes it.
        targets: what to compile for, in the order in which `load` tries them: "cpu", "cuda",
            "vulkan", "metal", "rocm", each with its default architecture or one that is named, as
            in "cuda:sm_89".
        example_kwargs: arguments by name.

    Raises:
        ExportError: the model can't be traced, lowered, or compiled for a target.
        TypeError: `targets` is no list of names, or empty.
        ValueError: a target is not known.
        FileExistsError: at `path` there is something that is no bundle.
    """
    # Imported here: PyTorch's own import would take seconds more, and a machine that only loads
    # bundles has no compiler.
    from torch_shark.export.write import write_bundle

    write_bundle(model, example_inputs, example_kwargs or {}, Path(path), dynamic_shapes, targets)


def load(path: str | os.PathLike[str], target: str | None = None) -> Program:
    """Load a bundle that `export` wrote; it needs no compiler.

    Args:
        path: the bundle's folder.
        target: which of the bundle's targets to run, such as "cpu:x86-64-v3"; by default the first
            that this machine has a device for.

    Returns:
        A callable that takes what the model took and returns what it returned, on the same device.

    Raises:
        BundleError: the folder is no bundle, is damaged or from a later version, or lacks `target`.
        NoDeviceError: this machine has no device for it.
        ExecutableLoadError: IREE's runtime refuses the executable.
    """
    from torch_shark.export.program import Program

    return Program(Path(path), target)
