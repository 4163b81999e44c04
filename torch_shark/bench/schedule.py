"""Rounds of worker processes; the peers of an entry live side by side and take turns."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_shark.bench.peers import peer_named
from torch_shark.bench.process import Process
from torch_shark.bench.registry import Entry

WARM = "shark-warm"  # the second process over the first one's cache


@dataclass(frozen=True)
class Settings:
    """How long and how often to measure.

    Attributes:
        rounds: how often each peer runs each entry, in a process of its own.
        loops: how often at least, where an entry is a loop and takes no turns.
        turns: how many turns each of these processes has.
        budget: time for the steady steps of a turn, in seconds.
        settle: the longest time that a process waits for its compilations to end, in seconds.
        limit: the longest time until a process answers, in seconds.
    """

    rounds: int = 1
    loops: int = 3
    turns: int = 9
    budget: float = 0.7
    settle: float = 150.0
    limit: float = 1200.0


QUICK = Settings(rounds=1, loops=1, turns=2, budget=0.1, settle=30.0, limit=300.0)


def run_rounds(
    entries: Sequence[Entry], peers: Sequence[str], settings: Settings
) -> Iterator[dict[str, Any]]:
    """Run the suite.

    In a round, the processes of an entry start one after another, each when the one before has
    come to its steady steps and waits. Then all have a short turn, and another, in alternating
    order: what else goes on in the machine goes on for all of them.

    A peer that fails an entry is not asked again. Inductor's cache on disk outlives the rounds, so
    its first round alone is a cold one; each of shark's cold processes has a new cache.

    Args:
        entries: the programs.
        peers: the peers; eager comes first, since its first run gives the right results.
        settings: how long and how often.

    Yields:
        `{"rates": ...}` once a round, and each run: what the worker printed, with its entry, peer
        and round.
    """
    with tempfile.TemporaryDirectory(prefix="torch_shark-bench-") as folder:
        failed: set[tuple[str, str]] = set()
        for number in range(max(settings.rounds, settings.loops)):
            yield {"rates": _rates(settings)}
            for entry in entries:
                if number < settings.rounds or entry.steps is not None:
                    for run in _run_peers(entry, peers, settings, Path(folder), number, failed):
                        if "failed" in run:
                            failed.add((entry.name, run["peer"]))
                        yield {"entry": entry.name, "round": number} | run


def _rates(settings: Settings) -> dict[str, Any]:
    with Process("limits", [], {}, settings.limit) as process:
        return process.finish()


def _run_peers(
    entry: Entry,
    peers: Sequence[str],
    settings: Settings,
    folder: Path,
    number: int,
    failed: set[tuple[str, str]],
) -> Iterator[dict[str, Any]]:
    taking = [peer for peer in peers if peer_named(peer).takes(entry)]
    if number % 2 == 1:
        taking = taking[:1] + taking[:0:-1]  # eager first: its first results are the right ones
    labels = [label for peer in taking for label in ((peer, WARM) if peer == "shark" else (peer,))]
    with ExitStack() as stack:
        running: dict[str, Process] = {}
        for label in labels:
            if not {(entry.name, "eager"), (entry.name, label)} & failed:
                _touch_memory()
                process = _start(entry, label, settings, folder, number)
                running[label] = stack.enter_context(process)
                process.wait()
        for turn in range(settings.turns):
            for process in list(running.values())[:: 1 if turn % 2 == 0 else -1]:
                process.ask(f"{settings.budget}\n")
        for label, process in running.items():
            yield {"peer": label} | process.finish()


def _start(entry: Entry, label: str, settings: Settings, folder: Path, number: int) -> Process:
    peer = "shark" if label == WARM else label
    cache = folder / f"{entry.name}-{peer}"
    if peer.startswith("shark"):
        cache = cache.with_name(f"{cache.name}-{number}")
    expected = folder / f"{entry.name}.pt"
    variable = peer_named(peer).cache_variable
    environment = {variable: str(cache)} if variable else {}
    arguments = [entry.name, peer, str(settings.settle), str(expected)]
    return Process("worker", arguments, environment, settings.limit)


def _touch_memory() -> None:
    """Have free memory at hand, the same for every peer.

    A virtual machine gives free memory back to its host, and who touches it next waits for it: the
    peer that ran after the largest would pay.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    subprocess.run([sys.executable, "-c", f"b'x' * {min(free // 2, 2 << 30)}"], check=True)
