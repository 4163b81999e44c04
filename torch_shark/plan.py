"""Plans: what runs natively and what compiled, in which order, for one window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch_shark.lowering.region import ScalarSlot
from torch_shark.record import TensorRef

if TYPE_CHECKING:
    from torch_shark._C import Choice


class Executable(Protocol):
    """A loaded region."""

    def __call__(self, inputs: list[Any], outputs: list[Any], scalars: list[Any]) -> None:
        """Run it over buffers, writing the outputs."""


@dataclass(frozen=True, slots=True)
class NativeStep:
    """Replay one entry on the native device."""

    entry: int


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """Every integer of `ref` must satisfy `low <= i < high` or equal `ignored`."""

    ref: TensorRef
    low: int
    high: int
    ignored: int | None = None


@dataclass(frozen=True, slots=True)
class RegionStep:
    """Run an executable over whole storages, or replay its entries.

    Each output is written into a fresh buffer of the storage's size, which then becomes the
    storage's. A scalar's value is found in the window by its slot.

    Attributes:
        executables: candidates, at least one; all take the same arguments.
        choice: finds the fastest of native replay and the candidates; None takes the first one.
        checks: where an index is out of range, the entries are replayed, and raise what they raise.
        entries, inputs, outputs, scalars: the window's numbers.
    """

    executables: tuple[Executable, ...]
    choice: Choice | None
    checks: tuple[IndexCheck, ...]
    entries: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scalars: tuple[ScalarSlot, ...]


Step = NativeStep | RegionStep
