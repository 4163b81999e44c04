"""One process of the suite: one entry, one peer, a line of JSON for each turn.

``python -m torch_shark.bench.worker ENTRY PEER SETTLE EXPECTED``: SETTLE is the longest to wait for
steady steps, in seconds; EXPECTED is the file of the right results, which the eager peer writes
where it is missing. The first line says that the steps are steady. Then each line of the input, a
number of seconds, is a turn: for so long steps are measured, and a line is written. At the end of
the input comes the result.
"""

from __future__ import annotations

import json
import statistics
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from torch_shark.bench.limits import count_work
from torch_shark.bench.memory import peak_bytes, resident_bytes, restart_peak
from torch_shark.bench.peers import Peer, peer_named
from torch_shark.bench.registry import Entry, Step, entry_named
from torch_shark.bench.results import compare, on_host
from torch_shark.bench.timing import Trace, measure, timed

VERIFIED_STEPS = 3
SEED = 0


def build(entry: Entry, peer: Peer) -> Step:
    """An entry's program from its start."""
    torch.manual_seed(SEED)
    return peer.build(entry)


def run(
    entry: Entry, peer: Peer, settle: float, expected: Path, turns: Iterable[float]
) -> dict[str, Any]:
    """Measure a program, then compare its results with the CPU's.

    Args:
        entry: the program.
        peer: who runs it.
        settle: the longest time to wait for steady steps, in seconds.
        expected: the file of the right results. Without it, this run's become those.
        turns: time for steady steps in each turn, in seconds; not asked for by a loop.

    Returns:
        A run as report.py reads it; times in seconds.
    """
    before = resident_bytes()
    restart_peak()
    with torch.set_grad_enabled(entry.training):
        build_seconds, step = timed(lambda: build(entry, peer), peer.wait)
        trace = measure(step, entry, peer, settle, turns)
        peak = peak_bytes() - before
        step, outcome = _outcome(entry, peer, step)
        if expected.exists():
            verdict = compare(outcome, torch.load(expected))
        else:
            torch.save(outcome, expected)
            verdict = compare(outcome, outcome) | {
                "work": asdict(count_work(step, entry.steps or 1))
            }
    return {"build_seconds": build_seconds, "peak_bytes": peak} | _figures(trace) | verdict


def _outcome(entry: Entry, peer: Peer, step: Step) -> tuple[Step, list[list[torch.Tensor]]]:
    """What steps give by now: the next, or the first few of the program built anew.

    By now they run as they did when they were timed, compiled ones included.
    """
    steps = 1 if entry.pure else VERIFIED_STEPS
    if not entry.pure:
        step = build(entry, peer)
    return step, [on_host(step()) for _ in range(steps)]


def _figures(trace: Trace) -> dict[str, Any]:
    steady = trace.steady()
    return {
        "steps": len(trace.seconds),
        "first_seconds": trace.seconds[0],
        "total_seconds": sum(trace.seconds),
        "steady": None if steady is None else asdict(steady),
        "turns": [statistics.median(turn) for turn in trace.turns()],
        "last_compile_step": trace.last_compile_step,
        "settled": trace.settled,
        "compilation": asdict(trace.compilation),
    }


def main(arguments: Sequence[str]) -> None:
    """Run what the command line names and print the result, or why there is none."""
    name, peer, settle, expected = arguments
    try:
        result = run(
            entry_named(name), peer_named(peer), float(settle), Path(expected), _turns(sys.stdin)
        )
    except Exception:
        result = {"failed": traceback.format_exc()}
    print(json.dumps(result), flush=True)


def _turns(lines: Iterable[str]) -> Iterator[float]:
    """The turns that are asked for; a line says when one may be."""
    print(json.dumps({"ready": True}), flush=True)
    for line in lines:
        yield float(line)
        print(json.dumps({"ready": True}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
