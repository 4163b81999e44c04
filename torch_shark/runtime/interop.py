"""Host memory as buffer views of IREE, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import iree.runtime as rt

from torch_shark.errors import SharkError
from torch_shark.runtime.device import Device, close_at_exit

ALIGNMENT = 64
"""What IREE's kernels take for granted, in bytes; it does not check, and would crash."""

ViewType = tuple[tuple[int, ...], int]
"""Shape and element type (a value of `iree.runtime.HalElementType`) of a view."""

_MEMORY_TYPE = int(rt.MemoryType.HOST_LOCAL) | int(rt.MemoryType.DEVICE_VISIBLE)
_USAGE = int(rt.BufferUsage.DEFAULT) | int(rt.BufferUsage.MAPPING)

_WRITABLE = 0x200  # PyBUF_WRITE
_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype = ctypes.py_object
_memory_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)

# Stands for memory of no bytes, which may have any address and is imported like the rest.
_nothing = ctypes.create_string_buffer(2 * ALIGNMENT)
_EMPTY_ADDRESS = ctypes.addressof(_nothing) // ALIGNMENT * ALIGNMENT + ALIGNMENT


class NativeBuffer(Protocol):
    """Memory of the native device.

    Attributes:
        imported: where the memory's import is kept, to be made once. Its owner sets it to None
            before the memory goes away.
    """

    imported: Any

    @property
    def address(self) -> int:
        """Of the first byte."""

    @property
    def nbytes(self) -> int:
        """Size in bytes; with 0 the address does not matter."""


class BufferImportError(SharkError, ValueError):
    """Memory can't be handed to IREE as it is.

    Args:
        address: of the first byte.
        nbytes: size in bytes.
        reason: what was expected of it.
    """

    def __init__(self, address: int, nbytes: int, reason: str) -> None:
        super().__init__(address, nbytes, reason)

    def __str__(self) -> str:
        address, nbytes, reason = self.args
        return f"[shark] expected {reason}, got {nbytes} bytes at address {address:#x}"


class ImportedBuffer:
    """The import of one piece of host memory, and the views over it that were asked for.

    Args:
        device: whose executables are to read and write the memory.
        address: of the first byte, a multiple of `ALIGNMENT`.
        nbytes: size in bytes.

    Raises:
        BufferImportError: the address is not aligned.
    """

    __slots__ = ("__weakref__", "_address", "_buffer", "_nbytes", "_views")

    def __init__(self, device: Device, address: int, nbytes: int) -> None:
        self._address = address if nbytes else _EMPTY_ADDRESS
        self._nbytes = nbytes
        if self._address % ALIGNMENT:
            raise BufferImportError(address, nbytes, f"memory aligned to {ALIGNMENT} bytes")
        memory = _memory_view(self._address, nbytes, _WRITABLE)
        # A view alone does not keep the import alive.
        self._buffer = device.allocator.import_host_allocation(memory, _MEMORY_TYPE, _USAGE)
        self._views: dict[ViewType, rt.HalBufferView] = {}
        close_at_exit(self)

    def view(self, view_type: ViewType) -> rt.HalBufferView:
        """Return the view of the first elements of the memory as `view_type`.

        Raises:
            BufferImportError: the memory holds fewer elements.
        """
        view = self._views.get(view_type)
        if view is None:
            shape, element_type = view_type
            try:
                view = rt.HalBufferView(self._buffer, shape, element_type)
            except Exception as error:
                wanted = f"memory for {list(shape)} of {rt.HalElementType(element_type).name}"
                raise BufferImportError(self._address, self._nbytes, wanted) from error
            self._views[view_type] = view
        return view

    def close(self) -> None:
        """Drop all objects of IREE; no view can be had afterwards."""
        self._views = {}
        self._buffer = None


def import_buffer(device: Device, buffer: NativeBuffer) -> ImportedBuffer:
    """Return the import of `buffer`, which is made at the first call and kept in it.

    Raises:
        BufferImportError: the address is not aligned.
    """
    imported: ImportedBuffer | None = buffer.imported
    if imported is None:
        imported = ImportedBuffer(device, buffer.address, buffer.nbytes)
        buffer.imported = imported
    return imported
