"""Regions that differ in one size: the first is compiled as it is, the second for any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from torch_shark.lowering.artifact import Answer
from torch_shark.lowering.region import Region
from torch_shark.lowering.sizes import Forms, Integers, integers_of, size_of, unify, with_forms
from torch_shark.targets import Target

MOST_SIZES = 8  # that are compiled one by one, where none can be compiled for any size


@dataclass(slots=True)
class AnySize:
    """A family's region of any size.

    Attributes:
        family: what its regions have in common.
        forms: its integers.
        answer: to come from the compiler, or from the store.
        targets: what it is compiled for.
        stored: whether it is from the store, or there by now.
        refused: whether it does not compile for any size.
    """

    family: bytes
    forms: Forms
    answer: Future[Answer]
    targets: Sequence[Target]
    stored: bool
    refused: bool = False


@dataclass(slots=True)
class _Family:
    seen: list[Integers] = field(default_factory=list)
    any_size: AnySize | None = None


class Families:
    """The families of a planner.

    Args:
        find: returns a family's region of any size that an earlier process has stored, or None.
        compile_region: begins to compile a region for all candidates.
        targets: the candidates.
    """

    def __init__(
        self,
        find: Callable[[bytes], Answer | None],
        compile_region: Callable[[Region, Sequence[Target]], Future[Answer]],
        targets: Sequence[Target],
    ) -> None:
        self._find = find
        self._compile = compile_region
        self._targets = targets
        self._families: dict[bytes, _Family] = {}

    def place(self, region: Region) -> tuple[AnySize, int] | None:
        """Return the region of any size that stands for a region, and its size there.

        None if the region is to be compiled as it is: it is the first of its family, or differs
        from the others in more than one size.
        """
        digest, integers = integers_of(region)
        family = self._families.get(digest)
        if family is None:
            family = self._families[digest] = _Family(any_size=self._stored(digest))
        if family.any_size is None:
            for other in family.seen:
                forms = unify(other, integers)
                if forms is not None and (size := size_of(forms, integers)) is not None:
                    answer = self._compile(with_forms(region, forms, size), self._targets)
                    family.any_size = AnySize(digest, forms, answer, self._targets, stored=False)
                    break
        if family.any_size is not None and not family.any_size.refused:
            size = size_of(family.any_size.forms, integers)
            if size is not None:
                return family.any_size, size
        return None

    def may_compile(self, region: Region) -> bool:
        """Tell whether another of its family may be compiled as it is; it is counted as such."""
        digest, integers = integers_of(region)
        seen = self._families[digest].seen
        if len(seen) >= MOST_SIZES:
            return False
        seen.append(integers)
        return True

    def _stored(self, digest: bytes) -> AnySize | None:
        found = self._find(digest)
        if found is None:
            return None
        interface = next((a.interface for a in found.artifacts if a.interface is not None), None)
        if interface is None:
            return None
        answer: Future[Answer] = Future()
        answer.set_result(found)
        return AnySize(digest, interface.forms, answer, self._targets, stored=True)
