"""A program's steps, timed one by one until they are steady."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from torch_shark.bench.peers import Compilation, Peer
from torch_shark.bench.registry import Entry, Step

T = TypeVar("T")

WARM_STEPS = 3  # before steady ones are measured
QUIET_STEPS = 10  # likewise, after the last compilation
FEWEST_STEPS, MOST_STEPS = 5, 2000  # of the steady ones
NEAR = 1.1  # a steady step takes at most this much of the final median


@dataclass(frozen=True)
class Steady:
    """The steady state of a program, times in seconds.

    Attributes:
        median, low, high: of the steps after all is settled, with the quartiles.
        steps: how many those are.
        reached_step: the first step, counted from 1, that takes no more than 10% over the median
            or than the upper quartile does, and so do most of it and the next two.
        reached_seconds: from the start of the first step to the end of that one.
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
        ends: when each was done, from the start of the first.
        compilation: what was compiled in all.
        last_compile_step: the last step, counted from 1, in which a compilation ended; 0 if there
            was none.
        steady_from: index of the first step measured as a steady one; None if there are none.
        settled: whether compilation was over by then.
    """

    seconds: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    compilation: Compilation = field(default_factory=Compilation)
    last_compile_step: int = 0
    steady_from: int | None = None
    settled: bool = True

    def add(self, seconds: float, end: float, compilation: Compilation) -> None:
        """Note a step, and what was compiled by its end."""
        self.seconds.append(seconds)
        self.ends.append(end)
        if compilation.compiles != self.compilation.compiles:
            self.last_compile_step = len(self.seconds)
        self.compilation = compilation

    def is_quiet(self) -> bool:
        """Whether nothing is being compiled, nor was in the last few steps."""
        wanted = QUIET_STEPS if self.last_compile_step else WARM_STEPS
        quiet = len(self.seconds) - self.last_compile_step >= wanted
        return quiet and not self.compilation.pending

    def steady(self) -> Steady | None:
        """The steady state, where it was measured."""
        if self.steady_from is None:
            return None
        times = self.seconds[self.steady_from :]
        low, median, high = statistics.quantiles(times, method="inclusive")
        usual = max(NEAR * median, high)
        reached = next(
            i
            for i, seconds in enumerate(self.seconds)
            if max(seconds, statistics.median(self.seconds[i : i + 3])) <= usual
        )
        return Steady(median, low, high, len(times), reached + 1, self.ends[reached])


def timed(call: Callable[[], T], wait: Callable[[], None]) -> tuple[float, T]:
    """The seconds from a call to its results, and what it returned."""
    start = time.perf_counter()
    result = call()
    wait()
    return time.perf_counter() - start, result


def measure(step: Step, entry: Entry, peer: Peer, budget: float, settle: float) -> Trace:
    """Run a program's steps.

    An entry with a number of steps runs those. Else steps run until compilation is over, then for
    as long as the budget allows.

    Args:
        step: the program.
        entry: what it is.
        peer: who runs it.
        budget: time for steady steps, in seconds.
        settle: the longest time to wait for the end of compilation, in seconds.
    """
    trace = Trace()
    start = time.perf_counter()

    def advance() -> None:
        seconds, _ = timed(step, peer.wait)
        trace.add(seconds, time.perf_counter() - start, peer.compilation())

    if entry.steps is not None:
        for _ in range(entry.steps):
            advance()
        return trace

    advance()
    while not trace.is_quiet() and (
        trace.ends[-1] < settle or len(trace.seconds) < 2 * QUIET_STEPS
    ):
        advance()
    trace.settled = trace.is_quiet()
    trace.steady_from = len(trace.seconds)
    first, until = trace.steady_from, trace.ends[-1] + budget
    while len(trace.seconds) < first + FEWEST_STEPS or (
        trace.ends[-1] < until and len(trace.seconds) < first + MOST_STEPS
    ):
        advance()
    return trace
