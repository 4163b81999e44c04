"""Choices that PyTorch makes in Python by the type of device: made as for the CPU."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch


def register() -> None:
    """Let the CPU's choices hold for the device too, so that its values are the CPU's."""
    options = getattr(torch.nn, "LinearCrossEntropyOptions", None)  # since torch 2.13
    if options is not None:
        _chunk_cross_entropy_as_on_cpu(options)


def _chunk_cross_entropy_as_on_cpu(options: Any) -> None:
    """``linear_cross_entropy`` picks its chunks, and the dtype it adds up in, by the device."""
    adjust = options._adjust

    @wraps(adjust)
    def as_on_cpu(self: Any, *, device: torch.device, **sizes: Any) -> Any:
        chosen_as = torch.device("cpu") if device.type == "shark" else device
        return adjust(self, device=chosen_as, **sizes)

    options._adjust = as_on_cpu
