"""Cuts a long run of entries where it repeats itself, so that equal layers become equal regions.

A region of a whole model compiles for as long as all its layers together; one of a layer compiles
once and serves them all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# A turn of fewer entries is joined with others: regions have a price per call.
_LEAST_TURN = 8


def cut_repeats(kinds: Sequence[int], crossing: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Returns the pieces, as (begin, end), that cover all entries in order.

    Args:
        kinds: each entry's kind, as a number.
        crossing: for each position, how many storages a cut before it would cross.
        most: how many entries a piece may have.
    """
    return _cut(np.asarray(kinds), crossing, most, 0, len(kinds))


def _cut(
    kinds: NDArray[np.int64], crossing: Sequence[int], most: int, begin: int, end: int
) -> list[tuple[int, int]]:
    """The pieces of a part: those before, of, and after its longest repetition."""
    found = _find_repetition(kinds[begin:end], most) if end - begin > 2 * _LEAST_TURN else None
    if found is None:
        return [(i, min(i + most, end)) for i in range(begin, end, most)]
    start, length, period = found
    start += begin
    turn = _turn(period, most)
    # Cut where the fewest values pass from one turn to the next.
    first = min(range(start, start + min(turn, length - turn + 1)), key=lambda i: crossing[i])
    turns = (start + length - first) // turn
    last = first + turns * turn
    pieces = [(i, i + turn) for i in range(first, last, turn)]
    head = _cut(kinds, crossing, most, begin, first) if first > begin else []
    tail = _cut(kinds, crossing, most, last, end) if last < end else []
    return head + pieces + tail


def _find_repetition(kinds: NDArray[np.int64], most: int) -> tuple[int, int, int] | None:
    """(start, length, period) of the longest stretch that repeats at least once, or None.

    Of equal stretches the one of the shortest period counts. It has to be a quarter of the whole
    and have room for two pieces.
    """
    count = len(kinds)
    best: tuple[int, int, int] | None = None
    for period in range(1, min(most, count // 2) + 1):
        equal = kinds[period:] == kinds[:-period]
        matches = int(equal.sum())
        if not matches or matches + period <= (best[1] if best else count // 4):
            continue
        edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
        lengths = edges[1::2] - edges[::2]
        longest = int(lengths.argmax())
        length = int(lengths[longest]) + period
        if length > (best[1] if best else count // 4):
            best = (int(edges[2 * longest]), length, period)
    return best if best is not None and best[1] >= 2 * _turn(best[2], most) else None


def _turn(period: int, most: int) -> int:
    """How many entries make a piece: one period, or as many short ones as a piece may have."""
    return period if period >= _LEAST_TURN else period * (most // period)
