"""What the suite must show: each bar, the figure that comes nearest to missing it, and where."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch_shark.bench.summary import EntrySummary

LOOPS = {"lengths": 1.05, "data-loop": 1.15}
# How many times faster than CPU eager.
SPEEDUPS = {"adamw-single": 3.0, "bert-train": 1.25}


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        text: what is held against it.
        limit: the bar.
        value: the figure.
        where: the entry that it is from, and how many others miss the bar.
        at_least: whether the figure must be no less than the bar, rather than no more.
    """

    text: str
    limit: float
    value: float
    where: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def bars(summary: dict[str, EntrySummary], training: set[str]) -> list[Bar]:
    """The bars that the entries at hand can be held against.

    Args:
        summary: the entries by name.
        training: the names of those that train.
    """
    ours = {name: entry for name, entry in summary.items() if "shark" in entry.peers}
    if not ours:
        return []
    return [
        *_worst_of_all(ours, training),
        *_loops(ours),
        *_speedups(ours),
    ]


def _worst_of_all(ours: dict[str, EntrySummary], training: set[str]) -> Iterator[Bar]:
    steady = {name: entry for name, entry in ours.items() if name not in LOOPS}

    def worst(
        text: str, limit: float, value: Callable[[EntrySummary], float | None], among: set[str]
    ) -> Iterator[Bar]:
        values = {name: value(entry) for name, entry in ours.items() if name in among}
        known = {name: number for name, number in values.items() if number is not None}
        if known:
            most = max(known, key=lambda name: known[name])
            others = sum(number > limit for number in known.values()) - 1
            where = f"{most}, and {others} others" if others > 0 else most
            yield Bar(text, limit, known[most], where)

    def warm(name: str) -> Callable[[EntrySummary], float | None]:
        return lambda entry: getattr(entry.peers.get("shark-warm"), name, None)

    names, everywhere = set(steady), set(ours)
    yield from worst("steady, to eager", 1.05, lambda e: e.peers["shark"].ratio.median, names)
    yield from worst(
        "steady, to the best peer", 1.10, lambda e: e.to_best.median if e.to_best else None, names
    )
    yield from worst(
        "by torch.compile, to inductor",
        1.10,
        lambda e: e.compiled_to_inductor.median if e.compiled_to_inductor else None,
        names,
    )
    yield from worst(
        "first result, to eager", 1.3, lambda e: e.peers["shark"].first_ratio.median, everywhere
    )
    yield from worst(
        "steps to steady after compiling", 10, lambda e: e.peers["shark"].after_compile, names
    )
    yield from worst("compiles with a warm cache", 0, warm("compiles"), everywhere)
    yield from worst("steps to steady with a warm cache", 3, warm("reached_step"), names)
    yield from worst(
        "peak memory, to eager", 1.1, lambda e: e.peers["shark"].peak_ratio.median, training
    )


def _loops(ours: dict[str, EntrySummary]) -> Iterator[Bar]:
    for name in [name for name in LOOPS if name in ours]:
        ratio = ours[name].peers["shark"].ratio.median
        yield Bar("first to last step, to eager", LOOPS[name], ratio, name)


def _speedups(ours: dict[str, EntrySummary]) -> Iterator[Bar]:
    times = {name: entry.peers["shark"].ratio.median for name, entry in ours.items()}
    for name in [name for name in SPEEDUPS if name in ours]:
        yield Bar("eager, to it", SPEEDUPS[name], 1 / times[name], name, at_least=True)
    heat, adamw = ours.get("heat"), ours.get("adamw-single")
    if heat is not None and heat.to_best is not None:
        yield Bar("best peer, to it", 1.5, 1 / heat.to_best.median, "heat", at_least=True)
    if adamw is not None and adamw.to_fused is not None:
        fused = 1 / adamw.to_fused.median
        yield Bar("eager's fused AdamW, to it", 0.8, fused, "adamw-single", at_least=True)
    mean = math.exp(-sum(map(math.log, times.values())) / len(times))
    where = f"geometric mean of {len(times)}"
    yield Bar("eager, to it", 1.15, mean, where, at_least=True)
