"""Which way of a region was found to be the fastest on this machine: measured once, then stored."""

from __future__ import annotations

import json
from collections.abc import Sequence

from torch_shark._C import Choice
from torch_shark.environment import environment, machine
from torch_shark.store import ByteStore, KeyParts
from torch_shark.targets import Target

NATIVE = "native"


class Decisions:
    """The choices of a process, and what was decided in earlier ones.

    A way is named by the flags of its candidate, or `NATIVE`.

    Args:
        candidates: what regions are compiled for.
        store: keeps decisions between processes; None keeps nothing.
    """

    def __init__(self, candidates: Sequence[Target], store: ByteStore | None) -> None:
        self._candidates = candidates
        self._store = store
        self.told: list[str] = []

    def find(self, digest: bytes) -> str | None:
        """Return the way that was decided for a region, or None if none was, or is known now."""
        stored = self._store.get(self._key(digest)) if self._store is not None else None
        if stored is None:
            return None
        try:
            way = json.loads(stored)["way"]
        except (ValueError, KeyError, TypeError):
            return None
        known = [NATIVE, *map(way_of, self._candidates)]
        return way if way in known else None

    def choice(self, digest: bytes, operators: str, compiled: Sequence[Target]) -> Choice:
        """Return a choice between native replay and what was compiled; it is stored when made."""
        ways = [NATIVE, *map(way_of, compiled)]

        def decided(way: int, microseconds: list[float]) -> None:
            times = dict(zip(ways, microseconds, strict=True))
            self.told.append(_sentence(operators, ways[way], times))
            if self._store is not None:
                value = json.dumps({"way": ways[way], "microseconds": list(times.values())})
                self._store.put(self._key(digest), value.encode())

        return Choice(len(ways), decided)

    def _key(self, digest: bytes) -> KeyParts:
        return [
            ("decision", digest.hex()),
            ("candidates", "; ".join(map(way_of, self._candidates))),
            ("machine", machine()),
            *environment(self._candidates[0]),
        ]


def way_of(target: Target) -> str:
    """Return the name of a candidate."""
    return " ".join(target.flags)


def _sentence(operators: str, way: str, times: dict[str, float]) -> str:
    taken = "runs natively" if way == NATIVE else "runs compiled"
    compiled = [time for name, time in times.items() if name != NATIVE]
    return (
        f"{operators} {taken}: native {times[NATIVE]:.0f} us, "
        f"compiled {', '.join(f'{time:.0f}' for time in compiled)} us"
    )
