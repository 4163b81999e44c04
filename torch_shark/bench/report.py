"""The figures as tables in markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_shark.bench.bars import Bar
from torch_shark.bench.limits import Rates
from torch_shark.bench.peers import PEERS
from torch_shark.bench.schedule import WARM
from torch_shark.bench.summary import EntrySummary, PeerSummary, Spread

START = "<!-- bench: written by `python -m torch_shark.bench`, not by hand -->"
END = "<!-- end of bench -->"

NO_COMPILER = ("eager", "shark", WARM)  # whoever else fails, it is the compiler that does


def write_into(path: Path, text: str) -> None:
    """Put the tables between the markers of a file, or at its end if it has none."""
    old = path.read_text() if path.exists() else "# Performance\n"
    block = f"{START}\n{text}\n{END}"
    marked = re.compile(f"{re.escape(START)}.*?{re.escape(END)}", re.DOTALL)
    new, count = marked.subn(lambda _: block, old)
    path.write_text(new if count else f"{old}\n{block}\n")


def markdown(
    machine: dict[str, Any],
    settings: dict[str, Any],
    rates: Sequence[Rates],
    summary: dict[str, EntrySummary],
    judged: Sequence[Bar],
) -> str:
    """All that was measured, as text.

    Args:
        machine: what `machine.describe` gave.
        settings: rounds and times, by name.
        rates: the machine's rates, of each round.
        summary: the entries by name.
        judged: the bars.
    """
    parts = [
        _about(machine, settings, rates),
        _steady_table(summary),
        _start_table(summary),
        _memory_table(summary),
        _bar_table(judged),
        _failures(summary),
    ]
    return "\n\n".join(part for part in parts if part)


def milliseconds(seconds: float) -> str:
    """A time in ms with three digits."""
    return f"{seconds * 1e3:#.3g}".rstrip(".") if seconds < 1 else f"{seconds * 1e3:.0f}"


def _about(machine: dict[str, Any], settings: dict[str, Any], rates: Sequence[Rates]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    flops = sorted(rate.flops / 1e9 for rate in rates)[len(rates) // 2]
    last = rates[-1].bytes
    copies = ", ".join(f"{last[mib] / 1e9:.0f} ({mib} MiB)" for mib in sorted(last))
    return (
        f"{machine['date']}. {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB; {machine['system']}; "
        f"load at the start {machine['load']:.1f}.\n"
        f"{versions}.\n\n"
        f"Matrix product {flops:.0f} GFLOP/s, copy {copies} GB/s. "
        f"{settings['rounds']} rounds, in each a process for every entry and peer, "
        f"{settings['budget']:g} s of steady steps each. Ratios are medians of the rounds' ratios, "
        f"with their range."
    )


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [title, "", _row(header), "|---|" + "---:|" * (len(header) - 1), *map(_row, rows)]
    return "\n".join(lines) if rows else ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _steady_table(summary: dict[str, EntrySummary]) -> str:
    header = ["", *PEERS, "shark / eager", "shark / best", "limit"]
    rows = [
        [
            entry.about,
            *(_time(entry, peer) for peer in PEERS),
            _ratio(entry.peers["shark"].ratio) if "shark" in entry.peers else "",
            f"{_ratio(entry.to_best)} {entry.best}" if entry.to_best else "",
            milliseconds(entry.limit),
        ]
        for entry in summary.values()
    ]
    return _table(
        "Steady step in ms, with the quartiles of steps; for a loop all its steps, with the range "
        "of rounds. The limit is the time of its matrix products and bytes at the rates above.",
        header,
        rows,
    )


def _time(entry: EntrySummary, name: str) -> str:
    if name in entry.failed:
        return "fails" if name in NO_COMPILER else "does not compile"
    if name not in entry.peers:
        return ""
    peer = entry.peers[name]
    low, high = peer.quartiles or (peer.figure.low, peer.figure.high)
    wrong = "" if peer.right else " **WRONG**"
    text = f"{milliseconds(peer.figure.median)} ({milliseconds(low)}-{milliseconds(high)})"
    return text + wrong


def _ratio(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"


def _start_table(summary: dict[str, EntrySummary]) -> str:
    rows = [
        [
            entry.about,
            name,
            milliseconds(peer.first.median),
            _ratio(peer.first_ratio),
            "" if peer.reached_step is None else f"{peer.reached_step:.0f}",
            "" if peer.reached_seconds is None else f"{peer.reached_seconds:.2f}",
            f"{peer.compiles}",
            f"{peer.disk_hits}",
            f"{peer.compile_seconds:.1f}" + ("" if peer.settled else ", not done"),
        ]
        for entry in summary.values()
        for name, peer in entry.peers.items()
    ]
    header = ["", "", "first result, ms", "/ eager", "steady by step", "and second"]
    return _table(
        f"Start, from the first step on. `shark` has an empty cache, `{WARM}` is the next process; "
        "compilations are of the first round.",
        [*header, "compiles", "from disk", "compiling, s"],
        rows,
    )


def _memory_table(summary: dict[str, EntrySummary]) -> str:
    names = (*PEERS, WARM)

    def cell(peer: PeerSummary | None) -> str:
        return f"{peer.peak_bytes.median / 2**20:.0f}, {peer.relative_error:.0e}" if peer else ""

    rows = [
        [
            entry.about,
            *(cell(entry.peers.get(name)) for name in names),
            _ratio(entry.peers["shark"].peak_ratio) if "shark" in entry.peers else "",
        ]
        for entry in summary.values()
    ]
    return _table(
        "Growth of the process to its peak, in MiB, and the largest difference from CPU eager's "
        "results, in parts of their largest magnitude.",
        ["", *names, "memory, shark / eager"],
        rows,
    )


def _bar_table(judged: Sequence[Bar]) -> str:
    rows = [
        [
            bar.text,
            f"{bar.value:.2f}",
            f"{'at least' if bar.at_least else 'at most'} {bar.limit:g}",
            "yes" if bar.met else "**no**",
            bar.where,
        ]
        for bar in judged
    ]
    return _table(
        "Bars, each with the entry that is nearest to missing it.",
        ["shark", "figure", "bar", "met", "entry"],
        rows,
    )


def _failures(summary: dict[str, EntrySummary]) -> str:
    lines = [
        f"- {peer}, {entry.about}: {_reason(reason)}"
        for entry in summary.values()
        for peer, reason in entry.failed.items()
    ]
    return (
        "\n".join(["What failed, and how that ended; the whole reason is in the JSON.", "", *lines])
        if lines
        else ""
    )


def _reason(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200].replace("|", "\\|") if lines else "no reason given"
