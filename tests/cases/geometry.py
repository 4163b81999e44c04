"""What can be compared of a tensor without its values, for tests of views, sizes and memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

Work = Callable[[str], Any]


def geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Shape, strides, offset, bytes of storage, dtype, version and lazy bits."""
    return (
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.untyped_storage().nbytes(),
        tensor.dtype,
        tensor._version,
        tensor.is_conj(),
        tensor.is_neg(),
    )


def plain(value: Any) -> Any:
    """A result with its tensors as geometry and values."""
    if isinstance(value, torch.Tensor):
        return geometry(value), value.detach().cpu().resolve_conj().resolve_neg().tolist()
    if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):
        return value.nbytes()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def outcome(work: Work, device: str) -> Any:
    """What `work` gives on the device, or the type and the first line of its error."""
    try:
        with warnings.catch_warnings():  # PyTorch gives some but once in a process
            warnings.simplefilter("ignore")
            result = plain(work(device))
            torch.shark.synchronize()
    except Exception as error:
        return type(error), _without_device(str(error).split("\n")[0])
    return result


def _without_device(message: str) -> str:
    for name in ("shark:0", "'shark'", "'cpu'", "cpu"):
        message = message.replace(name, "device")
    for name in ("sharkFloatType", "torch.FloatTensor", "CPUFloatType"):
        message = message.replace(name, "FloatType")
    return message


def same_outcome(work: Work) -> None:
    """Assert that `work` ends as on the CPU, also when its operators are known."""
    expected = outcome(work, "cpu")
    for _ in range(2):
        found = outcome(work, "shark")
        assert found == expected, f"{found}, on the CPU {expected}"


def row(device: str) -> torch.Tensor:
    """Twelve different numbers."""
    return torch.arange(12.0, device=device)
