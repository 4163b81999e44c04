"""Tensors of the CPU to a device of IREE and back."""

from __future__ import annotations

import iree.runtime as rt
import numpy as np
import torch

from torch_shark.runtime.device import Device

_ELEMENT_TYPES = {
    torch.float64: rt.HalElementType.FLOAT_64,
    torch.float32: rt.HalElementType.FLOAT_32,
    torch.float16: rt.HalElementType.FLOAT_16,
    torch.bfloat16: rt.HalElementType.BFLOAT_16,
    torch.int64: rt.HalElementType.SINT_64,
    torch.int32: rt.HalElementType.SINT_32,
    torch.int16: rt.HalElementType.SINT_16,
    torch.int8: rt.HalElementType.SINT_8,
    torch.uint8: rt.HalElementType.UINT_8,
    torch.bool: rt.HalElementType.BOOL_8,
}
_USAGE = int(rt.BufferUsage.DEFAULT)
_ON_DEVICE = int(rt.MemoryType.DEVICE_LOCAL)
_ON_HOST = int(rt.MemoryType.HOST_LOCAL) | int(rt.MemoryType.DEVICE_VISIBLE)
_MAPPABLE = int(rt.BufferUsage.TRANSFER) | int(rt.BufferUsage.MAPPING)


def to_device(device: Device, tensor: torch.Tensor) -> rt.HalBufferView:
    """Return a copy of a CPU tensor on the device.

    Every driver takes it by way of a buffer that both sides see; not every one imports memory.
    """
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    count = data.numel()
    buffer = device.allocator.allocate_buffer(_ON_DEVICE, _USAGE, count)
    if count:
        staging = device.allocator.allocate_buffer(_ON_HOST, _MAPPABLE, count)
        _bytes_of(staging, count).copy_(data)
        _copy(device, staging, buffer)
    return rt.HalBufferView(buffer, tuple(tensor.shape), int(_ELEMENT_TYPES[tensor.dtype]))


def to_host(device: Device, view: rt.HalBufferView, dtype: torch.dtype) -> torch.Tensor:
    """Return a copy of what a view holds, as a CPU tensor of a dtype of the same width."""
    shape, buffer = list(view.shape), view.get_buffer()
    result = torch.empty(shape, dtype=dtype)
    count = result.nbytes
    if count:
        staging = device.allocator.allocate_buffer(_ON_HOST, _MAPPABLE, count)
        _copy(device, buffer, staging)
        result.view(-1).view(torch.uint8).copy_(_bytes_of(staging, count))
    return result


def _bytes_of(buffer: rt.HalBuffer, count: int) -> torch.Tensor:
    return torch.from_numpy(buffer.map().asarray((count,), np.dtype(np.uint8)))


def _copy(device: Device, source: rt.HalBuffer, destination: rt.HalBuffer) -> None:
    done = device.hal_device.create_semaphore(0)
    device.hal_device.queue_copy(
        source,
        destination,
        wait_semaphores=rt.HalFence.create_at(done, 0),
        signal_semaphores=rt.HalFence.create_at(done, 1),
    )
    rt.HalFence.create_at(done, 1).wait()
