"""Medians and ratios of many runs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch_shark.bench.limits import Rates, Work
from torch_shark.bench.registry import Entry

Run: TypeAlias = dict[str, Any]
NOT_PEERS = ("eager-fused", "shark", "shark-warm", "shark-compile")  # that shark is to beat


@dataclass(frozen=True)
class Spread:
    """A median, and the lowest and highest of the values."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class PeerSummary:
    """One peer's runs of one entry; times in seconds.

    Attributes:
        figure: the steady time of a step, or of all steps where the entry is a loop.
        quartiles: of the steps; None for a loop.
        first: the first step's time.
        build: the time to make the program.
        reached_step, reached_seconds: when the steady state was reached; None for a loop.
        after_compile: how many steps that was after the last compilation; None for a loop.
        settled: whether compilation was over in time, in all rounds.
        compiles, disk_hits, compile_seconds: of the first round, the one that is cold for all.
        peak_bytes: growth of the process.
        ratio: to CPU eager's figure, turn by turn.
        first_ratio, peak_ratio: to CPU eager's, of the same round.
        relative_error: the largest.
        right: whether all results were those of CPU eager.
    """

    figure: Spread
    quartiles: tuple[float, float] | None
    first: Spread
    build: Spread
    reached_step: float | None
    reached_seconds: float | None
    after_compile: float | None
    settled: bool
    compiles: int
    disk_hits: int
    compile_seconds: float
    peak_bytes: Spread
    ratio: Spread
    first_ratio: Spread
    peak_ratio: Spread
    relative_error: float
    right: bool


@dataclass(frozen=True)
class EntrySummary:
    """One entry.

    Attributes:
        about: the program in a few words.
        limit: the least time for what `figure` is the time of, in seconds.
        peers: by name, those that ran.
        failed: why others did not.
        best: the fastest peer but for shark.
        to_best: shark's figure to that peer's, turn by turn; None if shark did not run.
        to_fused: shark's to PyTorch's own fused kernels', likewise.
        compiled_to_inductor: that of `torch.compile` with our backend to that with Inductor's.
    """

    about: str
    limit: float
    peers: dict[str, PeerSummary]
    failed: dict[str, str]
    best: str
    to_best: Spread | None
    to_fused: Spread | None
    compiled_to_inductor: Spread | None


def figure(run: Run) -> float:
    """The time that counts, in seconds: of a steady step, or of a loop from first to last."""
    steady = run["steady"]
    return float(run["total_seconds"] if steady is None else steady["median"])


def spread(values: Iterable[float]) -> Spread:
    """The median and the range of some values."""
    known = list(values)
    return Spread(statistics.median(known), min(known), max(known))


def times(run: Run) -> list[float]:
    """The times that are held against another peer's: of each turn, or of a loop."""
    return [figure(run)] if run["steady"] is None else run["turns"]


def ratios(
    runs: Sequence[Run], others: Sequence[Run], values: Callable[[Run], list[float]] = times
) -> Spread:
    """One peer's values to another's, of the same round and turn."""
    other = {run["round"]: run for run in others}
    return spread(
        mine / its
        for run in runs
        if run["round"] in other
        for mine, its in zip(values(run), values(other[run["round"]]), strict=True)
    )


def summarize(
    runs: Sequence[Run], entries: Sequence[Entry], rates: Sequence[Rates]
) -> dict[str, EntrySummary]:
    """Summaries by entry, of those that CPU eager ran.

    Args:
        runs: what `schedule.run_rounds` gave.
        entries: those to summarize.
        rates: what was measured in each round.
    """
    grouped: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        grouped[run["entry"]][run["peer"]].append(run)
    return {
        entry.name: _summarize_entry(entry, grouped[entry.name], rates)
        for entry in entries
        if any("failed" not in run for run in grouped[entry.name]["eager"])
    }


def _summarize_entry(
    entry: Entry, grouped: dict[str, list[Run]], rates: Sequence[Rates]
) -> EntrySummary:
    failed = {
        peer: run["failed"] for peer, runs in grouped.items() for run in runs if "failed" in run
    }
    done = {peer: [run for run in runs if "failed" not in run] for peer, runs in grouped.items()}
    ran = {peer: runs for peer, runs in done.items() if runs}
    peers = {peer: _summarize_peer(runs, ran["eager"]) for peer, runs in ran.items()}
    others = [peer for peer in peers if peer not in NOT_PEERS and peers[peer].right]
    best = min(others, key=lambda peer: peers[peer].figure.median)
    work = next(Work(**run["work"]) for run in ran["eager"] if "work" in run)
    return EntrySummary(
        about=entry.about,
        limit=statistics.median(
            rate.seconds(work, entry.steps or 1, entry.passes) for rate in rates
        ),
        peers=peers,
        failed=failed,
        best=best,
        to_best=_between(ran, "shark", best),
        to_fused=_between(ran, "shark", "eager-fused"),
        compiled_to_inductor=_between(ran, "shark-compile", "inductor"),
    )


def _between(ran: dict[str, list[Run]], one: str, other: str) -> Spread | None:
    return ratios(ran[one], ran[other]) if {one, other} <= ran.keys() else None


def _summarize_peer(runs: Sequence[Run], eager: Sequence[Run]) -> PeerSummary:
    cold = min(runs, key=lambda run: run["round"])["compilation"]
    steady = [run["steady"] for run in runs if run["steady"] is not None]

    def middle(name: str) -> float:
        return float(statistics.median(one[name] for one in steady))

    return PeerSummary(
        figure=spread(figure(run) for run in runs),
        quartiles=(middle("low"), middle("high")) if steady else None,
        first=spread(run["first_seconds"] for run in runs),
        build=spread(run["build_seconds"] for run in runs),
        reached_step=middle("reached_step") if steady else None,
        reached_seconds=middle("reached_seconds") if steady else None,
        after_compile=statistics.median(
            max(0, run["steady"]["reached_step"] - run["last_compile_step"]) for run in runs
        )
        if steady
        else None,
        settled=all(run["settled"] for run in runs),
        compiles=cold["compiles"],
        disk_hits=cold["disk_hits"],
        compile_seconds=cold["seconds"],
        peak_bytes=spread(run["peak_bytes"] for run in runs),
        ratio=ratios(runs, eager),
        first_ratio=ratios(runs, eager, lambda run: [run["first_seconds"]]),
        peak_ratio=ratios(runs, eager, lambda run: [run["peak_bytes"]]),
        relative_error=max(run["relative_error"] for run in runs),
        right=all(run["right"] for run in runs),
    )
