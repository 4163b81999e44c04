"""The lifted scalars of an executable, packed into one vector of each kind."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import iree.runtime as rt
import numpy as np

from torch_shark.lowering.interface import ScalarKind
from torch_shark.runtime.device import Device
from torch_shark.runtime.interop import ALIGNMENT, ImportedBuffer

Scalar = float | int | bool

_KINDS: tuple[tuple[ScalarKind, type[np.generic], int], ...] = (
    ("f64", np.float64, int(rt.HalElementType.FLOAT_64)),
    ("i64", np.int64, int(rt.HalElementType.SINT_64)),
)


@dataclass(slots=True)
class _Slot:
    """Memory for the scalars of the run of a number."""

    values: np.ndarray[tuple[int], np.dtype]
    view: rt.HalBufferView
    memory: ImportedBuffer
    run: int = 0


class ScalarVector:
    """The scalars of one kind, in memory that is imported once and filled for each run.

    Runs overlap with the making of the next: each has memory of its own until it is over.

    Args:
        device: of the executable.
        dtype: of the vector.
        element_type: IREE's value for it.
        positions: where its scalars are among all scalars of the executable.
    """

    def __init__(
        self, device: Device, dtype: type[np.generic], element_type: int, positions: list[int]
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._positions = positions
        self._view_type = ((len(positions),), element_type)
        self._slots: deque[_Slot] = deque()

    def fill(self, scalars: Sequence[Scalar]) -> rt.HalBufferView:
        """Take this vector's scalars from those of the timeline's next run; return the view of it.

        Raises:
            OverflowError: an integer does not fit in 64 bits.
        """
        timeline = self._device.timeline
        if self._slots and timeline.is_done(self._slots[0].run):
            slot = self._slots.popleft()
        else:
            values = _aligned_zeros(len(self._positions), self._dtype)
            memory = ImportedBuffer(self._device, values.ctypes.data, values.nbytes)
            slot = _Slot(values, memory.view(self._view_type), memory)
        slot.values[:] = [scalars[position] for position in self._positions]
        slot.run = timeline.last + 1
        self._slots.append(slot)
        return slot.view


def scalar_vectors(device: Device, kinds: Sequence[ScalarKind]) -> list[ScalarVector]:
    """Make the vectors of an executable, in the order of its arguments.

    Args:
        device: of the executable.
        kinds: of each scalar, in the order in which they are passed.
    """
    vectors = []
    for kind, dtype, element_type in _KINDS:
        positions = [position for position, other in enumerate(kinds) if other == kind]
        if positions:
            vectors.append(ScalarVector(device, dtype, element_type, positions))
    return vectors


def _aligned_zeros(length: int, dtype: type[np.generic]) -> np.ndarray[tuple[int], np.dtype]:
    # numpy aligns to 16 bytes only.
    nbytes = length * np.dtype(dtype).itemsize
    block = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + nbytes].view(dtype)
