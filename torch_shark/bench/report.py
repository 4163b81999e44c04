"""The figures as tables in markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch_shark.bench.bars import Bar
from torch_shark.bench.limits import Rates
from torch_shark.bench.peers import PEERS
from torch_shark.bench.schedule import WARM
from torch_shark.bench.summary import EntrySummary, PeerSummary, Spread

START = "<!-- bench: written by `python -m torch_shark.bench`, not by hand -->"
END = "<!-- end of bench -->"

NO_COMPILER = (
    "eager",
    "eager-fused",
    "shark",
    WARM,
)  # whoever else fails, it is the compiler that does


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
        _failures(summary),
        _bar_table(judged),
        _start_table(summary),
        _reached_table(summary),
        _compile_table(summary),
        _memory_table(summary),
        _error_table(summary),
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
        f"A process for every entry and peer; those of an entry run side by side and take turns "
        f"of {settings['budget']:g} s, {settings['rounds'] * settings['turns']} each. Ratios are "
        f"medians of the turns' ratios, with their range; of loops, which run from their start, of "
        f"{max(settings['rounds'], settings['loops'])} runs."
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
        "of runs. The limit is the time of its matrix products and bytes at the rates above.",
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


def _by_peer(
    title: str,
    summary: dict[str, EntrySummary],
    cell: Callable[[PeerSummary], str],
    ratio: Callable[[PeerSummary], Spread] | None = None,
) -> str:
    """A table with a column for each peer and, last, shark's ratio to eager."""
    names = [name for name in (*PEERS, WARM) if any(name in e.peers for e in summary.values())]
    rows = []
    for entry in summary.values():
        row = [entry.about, *(cell(entry.peers[n]) if n in entry.peers else "" for n in names)]
        if ratio is not None:
            row.append(_ratio(ratio(entry.peers["shark"])) if "shark" in entry.peers else "")
        rows.append(row)
    return _table(title, ["", *names, *(["shark / eager"] if ratio else [])], rows)


def _start_table(summary: dict[str, EntrySummary]) -> str:
    return _by_peer(
        f"The first result, in ms. `shark` has an empty cache, `{WARM}` is the next process. "
        "`shark` is eager code on the device, `shark-compile` is torch.compile on the CPU.",
        summary,
        lambda peer: milliseconds(peer.first.median),
        lambda peer: peer.first_ratio,
    )


def _reached_table(summary: dict[str, EntrySummary]) -> str:
    def cell(peer: PeerSummary) -> str:
        if peer.reached_step is None or peer.reached_seconds is None:
            return ""
        return f"{peer.reached_step:.0f} ({peer.reached_seconds:.2f} s)"

    return _by_peer(
        "The step by which the time is steady, and when it ended, from the start of the first.",
        {name: entry for name, entry in summary.items() if entry.peers["eager"].quartiles},
        cell,
    )


def _compile_table(summary: dict[str, EntrySummary]) -> str:
    def cell(peer: PeerSummary) -> str:
        late = "" if peer.settled else ", not done"
        disk = f" + {peer.disk_hits}" if peer.disk_hits else ""
        return f"{peer.compiles}{disk} ({peer.compile_seconds:.1f} s{late})"

    return _by_peer(
        "Compilations in the first round, + those found on disk, and their time.", summary, cell
    )


def _memory_table(summary: dict[str, EntrySummary]) -> str:
    return _by_peer(
        "Growth of the process to its peak, in MiB.",
        summary,
        lambda peer: f"{peer.peak_bytes.median / 2**20:.0f}",
        lambda peer: peer.peak_ratio,
    )


def _error_table(summary: dict[str, EntrySummary]) -> str:
    return _by_peer(
        "The largest difference from CPU eager's results, in parts of their largest magnitude.",
        summary,
        lambda peer: f"{peer.relative_error:.0e}" if peer.relative_error else "0",
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
        "Bars, each with the entry that is nearest to missing it, or that misses it most.",
        ["shark", "figure", "bar", "met", "entry"],
        rows,
    )


def _failures(summary: dict[str, EntrySummary]) -> str:
    lines = [
        f"- {peer}, {entry.about}: {_reason(reason)}"
        for entry in summary.values()
        for peer, reason in entry.failed.items()
    ]
    if not lines:
        return ""
    return "\n".join(["What failed, and how that ended; the JSON has the whole of it.", "", *lines])


def _reason(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200].replace("|", "\\|") if lines else "no reason given"
