"""A region: the entries that become one executable, over storages of its own numbering."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch_shark.kernels.kernel import Kernel, find_kernel
from torch_shark.lowering.interface import ScalarKind
from torch_shark.lowering.kinds import written_parts
from torch_shark.lowering.operators import find_operator
from torch_shark.lowering.partition import Placed, Uses
from torch_shark.record import Entry, StorageInfo, TensorRef


@dataclass(frozen=True, slots=True)
class ScalarSlot:
    """Where a lifted scalar's value is found: argument `arg` of entry `entry`, or its item."""

    entry: int
    arg: int
    item: int | None


@dataclass(frozen=True, slots=True)
class Region:
    """Entries to compile together, as lowering sees them.

    Attributes:
        entries: in program order; their storages are numbered within the region.
        storages: what is known of them.
        inputs: storages whose content before the region is read.
        outputs: storages that are written and needed afterwards.
        parts: what is written, of which storages, where that is not the whole of them; results
            that follow the outputs.
        scalars: the lifted scalars, in the order in which they are passed, with their kinds.
        size: where some integers are forms (see `sizes`): the size for which it was asked.
        kernels: those of users that the entries' operators have.
    """

    entries: tuple[Entry, ...]
    storages: tuple[StorageInfo, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    parts: tuple[TensorRef, ...]
    scalars: tuple[tuple[ScalarSlot, ScalarKind], ...]
    size: int | None = None
    kernels: tuple[Kernel, ...] = ()

    def operators(self) -> str:
        """Returns the operators' names in order, for messages."""
        return ", ".join(entry.op for entry in self.entries)


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """A region's place in its window, by the window's numbers of entries and storages.

    `digest` names what is to be compiled: equal for equal regions, in all processes.
    """

    entries: tuple[int, ...]
    storages: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    parts: tuple[TensorRef, ...]
    digest: bytes


def place_region(entries: tuple[int, ...], placed: Placed, uses: Sequence[Uses]) -> RegionPlan:
    """Finds the inputs, the outputs and the digest of a region.

    Args:
        entries: a convex set of the window's entries, in program order.
        placed: the window.
        uses: the uses of each of its storages.
    """
    storages, entries_of = placed.record.storages, placed.record.entries
    members = set(entries)
    numbers: dict[int, int] = {}
    defined: set[int] = set()
    inputs: dict[int, None] = {}
    written: dict[int, None] = {}
    parts: list[TensorRef] = []
    digest = hashlib.blake2b(digest_size=20)
    for e in entries:
        kind, local = placed.kinds[e], placed.numbers[e]
        for s in kind.reads:
            storage = local[s]
            if storage not in defined:
                defined.add(storage)
                if not storages[storage].born or _written_before(uses[storage], e):
                    inputs[storage] = None
        for s in kind.writes:
            if s not in kind.parts:
                defined.add(local[s])
                if storages[local[s]].nbytes:
                    written[local[s]] = None
        if kind.parts:
            parts += written_parts(find_operator(entries_of[e].op), entries_of[e], storages)
        digest.update(kind.digest)
        for storage in local:
            digest.update(numbers.setdefault(storage, len(numbers)).to_bytes(4, "little"))

    def is_needed(storage: int) -> bool:
        return storages[storage].alive or _read_after(uses[storage], members)

    outputs = tuple(filter(is_needed, written))
    needed_parts = tuple(ref for ref in parts if is_needed(ref.storage))
    for group in (tuple(inputs), outputs, [ref.storage for ref in needed_parts]):
        digest.update(b"|")
        for storage in group:
            digest.update(numbers[storage].to_bytes(4, "little"))
    return RegionPlan(
        entries, tuple(numbers), tuple(inputs), outputs, needed_parts, digest.digest()
    )


def single_entry(entry: int, placed: Placed) -> RegionPlan:
    """Returns the region of one entry alone, with everything that it writes as an output."""
    kind, local = placed.kinds[entry], placed.numbers[entry]
    record = placed.record
    parts = written_parts(
        find_operator(record.entries[entry].op), record.entries[entry], record.storages
    )
    return RegionPlan(
        entries=(entry,),
        storages=local,
        inputs=tuple(local[s] for s in kind.reads),
        outputs=tuple(
            local[s]
            for s in kind.writes
            if s not in kind.parts and record.storages[local[s]].nbytes
        ),
        parts=tuple(parts),
        digest=kind.digest,
    )


def extract(plan: RegionPlan, placed: Placed) -> Region:
    """Returns a placed region in numbers of its own."""
    numbers = {storage: i for i, storage in enumerate(plan.storages)}
    operators = dict.fromkeys(placed.record.entries[e].op for e in plan.entries)
    kernels = map(find_kernel, operators)
    return Region(
        entries=tuple(_renumber(placed.record.entries[e], numbers) for e in plan.entries),
        storages=tuple(placed.record.storages[s] for s in plan.storages),
        inputs=tuple(numbers[s] for s in plan.inputs),
        outputs=tuple(numbers[s] for s in plan.outputs),
        parts=tuple(replace(ref, storage=numbers[ref.storage]) for ref in plan.parts),
        scalars=tuple(
            (ScalarSlot(i, arg, item), vector)
            for i, e in enumerate(plan.entries)
            for arg, item, vector in placed.kinds[e].scalars
        ),
        kernels=tuple(kernel for kernel in kernels if kernel is not None),
    )


def scalar_slots(plan: RegionPlan, placed: Placed) -> tuple[ScalarSlot, ...]:
    """Returns where the region's lifted scalars are found in the window, in passing order."""
    return tuple(
        ScalarSlot(e, arg, item) for e in plan.entries for arg, item, _ in placed.kinds[e].scalars
    )


def _written_before(uses: Uses, entry: int) -> bool:
    return bool(uses.writers) and uses.writers[0] < entry


def _read_after(uses: Uses, members: set[int]) -> bool:
    """Whether an entry outside reads what the members write.

    None reads between two of their writes: it would have cut the region.
    """
    first = next(w for w in uses.writers if w in members)
    return any(r > first and r not in members for r in reversed(uses.readers))


def _renumber(entry: Entry, numbers: dict[int, int]) -> Entry:
    def walk(value: Any) -> Any:
        if isinstance(value, TensorRef):
            return replace(value, storage=numbers[value.storage])
        if isinstance(value, (list, tuple)):
            return [walk(item) for item in value]
        return value

    return Entry(entry.op, tuple(map(walk, entry.args)), tuple(map(walk, entry.outputs)))
