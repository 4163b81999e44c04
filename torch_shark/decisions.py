"""Which way was found to be the fastest on this machine: measured once, then stored."""

from __future__ import annotations

import json
from collections.abc import Sequence

from torch_shark._C import Choice
from torch_shark.environment import environment, machine
from torch_shark.store import ByteStore, KeyParts
from torch_shark.targets import Target

NATIVE = "native"
WIDE = "wide"
WINDOW_WAYS = (NATIVE, "narrow", WIDE)


class Decisions:
    """The choices of a process, and what was decided in earlier ones.

    They are about regions, whose ways are `NATIVE` and the flags of their candidates, and about
    windows, whose ways are `WINDOW_WAYS`.

    Args:
        candidates: what regions are compiled for.
        store: keeps decisions between processes; None keeps nothing.
    """

    def __init__(self, candidates: Sequence[Target], store: ByteStore | None) -> None:
        self._candidates = candidates
        self._store = store
        self.told: list[str] = []

    def find_region(self, digest: bytes) -> str | None:
        """Return the way that was decided for a region, or None if none was, or is known now."""
        return self._find("decision", digest, [NATIVE, *map(way_of, self._candidates)])

    def find_window(self, digest: bytes) -> str | None:
        """Return the way that was decided for a window, or None if none was."""
        return self._find("window", digest, WINDOW_WAYS)

    def choose_for_region(
        self, digest: bytes, operators: str, compiled: Sequence[Target]
    ) -> Choice:
        """Return a choice between native replay and what was compiled; it is stored when made."""
        return self._choice("decision", digest, operators, [NATIVE, *map(way_of, compiled)])

    def choose_for_window(self, digest: bytes, operators: int) -> Choice:
        """Return a choice among all ways of a window of operators; it is stored when made."""
        return self._choice("window", digest, f"a window of {operators} operators", WINDOW_WAYS)

    def _find(self, what: str, digest: bytes, ways: Sequence[str]) -> str | None:
        stored = self._store.get(self._key(what, digest)) if self._store is not None else None
        if stored is None:
            return None
        try:
            way = json.loads(stored)["way"]
        except (ValueError, KeyError, TypeError):
            return None
        return way if way in ways else None

    def _choice(self, what: str, digest: bytes, about: str, ways: Sequence[str]) -> Choice:
        def decided(way: int, microseconds: list[float]) -> None:
            times = dict(zip(ways, microseconds, strict=True))
            self.told.append(_sentence(about, ways[way], times))
            if self._store is not None:
                value = json.dumps({"way": ways[way], "microseconds": list(times.values())})
                self._store.put(self._key(what, digest), value.encode())

        return Choice(len(ways), decided)

    def _key(self, what: str, digest: bytes) -> KeyParts:
        return [
            (what, digest.hex()),
            ("candidates", "; ".join(map(way_of, self._candidates))),
            ("machine", machine()),
            *environment(self._candidates[0]),
        ]


def way_of(target: Target) -> str:
    """Return the name of a candidate."""
    return " ".join(target.flags)


def _sentence(about: str, way: str, times: dict[str, float]) -> str:
    if way == NATIVE:
        taken = "natively"
    else:
        taken = "with products compiled" if way == WIDE else "compiled"
    compiled = [time for name, time in times.items() if name != NATIVE]
    return (
        f"{about} runs {taken}: native {times[NATIVE]:.0f} us, "
        f"compiled {', '.join(f'{time:.0f}' for time in compiled)} us"
    )
