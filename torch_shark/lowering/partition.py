"""Partition of a window: which entries run natively and which together, in what order.

Every entry gets a level: the highest level among the entries that it depends on, plus one at each
crossing between native and compiled. A region is a connected component of compiled entries within
a level, so it is convex, and steps in order of their level respect every dependency. Linear time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_shark.lowering.kinds import EntryKind
from torch_shark.record import WindowRecord

# More entries in one executable cost more compile time than they save calls.
MOST_ENTRIES = 256


@dataclass(frozen=True, slots=True)
class Placed:
    """A window's entries with what planning knows of them.

    Attributes:
        record: the window.
        kinds: each entry's kind.
        numbers: the window's storage numbers of each entry's kind.
        native: whether each entry runs natively.
        live: whether each entry has to run.
    """

    record: WindowRecord
    kinds: Sequence[EntryKind]
    numbers: Sequence[tuple[int, ...]]
    native: Sequence[bool]
    live: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that run as one step: one native entry, or a region's entries in program order."""

    entries: tuple[int, ...]
    native: bool


@dataclass(frozen=True, slots=True)
class Uses:
    """Who touches a storage: live entries that read it and that write it, in program order."""

    readers: list[int]
    writers: list[int]


def find_live(
    record: WindowRecord, kinds: Sequence[EntryKind], numbers: Sequence[tuple[int, ...]]
) -> list[bool]:
    """Tells for each entry whether anything needs it."""
    needed = [info.alive for info in record.storages]
    live = [False] * len(kinds)
    for e in range(len(kinds) - 1, -1, -1):
        kind, local = kinds[e], numbers[e]
        if kind.kept or any(needed[local[s]] for s in kind.writes):
            live[e] = True
            for s in kind.fresh:
                needed[local[s]] = False
            for s in kind.reads:
                needed[local[s]] = True
    return live


def find_uses(placed: Placed) -> list[Uses]:
    """Returns the uses of each storage by live entries."""
    uses = [Uses([], []) for _ in placed.record.storages]
    for e, (kind, local) in enumerate(zip(placed.kinds, placed.numbers, strict=True)):
        if placed.live[e]:
            for s in kind.reads:
                uses[local[s]].readers.append(e)
            for s in kind.writes:
                uses[local[s]].writers.append(e)
    return uses


def partition(placed: Placed) -> list[Group]:
    """Returns the steps of a window, in an order that respects every dependency."""
    levels = [0] * len(placed.kinds)
    parents = list(range(len(placed.kinds)))
    native = placed.native

    def root(e: int) -> int:
        while parents[e] != e:
            parents[e] = parents[parents[e]]
            e = parents[e]
        return e

    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    last_random = -1
    for e, (kind, local) in enumerate(zip(placed.kinds, placed.numbers, strict=True)):
        if not placed.live[e]:
            continue
        before: list[int] = []
        for s in kind.reads:
            if local[s] in writer:
                before.append(writer[local[s]])
        for s in kind.writes:
            if local[s] in writer:
                before.append(writer[local[s]])
            before.extend(readers.get(local[s], ()))
        if kind.random:
            if last_random >= 0:
                before.append(last_random)
            last_random = e
        is_native, level = native[e], 0
        for p in before:
            level = max(level, levels[p] + (native[p] != is_native))
        if not is_native:
            # An index is checked before the region that uses it: it must be there by then.
            for s, limit in kind.limits:
                p = writer.get(local[s], -1)
                if limit.checked and p >= 0 and not native[p]:
                    level = max(level, levels[p] + 1)
        levels[e] = level
        if not is_native:
            for p in before:
                if not native[p] and levels[p] == level:
                    parents[root(p)] = root(e)
        for s in kind.reads:
            readers.setdefault(local[s], []).append(e)
        for s in kind.writes:
            writer[local[s]] = e
            readers[local[s]] = []
    return _groups(placed, levels, [root(e) for e in range(len(levels))])


def _groups(placed: Placed, levels: list[int], roots: list[int]) -> list[Group]:
    components: dict[int, list[int]] = {}
    groups: list[tuple[int, Group]] = []
    for e, level in enumerate(levels):
        if not placed.live[e]:
            continue
        if placed.native[e]:
            groups.append((level, Group((e,), True)))
        else:
            components.setdefault(roots[e], []).append(e)
    for entries in components.values():
        count = -(-len(entries) // MOST_ENTRIES)
        size = -(-len(entries) // count)
        for start in range(0, len(entries), size):
            chunk = tuple(entries[start : start + size])
            groups.append((levels[chunk[0]], Group(chunk, False)))
    groups.sort(key=lambda item: (item[0], item[1].entries[0]))
    return [group for _, group in groups]
