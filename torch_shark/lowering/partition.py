"""Partition of a window: which entries run natively and which together, in what order.

Every entry gets a level: the highest level among the entries that it depends on, plus one at each
crossing between native and compiled. A region is a connected component of compiled entries within
a level, so it is convex, and no two regions wait for each other. Near linear time.

Where a window's products are in regions, they connect all that there is. So what no product waits
for has regions of its own: of an optimizer, one for each parameter, which cuts do not tear apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate

from torch_shark.lowering.kinds import EntryKind
from torch_shark.lowering.repeats import cut_repeats
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
        products: whether each entry is a product, or the like, that is compiled with what is around
            it; empty if none is.
    """

    record: WindowRecord
    kinds: Sequence[EntryKind]
    numbers: Sequence[tuple[int, ...]]
    native: Sequence[bool]
    live: Sequence[bool]
    products: Sequence[bool] = ()


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
    needed = [info.alive and info.nbytes > 0 for info in record.storages]
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
    """Returns the steps of a window: program order, wherever every dependency allows it."""
    count = len(placed.kinds)
    levels = [0] * count
    parents = list(range(count))
    native = placed.native
    edges: list[tuple[int, int]] = []

    def root(e: int) -> int:
        while parents[e] != e:
            parents[e] = parents[parents[e]]
            e = parents[e]
        return e

    writer: dict[int, int] = {}
    part_writer: dict[int, int] = {}
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
            # An index is checked before the region that uses it: it must be there by then. A part
            # gets to its place after the region that makes it.
            awaited = [writer.get(local[s]) for s, _ in kind.limits]
            awaited += [part_writer.get(local[s]) for s in (*kind.reads, *kind.writes)]
            for earlier in awaited:
                if earlier is not None and not native[earlier]:
                    level = max(level, levels[earlier] + 1)
        levels[e] = level
        edges.extend((p, e) for p in before)
        for s in kind.reads:
            readers.setdefault(local[s], []).append(e)
        for s in kind.writes:
            writer[local[s]] = e
            part_writer.pop(local[s], None)
            readers[local[s]] = []
        for s in kind.parts:
            part_writer[local[s]] = e
    awaited_by_product = _before_products(placed, edges)
    for p, e in edges:
        together = levels[p] == levels[e] and awaited_by_product[p] == awaited_by_product[e]
        if together and not native[p] and not native[e]:
            parents[root(p)] = root(e)
    return _in_order(_groups(placed, [root(e) for e in range(count)]), edges, count)


def _before_products(placed: Placed, edges: list[tuple[int, int]]) -> list[bool]:
    """Tells for each entry whether it is a product or one waits for it; edges by their ends."""
    found = list(placed.products) or [False] * len(placed.kinds)
    for p, e in reversed(edges):
        found[p] |= found[e]
    return found


def _groups(placed: Placed, roots: list[int]) -> list[Group]:
    """The components, cut into pieces so that what repeats shares its executables."""
    groups: list[Group] = []
    components: dict[int, list[int]] = {}
    for e, live in enumerate(placed.live):
        if live and placed.native[e]:
            groups.append(Group((e,), True))
        elif live:
            components.setdefault(roots[e], []).append(e)
    numbers: dict[bytes, int] = {}
    for entries in components.values():
        kinds = [numbers.setdefault(placed.kinds[e].digest, len(numbers)) for e in entries]
        for begin, end in cut_repeats(kinds, _crossing(placed, entries), MOST_ENTRIES):
            groups.append(Group(tuple(entries[begin:end]), False))
    return groups


def _crossing(placed: Placed, entries: list[int]) -> list[int]:
    """For each position among the entries, how many storages written before it are used after."""
    change = [0] * (len(entries) + 1)
    written: dict[int, int] = {}
    last_use: dict[int, int] = {}
    for i, e in enumerate(entries):
        kind, local = placed.kinds[e], placed.numbers[e]
        for s in kind.writes:
            written.setdefault(local[s], i)
            last_use[local[s]] = i
        for s in kind.reads:
            if local[s] in written:
                last_use[local[s]] = i
    for storage, first in written.items():
        change[first + 1] += 1
        change[last_use[storage] + 1] -= 1
    return list(accumulate(change[:-1]))


def _in_order(groups: list[Group], edges: list[tuple[int, int]], count: int) -> list[Group]:
    """Sorts topologically; of the groups that may run, the one that ends first is next.

    Any other order, that of levels among them, would keep results alive for longer: what a
    checkpointed backward pass recomputes depends on little, and would all be there at once.
    """
    member_of = [-1] * count
    for g, group in enumerate(groups):
        for e in group.entries:
            member_of[e] = g
    followers: list[set[int]] = [set() for _ in groups]
    waits = [0] * len(groups)
    for p, e in edges:
        g, follower = member_of[p], member_of[e]
        if g != follower and follower not in followers[g]:
            followers[g].add(follower)
            waits[follower] += 1
    ready = [(group.entries[-1], g) for g, group in enumerate(groups) if not waits[g]]
    heapify(ready)
    ordered: list[Group] = []
    while ready:
        _, g = heappop(ready)
        ordered.append(groups[g])
        for follower in followers[g]:
            waits[follower] -= 1
            if not waits[follower]:
                heappush(ready, (groups[follower].entries[-1], follower))
    return ordered
