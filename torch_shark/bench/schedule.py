"""Rounds of worker processes; each round runs every peer of an entry once, side by side in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_shark.bench.peers import peer_named
from torch_shark.bench.registry import Entry

WARM = "shark-warm"  # the second process over the first one's cache


@dataclass(frozen=True)
class Settings:
    """How long and how often to measure.

    Attributes:
        rounds: how often each peer runs each entry, in a process of its own.
        budget: time for the steady steps of a process, in seconds.
        settle: the longest time that a process waits for its compilations to end, in seconds.
        limit: the longest time for a process, in seconds.
    """

    rounds: int = 3
    budget: float = 8.0
    settle: float = 300.0
    limit: float = 1200.0


QUICK = Settings(rounds=1, budget=0.3, settle=30.0, limit=300.0)


def run_rounds(
    entries: Sequence[Entry], peers: Sequence[str], settings: Settings
) -> Iterator[dict[str, Any]]:
    """Run the suite; every other round goes through the peers backwards.

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
        for number in range(settings.rounds):
            yield {"rates": _process("limits", [], {}, settings.limit)}
            for entry in entries:
                for run in _run_peers(entry, peers, settings, Path(folder), number, failed):
                    if "failed" in run:
                        failed.add((entry.name, run["peer"]))
                    yield {"entry": entry.name, "round": number} | run


def _run_peers(
    entry: Entry,
    peers: Sequence[str],
    settings: Settings,
    folder: Path,
    number: int,
    failed: set[tuple[str, str]],
) -> Iterator[dict[str, Any]]:
    name, expected = entry.name, folder / f"{entry.name}.pt"
    for peer in peers if number % 2 == 0 else reversed(peers):
        if not peer_named(peer).takes(entry):
            continue
        cache = folder / f"{name}-{peer}"
        if peer == "shark":
            cache = cache.with_name(f"{cache.name}-{number}")
        for label in (peer, WARM) if peer == "shark" else (peer,):
            if not {(name, "eager"), (name, label)} & failed:
                arguments = [name, peer, str(settings.budget), str(settings.settle), str(expected)]
                variable = peer_named(peer).cache_variable
                environment = {variable: str(cache)} if variable else {}
                _touch_memory()
                yield {"peer": label} | _process("worker", arguments, environment, settings.limit)


def _touch_memory() -> None:
    """Have free memory at hand, the same for every peer.

    A virtual machine gives free memory back to its host, and who touches it next waits for it: the
    peer that ran after the largest would pay.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    subprocess.run([sys.executable, "-c", f"b'x' * {min(free // 2, 2 << 30)}"], check=True)


def _process(
    module: str, arguments: list[str], environment: dict[str, str], limit: float
) -> dict[str, Any]:
    """Run a module of this package; its last line is the result, or else `failed` says why."""
    command = [sys.executable, "-m", f"torch_shark.bench.{module}", *arguments]
    # OpenMP threads that spin would take the cores from other threads, whichever the peer.
    variables = {"OMP_WAIT_POLICY": "passive"} | dict(os.environ) | environment
    try:
        done = subprocess.run(
            command, env=variables, timeout=limit, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {limit:.0f} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"failed": f"exit status {done.returncode}\n{done.stderr}"}
    result: dict[str, Any] = json.loads(lines[-1])
    return result
