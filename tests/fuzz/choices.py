"""Choices read from bytes: hypothesis shrinks the bytes, and with them the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """A byte decides each choice; when they have run out, the first option is taken."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def below(self, count: int) -> int:
        """An integer in [0, count), the smaller the simpler; `count` is at most 256."""
        return next(self._bytes, 0) % count

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], the nearer to `low` the simpler."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`, the earlier the simpler."""
        return options[self.below(len(options))]

    def rarely(self, once_in: int) -> bool:
        """True about once in so many times."""
        return self.below(once_in) == once_in - 1
