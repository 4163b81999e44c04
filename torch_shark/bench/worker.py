"""One process of the suite: one entry, one peer, one line of JSON.

``python -m torch_shark.bench.worker ENTRY PEER BUDGET SETTLE EXPECTED``: BUDGET is the time for
steady steps and SETTLE the longest to wait for them, in seconds; EXPECTED is the file of the right
results, which the eager peer writes where it is missing.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
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
    return entry.build(peer.device, peer.compiled)


def run(entry: Entry, peer: Peer, budget: float, settle: float, expected: Path) -> dict[str, Any]:
    """Measure a program, then compare its results with the CPU's.

    Args:
        entry: the program.
        peer: who runs it.
        budget: time for steady steps, in seconds.
        settle: the longest time to wait for them, in seconds.
        expected: the file of the right results. Without it, this run's become those.

    Returns:
        A run as report.py reads it; times in seconds.
    """
    before = resident_bytes()
    restart_peak()
    with torch.set_grad_enabled(entry.training):
        build_seconds, step = timed(lambda: build(entry, peer), peer.wait)
        trace = measure(step, entry, peer, budget, settle)
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
        "last_compile_step": trace.last_compile_step,
        "settled": trace.settled,
        "compilation": asdict(trace.compilation),
    }


def main(arguments: Sequence[str]) -> None:
    """Run what the command line names and print the result, or why there is none."""
    name, peer, budget, settle, expected = arguments
    try:
        result = run(
            entry_named(name), peer_named(peer), float(budget), float(settle), Path(expected)
        )
    except Exception:
        result = {"failed": traceback.format_exc()}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
