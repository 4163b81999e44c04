"""Entries sorted into kinds: what planning has to know of an entry, found once for all equal ones.

Two entries are of one kind if they have the same operator, the same geometry over storages of the
same base geometry, and the same constants; lifted scalars do not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_shark.kernels.kernel import find_kernel
from torch_shark.lowering.indices import IndexLimit, index_limits
from torch_shark.lowering.interface import ScalarKind
from torch_shark.lowering.operators import Operator, find_operator
from torch_shark.lowering.scalars import liftable_positions, lifted_kind
from torch_shark.lowering.support import (
    draws_random,
    native_reason,
    written_arguments,
    written_values,
)
from torch_shark.lowering.views import covers_storage, is_part
from torch_shark.record import Entry, HostScalar, StorageInfo, TensorRef

# Operators whose first argument is only written, as an out= argument is; they raise nothing late.
_OVERWRITES = frozenset({"aten::copy", "aten::fill.Scalar", "aten::fill.Tensor", "aten::zero"})


@dataclass(frozen=True, slots=True)
class EntryKind:
    """What all entries of one kind share. Storages are numbered by first use in the entry.

    Attributes:
        digest: names the kind, equal in all processes.
        native: why it must run natively, or None.
        reads: storages whose content matters to it; those that it writes in part are among them.
        writes: storages that it writes, fresh results included.
        fresh: storages of its results.
        parts: storages of which it writes a part, which is then a result of its own.
        scalars: (argument, item, vector) of each lifted scalar.
        limits: the limits of its index arguments, with the index's storage.
        random: it draws from a generator, or sets one.
        kept: it must run even if nobody needs what it writes: it may raise, as anything native may.
    """

    digest: bytes
    native: str | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    fresh: tuple[int, ...]
    parts: tuple[int, ...]
    scalars: tuple[tuple[int, int | None, ScalarKind], ...]
    limits: tuple[tuple[int, IndexLimit], ...]
    random: bool
    kept: bool


class KindTable:
    """Finds the kind of an entry; bounded, and not safe for several threads."""

    _MOST = 65536

    def __init__(self) -> None:
        self._kinds: dict[tuple[Any, ...], EntryKind] = {}

    def find(
        self, entry: Entry, storages: Sequence[StorageInfo]
    ) -> tuple[EntryKind, tuple[int, ...]]:
        """Returns an entry's kind, and the window's number of each storage of that kind."""
        numbers: dict[int, int] = {}
        lifted = liftable_positions(entry.op)
        kernel = find_kernel(entry.op)
        parts: list[Any] = [entry.op if kernel is None else (entry.op, kernel.digest)]
        for position, value in enumerate(entry.args):
            parts.append(_part(value, numbers, position in lifted))
        for ref in entry.outputs:
            parts.append(_part(ref, numbers, False))
        for storage in numbers:
            info = storages[storage]
            parts.append((info.nbytes, info.dtype, info.sizes, info.strides))
        key = tuple(parts)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= self._MOST:
                self._kinds.clear()
            kind = self._kinds[key] = _make_kind(entry, storages, numbers, key)
        return kind, tuple(numbers)


def _part(value: Any, numbers: dict[int, int], lifted: bool) -> Any:
    """The value's part of the key: equal, and of equal text, if lowering sees no difference.

    Beside integers, a number's meaning depends on the default dtype.
    """
    kind = type(value)
    if kind is TensorRef:
        number = numbers.setdefault(value.storage, len(numbers))
        return (
            number, value.dtype, value.sizes, value.strides, value.offset, value.conj, value.neg
        )  # fmt: skip
    if kind is int or value is None:
        return value
    if kind is float:
        return ("lifted", torch.get_default_dtype()) if lifted else repr(value)
    if kind is HostScalar:
        return ("host", value.dtype, value.wrapped and torch.get_default_dtype())
    if kind is list or kind is tuple:
        return tuple([_part(item, numbers, lifted) for item in value])
    return (kind.__name__, repr(value))


def _make_kind(
    entry: Entry,
    storages: Sequence[StorageInfo],
    numbers: dict[int, int],
    key: tuple[Any, ...],
) -> EntryKind:
    operator = find_operator(entry.op)
    reason = native_reason(operator, entry, storages)
    reads, writes, fresh = _accesses(operator, entry, storages)
    limits = index_limits(operator, entry) if operator is not None and reason is None else []
    scalars = _lifted(operator, entry) if operator is not None and reason is None else ()
    parts = written_parts(operator, entry, storages) if reason is None else []
    overwrites = operator is not None and operator.functional in _OVERWRITES
    known = entry.op.startswith("aten::") or find_kernel(entry.op) is not None
    random = operator is None or not known or draws_random(operator, entry)
    return EntryKind(
        digest=hashlib.blake2b(repr(key).encode(), digest_size=16).digest(),
        native=reason,
        reads=tuple(numbers[s] for s in reads),
        writes=tuple(numbers[s] for s in writes),
        fresh=tuple(numbers[s] for s in fresh),
        parts=tuple(dict.fromkeys(numbers[ref.storage] for ref in parts)),
        scalars=scalars,
        limits=tuple((numbers[limit.ref.storage], limit) for limit in limits),
        random=random,
        kept=(reason is not None and not overwrites) or not writes or bool(limits),
    )


def _accesses(
    operator: Operator | None, entry: Entry, storages: Sequence[StorageInfo]
) -> tuple[list[int], list[int], list[int]]:
    reads: dict[int, None] = {}
    writes: dict[int, None] = {}
    # Of an operator that Python does not know, every argument may be written.
    written: Sequence[int] = (
        range(len(entry.args)) if operator is None else written_arguments(operator, entry)
    )
    only_written: Sequence[int] = ()
    if operator is not None and operator.functional is not None:
        only_written = [i for i in operator.written if i not in operator.functional_args]
        if operator.functional in _OVERWRITES:
            only_written = (0,)
    for position, value in enumerate(entry.args):
        for ref in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(ref, TensorRef):
                if position in written:
                    writes[ref.storage] = None
                if position not in only_written or not covers_storage(ref, storages[ref.storage]):
                    reads[ref.storage] = None
    fresh = [ref.storage for ref in entry.outputs if ref is not None]
    return list(reads), [*writes, *fresh], fresh


def written_parts(
    operator: Operator | None, entry: Entry, storages: Sequence[StorageInfo]
) -> list[TensorRef]:
    """Returns what an entry writes of storages that are written in part."""
    written = [] if operator is None else written_values(operator, entry)
    return [ref for ref in written if ref is not None and is_part(ref, storages[ref.storage])]


def _lifted(operator: Operator, entry: Entry) -> tuple[tuple[int, int | None, ScalarKind], ...]:
    found: list[tuple[int, int | None, ScalarKind]] = []
    for position, value in enumerate(entry.args):
        items = enumerate(value) if isinstance(value, (list, tuple)) else [(None, value)]
        for item, scalar in items:
            kind = lifted_kind(operator, position, scalar)
            if kind is not None:
                found.append((position, item, kind))
    return tuple(found)
