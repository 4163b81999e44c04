"""Plans: what runs natively and what compiled, in which order, for one window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch_shark.lowering.region import ScalarSlot
from torch_shark.record import TensorRef

if TYPE_CHECKING:
    from torch_shark._C import Choice


class Executable(Protocol):
    """A loaded region."""

    def prepare(
        self, inputs: list[Any], outputs: list[Any], scalars: list[Any]
    ) -> tuple[Callable[..., None], tuple[Any, ...], Callable[[], None]]:
        """Return a function that begins a run, its arguments, and one that waits for the end.

        Both are of C: nothing is written before the first is called, and no signal's handler runs
        while they do. Runs follow one another, and who waits for one waits for all before it.
        """

    def restart(self) -> None:
        """Go on after a run that failed, or was prepared and did not begin."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a region compiled.

    Attributes:
        executable: the loaded region.
        inputs: the storages that it takes, by the window's numbers.
        in_place: whether it overwrites each output in the storage's own memory.
    """

    executable: Executable
    inputs: tuple[int, ...]
    in_place: tuple[bool, ...]


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

    An output that is not written in place goes into a fresh buffer of the storage's size, which
    then becomes the storage's. A scalar's value is found in the window by its slot.

    Attributes:
        candidates: at least one.
        choice: finds the fastest of native replay and the candidates; None takes the first one.
        checks: where an index is out of range, the entries are replayed, and raise what they raise.
        entries, outputs, scalars: the window's numbers.
        parts: where each result that follows the outputs is copied to.
        digest: names the region.
    """

    candidates: tuple[Candidate, ...]
    choice: Choice | None
    checks: tuple[IndexCheck, ...]
    entries: tuple[int, ...]
    outputs: tuple[int, ...]
    parts: tuple[TensorRef, ...]
    scalars: tuple[ScalarSlot, ...]
    digest: str


Step = NativeStep | RegionStep
