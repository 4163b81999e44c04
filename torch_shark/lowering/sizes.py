"""Regions that differ in one size, and what they are of any such size.

A loop over many lengths meets the same operators with other integers: sizes, strides, offsets and
arguments. Where each integer that differs is a function of one of them, the region is written with
`Form`s in place of integers, and compiled once with that size as an argument.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from torch_shark.lowering.forms import Form
from torch_shark.lowering.region import Region
from torch_shark.record import Entry, HostScalar, StorageInfo, TensorRef

Integers = tuple[int, ...]
Forms = tuple[int | Form, ...]


def integers_of(region: Region) -> tuple[bytes, Integers]:
    """Return a digest of what a region is but for its integers, and these in a fixed order."""
    found: list[int] = []

    def take(value: int) -> int:
        found.append(value)
        return 0

    blank = repr(_mapped(region, take, lift=True)).encode()
    return hashlib.blake2b(blank, digest_size=20).digest(), tuple(found)


def with_forms(region: Region, forms: Forms, size: int) -> Region:
    """Return a region with forms in place of its integers.

    Args:
        region: one whose integers the forms give at `size`.
        forms: in the order of `integers_of`.
        size: kept in the region, for what has to be done with a number.
    """
    rest = iter(forms)
    return replace(_mapped(region, lambda _: next(rest)), size=size)


def at_size(region: Region, size: Any) -> Region:
    """Return a region with forms as it is at a size, which may be symbolic."""
    return replace(
        _mapped(region, lambda value: value.at(size) if isinstance(value, Form) else value),
        size=None,
    )


def unify(one: Integers, other: Integers) -> Forms | None:
    """Return forms that give both regions' integers, each at a size of its own; None if none do.

    The size is the integer that is met most often among those that differ.
    """
    pairs = list(zip(one, other, strict=True))
    differing = Counter(pair for pair in pairs if pair[0] != pair[1])
    if not differing:
        return None
    sizes = max(differing, key=lambda pair: (differing[pair], -min(pair)))
    if min(sizes) < 2:
        return None
    forms = [first if first == second else _form(sizes, (first, second)) for first, second in pairs]
    if any(form is None for form in forms):
        return None
    return tuple(form for form in forms if form is not None)


def size_of(forms: Forms, integers: Integers) -> int | None:
    """Return the size at which forms give a region's integers; None if there is none."""
    size = next(
        integers[i] for i, form in enumerate(forms) if isinstance(form, Form) and form == _SIZE
    )
    fits = size >= 2 and all(
        value == (form.at(size) if isinstance(form, Form) else form)
        for form, value in zip(forms, integers, strict=True)
    )
    return size if fits else None


_SIZE = Form(1, 1, 0)


def _form(sizes: tuple[int, int], values: tuple[int, int]) -> Form | None:
    """The simplest form with two values at two sizes: a multiple, one of the square, or a line."""
    for power in (1, 2):
        factor, rest = divmod(values[0], sizes[0] ** power)
        if not rest and values[1] == factor * sizes[1] ** power:
            return Form(factor, power, 0)
    slope, rest = divmod(values[1] - values[0], sizes[1] - sizes[0])
    return None if rest else Form(slope, 1, values[0] - slope * sizes[0])


def _mapped(region: Region, number: Callable[[Any], Any], lift: bool = False) -> Region:
    """A region with each integer that its digest depends on replaced.

    Args:
        region: what it is made of; integers that are lifted scalars stay.
        number: gives the new one; called in a fixed order.
        lift: whether the values of lifted scalars are made equal.
    """
    lifted = {(slot.entry, slot.arg, slot.item) for slot, _ in region.scalars}

    def walk(value: Any, *slot: int | None) -> Any:
        if slot in lifted:
            return _alike(value) if lift else value
        if isinstance(value, TensorRef):
            return replace(
                value,
                sizes=tuple(map(number, value.sizes)),
                strides=tuple(map(number, value.strides)),
                offset=number(value.offset),
            )
        if isinstance(value, (list, tuple)):
            return [walk(item, *slot[:2], i) for i, item in enumerate(value)]
        return number(value) if type(value) in (int, Form) else value

    def entry(i: int, one: Entry) -> Entry:
        return Entry(
            one.op,
            tuple(walk(value, i, arg, None) for arg, value in enumerate(one.args)),
            tuple(walk(ref) for ref in one.outputs),
        )

    def storage(info: StorageInfo) -> StorageInfo:
        return replace(
            info,
            nbytes=number(info.nbytes),
            sizes=tuple(map(number, info.sizes)),
            strides=tuple(map(number, info.strides)),
        )

    return replace(
        region,
        entries=tuple(entry(i, one) for i, one in enumerate(region.entries)),
        storages=tuple(map(storage, region.storages)),
        parts=_walked(walk, region.parts),
    )


def _walked(walk: Callable[[Any], Any], refs: Iterable[TensorRef]) -> tuple[TensorRef, ...]:
    return tuple(map(walk, refs))


def _alike(value: Any) -> Any:
    return replace(value, value=0) if isinstance(value, HostScalar) else type(value)(0)
