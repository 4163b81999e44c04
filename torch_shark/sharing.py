"""Tensors of the device outside of it: DLPack, and other processes.

DLPack shares memory. The device's memory is its native device's, and so it says: over the CPU,
NumPy and whoever else reads CPU memory sees a tensor without a copy, and
``torch.from_dlpack(array, device="shark")`` is a tensor over the array. Either side sees what the
other one wrote once the device is synchronized; exporting a tensor synchronizes.

Processes get copies: the memory of the device belongs to one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing
import torch.utils.dlpack
from torch.overrides import has_torch_function_unary

from torch_shark import _C
from torch_shark.errors import SharedMemoryError
from torch_shark.index import index_of
from torch_shark.native import native_device


def register() -> None:
    """Teach PyTorch both."""
    tensor: Any = torch.Tensor  # methods are replaced, which mypy minds
    tensor.__dlpack__ = _exporting(tensor.__dlpack__)
    tensor.__dlpack_device__ = _naming_device(tensor.__dlpack_device__)
    for module in (torch, torch.utils.dlpack):
        setattr(module, "from_dlpack", _importing(torch.utils.dlpack.from_dlpack))  # noqa: B010
        setattr(module, "to_dlpack", _lending(torch._C._to_dlpack))  # noqa: B010
    storage: Any = torch.UntypedStorage
    storage.share_memory_ = _refusing(storage.share_memory_)
    storage.is_shared = _private(storage.is_shared)
    ForkingPickler.register(torch.UntypedStorage, _send_storage)


def _is_ours(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "shark" and not has_torch_function_unary(tensor)


def _exporting(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def export(self: torch.Tensor, *, stream: Any = -1, **options: Any) -> Any:
        if not _is_ours(self):
            return original(self, stream=stream, **options)
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        # All is done by now, so a stream of the consumer's has nothing to wait for.
        waiting = None if isinstance(stream, int) else stream
        return original(_C.lend_to_native(self), stream=waiting, **options)

    return export


def _naming_device(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def device_of_memory(self: torch.Tensor) -> Any:
        if not _is_ours(self):
            return original(self)
        kind = torch.utils.dlpack.DLDeviceType
        return (kind.kDLCPU if native_device() == "cpu" else kind.kDLCUDA), 0

    return device_of_memory


def _lending(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def to_dlpack(tensor: torch.Tensor) -> Any:
        return original(_C.lend_to_native(tensor) if _is_ours(tensor) else tensor)

    return to_dlpack


def _importing(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(original)
    def from_dlpack(
        ext_tensor: Any, *, device: torch.device | str | None = None, copy: bool | None = None
    ) -> torch.Tensor:
        wanted = None if device is None else torch.device(device).type
        if isinstance(ext_tensor, torch.Tensor) and ext_tensor.device.type == "shark":
            if wanted in (None, "shark"):
                plain = ext_tensor.detach().as_subclass(torch.Tensor)
                return plain.clone() if copy else plain
        elif wanted == "shark" and hasattr(ext_tensor, "__dlpack__"):
            index_of(device)
            return _C.borrow_from_native(original(ext_tensor, device=native_device(), copy=copy))
        return original(ext_tensor, device=device, copy=copy)

    return from_dlpack


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def share_memory_(self: torch.UntypedStorage, *args: Any, **options: Any) -> Any:
        if self.device.type == "shark":
            raise SharedMemoryError()
        return original(self, *args, **options)

    return share_memory_


def _private(original: Callable[..., bool]) -> Callable[..., bool]:
    @wraps(original)
    def is_shared(self: torch.UntypedStorage) -> bool:
        return self.device.type != "shark" and original(self)

    return is_shared


# By value: shared memory would have to outlive its sender, for no one knows how long.
def _send_storage(storage: Any) -> Any:
    if storage.device.type == "shark":
        host = torch.empty(0, dtype=torch.uint8).set_(storage.cpu())
        return _receive_storage, (host.numpy().tobytes(),)
    return _reduce_storage(storage)


def _receive_storage(content: bytes) -> Any:
    host = torch.empty(0, dtype=torch.uint8)
    if content:
        host = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    storage: Any = host.untyped_storage()
    return storage.shark()


_reduce_storage: Any = torch.multiprocessing.reductions.reduce_storage
