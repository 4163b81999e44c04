"""Which device of ours is meant, wherever PyTorch takes a device, its index, its name or None."""

from __future__ import annotations

import torch

# What PyTorch accepts where it wants a device.
DeviceLike = torch.device | str | int | None


def device_count() -> int:
    """The number of shark devices."""
    return 1


def current_device() -> int:
    """The index of the current device."""
    return 0


def index_of(device: DeviceLike) -> int:
    """The index of a device of ours.

    Raises:
        ValueError: it is a device of another type.
        RuntimeError: there is no device of this index.
    """
    if device is None:
        return current_device()
    if not isinstance(device, int):
        device = torch.device(device)
        if device.type != "shark":
            raise ValueError(f"Expected a shark device, but got: {device}")
        device = current_device() if device.index is None else device.index
    if not -1 <= device < device_count():
        raise RuntimeError(f"[shark] expected a device index below {device_count()}, got {device}")
    return max(device, 0)


def as_device(device: DeviceLike) -> torch.device:
    """The device of ours, with its index; raises as `index_of` does."""
    return torch.device("shark", index_of(device))
