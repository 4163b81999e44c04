"""The namespace ``torch.shark``: what ``torch.cuda`` is for CUDA.

Work on the device is recorded and runs later, in order. Functions that read something, such as
`synchronize` and `get_rng_state`, wait for it and raise the first error that it met.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from torch_shark import _C, memory
from torch_shark.export import export, load
from torch_shark.index import DeviceLike, as_device, current_device, device_count, index_of
from torch_shark.kernels import register_kernel
from torch_shark.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from torch_shark.metrics import explain, metrics, reset_metrics
from torch_shark.native import native_device

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "explain",
    "export",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "load",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "metrics",
    "register_kernel",
    "reset_accumulated_memory_stats",
    "reset_metrics",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    # The generators of a GPU set the GPU up.
    if name == "default_generators":
        return (_C.default_generator(),)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_available() -> bool:
    """Whether the device can be used; it always can, since the CPU is always there."""
    return True


def is_initialized() -> bool:
    """Whether the device is set up; it needs no set-up."""
    return True


_initialized = True


def init() -> None:
    """Set the device up; there is nothing to do."""


def _lazy_init() -> None:
    """PyTorch calls this before first use; there is nothing to do."""


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had used the device."""
    return _C.in_forked_child()


def set_device(device: DeviceLike) -> None:
    """Make a device the current one."""
    index_of(device)


class device:  # noqa: N801 (named as torch.cuda.device is)
    """Context manager that makes a device the current one.

    Args:
        device: a device, its index, or None for no change.
    """

    def __init__(self, device: DeviceLike) -> None:
        self.idx = index_of(device)

    def __enter__(self) -> None:
        """Switch; there is only one device so far."""

    def __exit__(self, *exception: object) -> None:
        """Switch back."""


class device_of(device):  # noqa: N801 (named as torch.cuda.device_of is)
    """Context manager that makes the device of a tensor the current one.

    Args:
        obj: a tensor or a storage; one on another device changes nothing.
    """

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.device if obj.device.type == "shark" else None)


def synchronize(device: DeviceLike = None) -> None:
    """Wait until all recorded work is done.

    Raises:
        Exception: the first error of an operator that was recorded earlier; the device stays
            usable, and tensors that the operator would have written in place keep their content.
    """
    index_of(device)
    _C.synchronize()


def get_device_name(device: DeviceLike = None) -> str:
    """What the device is laid over, for people."""
    index_of(device)
    if native_device() == "cuda":
        return f"shark over {torch.cuda.get_device_name(0)}"
    return f"shark over {platform.processor() or platform.machine()} CPU"


@dataclass(frozen=True)
class DeviceProperties:
    """Facts about a device.

    Args:
        name: as of `get_device_name`.
        target: what it is laid over, "cpu" or "cuda".
        total_memory: bytes of memory.
        multi_processor_count: of a CPU the threads that operators use.
    """

    name: str
    target: str
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Facts about a device."""
    name = get_device_name(device)
    if native_device() == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        return DeviceProperties(name, "cuda", gpu.total_memory, gpu.multi_processor_count)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return DeviceProperties(name, "cpu", total, torch.get_num_threads())


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is bfloat16; the CPU always has it.

    Args:
        including_emulation: as of ``torch.cuda.is_bf16_supported``.
    """
    return native_device() == "cpu" or torch.cuda.is_bf16_supported(including_emulation)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("shark")`` takes."""
    return [torch.float16, torch.bfloat16]


# Random numbers. The generator wraps the native device's own, so a seed gives the CPU's numbers.


def _generator(device: DeviceLike) -> torch.Generator:
    index_of(device)
    return _C.default_generator()


def manual_seed(seed: int) -> None:
    """Seed the current device's generator, in order with what was recorded before."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    _generator(None).manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator with a number that is not predictable."""
    _generator(None).seed()


def seed_all() -> None:
    """Seed all generators with one number that is not predictable."""
    manual_seed_all(_generator(None).seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator(None).initial_seed()


def get_rng_state(device: DeviceLike = "shark") -> torch.Tensor:
    """The state of a device's generator, a CPU tensor of bytes."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "shark") -> None:
    """Restore what `get_rng_state` gave."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all generators."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restore what `get_rng_state_all` gave."""
    (state,) = new_states
    set_rng_state(state)


# Streams and events. All streams feed one in-order queue.


class Stream(torch.Stream):
    """A stream of the device.

    Args:
        device: the device; the current one if None.
        priority: accepted, without effect.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **kwargs: Any) -> Stream:
        """Make the stream on a device of ours."""
        if kwargs:  # the ids of a stream that exists
            return super().__new__(cls, **kwargs)
        where = as_device(device)
        return super().__new__(cls, device=where, priority=priority)


class Event(torch.Event):
    """A mark in the device's queue.

    The object is a plain `torch.Event`, which compares with no subclass of its own.

    Args:
        enable_timing: accepted; all events can be timed.
    """

    def __new__(cls, enable_timing: bool = False, **kwargs: Any) -> torch.Event:  # type: ignore[misc]
        """Make the event on the device."""
        return torch.Event(device="shark", enable_timing=enable_timing, **kwargs)


def current_stream(device: DeviceLike = None) -> torch.Stream:
    """The stream that work goes to."""
    return torch.accelerator.current_stream(as_device(device))


def default_stream(device: DeviceLike = None) -> torch.Stream:
    """The stream that work goes to unless another is set."""
    return torch.Stream(stream_id=0, device_index=index_of(device), device_type=_DEVICE_TYPE)


_DEVICE_TYPE = torch._C._autograd.DeviceType.PrivateUse1.value


def set_stream(stream: torch.Stream) -> None:
    """Make a stream the current one."""
    torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None) -> AbstractContextManager[torch.Stream | None]:
    """Context manager that makes a stream the current one; None changes nothing."""
    return nullcontext() if stream is None else stream


def is_current_stream_capturing() -> bool:
    """Whether work is captured into a graph; the device has no such graphs."""
    return False
