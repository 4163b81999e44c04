"""IREE's devices, one for each driver and process, and their orderly end.

IREE's bindings print a warning for each of their objects that is still there when the process ends.
Objects of ours that hold some are therefore registered here, and closed before the devices are.
What can stay are the bindings' types and functions: our functions refer to them, and PyTorch never
lets go of a Python function that was registered with it. Nothing is lost by that, so the warning is
turned off once all else is released.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Protocol

import iree.runtime as rt
import torch
from iree.runtime._binding import disable_leak_checker

from torch_shark.errors import SharkError
from torch_shark.runtime.timeline import Timeline

# Above the largest stack that the compiler's stack allocation limit lets a kernel use; the default
# is too small for it, and the process would crash.
_WORKER_STACK_BYTES = 4 << 20


class ForkedProcessError(SharkError, RuntimeError):
    """A forked process uses the device of its parent."""

    def __str__(self) -> str:
        return (
            "[shark] a forked process can't run what its parent compiled, for the threads that "
            "do it are not in the fork: start processes by 'spawn' or 'forkserver'."
        )


class Closeable(Protocol):
    """Something that holds objects of IREE."""

    def close(self) -> None:
        """Drop them; a second call does nothing."""


class Device:
    """A driver's device and what is needed to load executables on it.

    Args:
        driver: IREE's name of the driver, such as ``"local-task"``.
    """

    def __init__(self, driver: str) -> None:
        # Flags of the process, read when the device is made.
        rt.flags.parse_flags(
            f"--task_topology_group_count={torch.get_num_threads()}",
            f"--task_worker_stack_size={_WORKER_STACK_BYTES}",
        )
        self._forked = False
        self.instance = rt.VmInstance()
        self.hal_device = rt.get_device(driver, cache=False)
        self.hal_module = rt.create_hal_module(self.instance, self.hal_device)
        self.allocator = self.hal_device.allocator
        self.timeline = Timeline(self.hal_device)
        self.lock = threading.Lock()

    def load(self, vmfb: bytes) -> tuple[rt.VmContext, rt.VmModule]:
        """Load an executable into a context of its own.

        Raises:
            Exception: what IREE's bindings raise for bytes that are no executable of this device.
        """
        module = rt.VmModule.copy_buffer(self.instance, vmfb)
        return rt.VmContext(self.instance, [self.hal_module, module]), module

    def check_process(self) -> None:
        """See that the device can run something.

        Raises:
            ForkedProcessError: this process is a fork of the one that made the device.
        """
        if self._forked:
            raise ForkedProcessError()

    def abandon(self) -> None:
        """Mark the device as unusable in a fork, and keep it: its end waits for its threads."""
        self._forked = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.hal_device))

    def close(self) -> None:
        """Release the device; it can't be used afterwards."""
        self.timeline.close()
        self.hal_module = self.allocator = self.hal_device = self.instance = None


_lock = threading.Lock()
_devices: dict[str, Device] = {}
_closeables: weakref.WeakSet[Closeable] = weakref.WeakSet()


def get_device(driver: str) -> Device:
    """Return the device of `driver`, which is made at the first call.

    Args:
        driver: IREE's name of the driver, such as ``"local-task"``.

    Raises:
        ValueError: this IREE has no such driver.
    """
    with _lock:
        device = _devices.get(driver)
        if device is None:
            device = _devices[driver] = Device(driver)
        return device


def close_at_exit(closeable: Closeable) -> None:
    """Have `closeable` closed before the devices go, if it still lives then."""
    with _lock:
        _closeables.add(closeable)


def close_all() -> None:
    """Release all that is of IREE, at the end of the process and after all work is done."""
    with _lock:
        closeables, devices = list(_closeables), list(_devices.values())
        _devices.clear()
    # Outside the lock: an executable that is running imports memory, which takes the lock, and its
    # `close` waits for it.
    for closeable in closeables:
        closeable.close()
    for device in devices:
        device.close()
    disable_leak_checker()


def _abandon_all() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it while the process forked
    _closeables.clear()
    for device in _devices.values():
        device.abandon()


os.register_at_fork(after_in_child=_abandon_all)
