"""A program's steps, timed one by one until they are steady."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from torch_shark.bench.peers import Compilation, Peer
from torch_shark.bench.registry import Entry, Step

T = TypeVar("T")

WARM_STEPS = 3  # before steady ones are measured
QUIET_STEPS = 10  # likewise, after the last compilation
FEWEST_STEPS, MOST_STEPS = 2, 1000  # of a turn
NEAR = 1.1  # a steady step takes at most this much of the final median


@dataclass(frozen=True)
class Steady:
    """The steady state of a program, times in seconds.

    Attributes:
        median, low, high: of the steps after all is settled, with the quartiles.
        steps: how many those are.
        reached_step: the first step, counted from 1, that takes no more than 10% over the median
            or than the upper quartile does, and so do most of it and the next two.
        reached_seconds: the time of all steps up to that one.
    """

    median: float
    low: float
    high: float
    steps: int
    reached_step: int
    reached_seconds: float


@dataclass
class Trace:
    """What was measured of a program's steps.

    Attributes:
        seconds: the time of each step, to its results.
        compilation: what was compiled in all.
        last_compile_step: the last step, counted from 1, in which a compilation ended; 0 if there
            was none.
        begins: index of the first step of each turn, and of what would follow the last one.
        settled: whether compilation was over by then.
    """

    seconds: list[float] = field(default_factory=list)
    compilation: Compilation = field(default_factory=Compilation)
    last_compile_step: int = 0
    begins: list[int] = field(default_factory=list)
    settled: bool = True

    def add(self, seconds: float, compilation: Compilation) -> None:
        """Note a step, and what was compiled by its end."""
        self.seconds.append(seconds)
        if compilation.compiles != self.compilation.compiles:
            self.last_compile_step = len(self.seconds)
        self.compilation = compilation

    def is_quiet(self) -> bool:
        """Whether nothing is being compiled, nor was in the last few steps."""
        wanted = QUIET_STEPS if self.last_compile_step else WARM_STEPS
        quiet = len(self.seconds) - self.last_compile_step >= wanted
        return quiet and not self.compilation.pending

    def turns(self) -> list[list[float]]:
        """The steps' times of each turn."""
        return [self.seconds[first:last] for first, last in itertools.pairwise(self.begins)]

    def steady(self) -> Steady | None:
        """The steady state, where it was measured."""
        times = [seconds for turn in self.turns() for seconds in turn]
        if not times:
            return None
        low, median, high = statistics.quantiles(times, method="inclusive")
        usual = max(NEAR * median, high)
        reached = next(
            i
            for i, seconds in enumerate(self.seconds)
            if max(seconds, statistics.median(self.seconds[i : i + 3])) <= usual
        )
        until = sum(self.seconds[: reached + 1])
        return Steady(median, low, high, len(times), reached + 1, until)


def timed(call: Callable[[], T], wait: Callable[[], None]) -> tuple[float, T]:
    """The seconds from a call to its results, and what it returned."""
    start = time.perf_counter()
    result = call()
    wait()
    return time.perf_counter() - start, result


def measure(step: Step, entry: Entry, peer: Peer, settle: float, turns: Iterable[float]) -> Trace:
    """Run a program's steps.

    An entry with a number of steps runs those. Else steps run until compilation is over, then for
    as long as each turn allows: after one that does not count, since others had the caches.

    Args:
        step: the program.
        entry: what it is.
        peer: who runs it.
        settle: the longest time to wait for the end of compilation, in seconds.
        turns: the time of each turn, in seconds.
    """
    trace = Trace()

    def advance() -> None:
        seconds, _ = timed(step, peer.wait)
        trace.add(seconds, peer.compilation())

    if entry.steps is not None:
        for _ in range(entry.steps):
            advance()
        return trace

    advance()
    while not trace.is_quiet() and (
        sum(trace.seconds) < settle or len(trace.seconds) < 2 * QUIET_STEPS
    ):
        advance()
    trace.settled = trace.is_quiet()
    trace.begins.append(len(trace.seconds))
    for budget in turns:
        timed(step, peer.wait)
        first = len(trace.seconds)
        while len(trace.seconds) < first + FEWEST_STEPS or (
            sum(trace.seconds[first:]) < budget and len(trace.seconds) < first + MOST_STEPS
        ):
            advance()
        trace.begins.append(len(trace.seconds))
    return trace
