"""Integers that are functions of a size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Form:
    """An integer as a function of a size: `factor * size ** power + rest`; `power` is 1 or 2."""

    factor: int
    power: int
    rest: int

    def at(self, size: Any) -> Any:
        """Return the integer of a size, which may be symbolic."""
        value = size if self.power == 1 else size * size
        if self.factor != 1:
            value = value * self.factor
        return value + self.rest if self.rest else value
