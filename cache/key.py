"""What an entry of the cache stands for: an ordered list of named parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

SHOWN_TEXT = 80
"""Longest text, in characters, that a record keeps for explanations; others leave their hash."""


@dataclass(frozen=True, slots=True)
class Part:
    """One named part of a key as it is recorded beside an entry.

    Args:
        name: what the part is, such as ``"iree"``.
        hash: hexadecimal SHA-256 of the part's text.
        text: the text itself where it has at most `SHOWN_TEXT` characters, else None.
    """

    name: str
    hash: str
    text: str | None

    @property
    def shown(self) -> str:
        """The text, or the start of its hash where the text is too long to show."""
        return f"#{self.hash[:12]}" if self.text is None else self.text or "(empty)"


@dataclass(frozen=True)
class CacheKey:
    """An ordered list of named parts that together decide what a cached entry holds.

    Two keys are equal if and only if they have the same names and texts in the same order.
    The text of long parts is not kept, only its hash.
    """

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, parts: Iterable[tuple[str, str]]) -> CacheKey:
        """Make a key from (name, text) pairs, in the order given.

        Raises:
            ValueError: two parts have the same name.
        """
        made = tuple(_part(name, text) for name, text in parts)
        names = [part.name for part in made]
        if len(set(names)) != len(names):
            raise ValueError(f"[shark] expected parts of different names, got {names}")
        return cls(made)

    @cached_property
    def digest(self) -> str:
        """Hexadecimal SHA-256 over the parts, each field prefixed by its length in bytes."""
        hasher = hashlib.sha256()
        for part in self.parts:
            for field in (part.name.encode(), bytes.fromhex(part.hash)):
                hasher.update(len(field).to_bytes(8, "little"))
                hasher.update(field)
        return hasher.hexdigest()

    def differences(self, other: CacheKey) -> list[str]:
        """Name each part in which `other` differs from this key, as ``"iree 3.12 -> 3.13"``.

        The left side is `other`, which is an entry that exists; the right side is this key.
        """
        theirs = {part.name: part for part in other.parts}
        ours = {part.name: part for part in self.parts}
        changed = [
            f"{name} {old.shown} -> {part.shown}"
            for name, part in ours.items()
            if (old := theirs.get(name)) is not None and old.hash != part.hash
        ]
        added = [f"{name} absent -> {ours[name].shown}" for name in ours if name not in theirs]
        removed = [f"{name} {theirs[name].shown} -> absent" for name in theirs if name not in ours]
        reordered = ["order of parts"] if self != other and not changed + added + removed else []
        return changed + added + removed + reordered


def _part(name: str, text: str) -> Part:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Part(name, digest, text if len(text) <= SHOWN_TEXT else None)
