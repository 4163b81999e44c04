"""The figures as a chart."""

from __future__ import annotations

from pathlib import Path

from torch_shark.bench.peers import PEERS
from torch_shark.bench.summary import EntrySummary

COLOURS = {
    "inductor": "#9ecae1",
    "inductor-freezing": "#4a90c2",
    "iree": "#fdae6b",
    "eager-fused": "#999999",
    "shark": "#d62728",
    "shark-compile": "#e78ac3",
}


def draw(summary: dict[str, EntrySummary], path: Path) -> None:
    """Draw how much less or more time than CPU eager each peer takes, entry by entry, as PNG.

    Args:
        summary: the entries by name.
        path: the file to write.
    """
    from matplotlib.figure import Figure

    names = list(summary)
    peers = [peer for peer in PEERS if any(peer in summary[name].peers for name in names)]
    peers.remove("eager")
    height = 0.8 / max(1, len(peers))
    figure = Figure(figsize=(8, 1.5 + 0.5 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for number, peer in enumerate(peers):
        known = [i for i, name in enumerate(names) if peer in summary[name].peers]
        ratios = [summary[names[i]].peers[peer].ratio for i in known]
        middles = [ratio.median for ratio in ratios]
        axes.barh(
            [i + (number + 0.5) * height - 0.4 for i in known],
            [middle - 1 for middle in middles],
            height,
            left=1,
            xerr=(
                [ratio.median - ratio.low for ratio in ratios],
                [ratio.high - ratio.median for ratio in ratios],
            ),
            error_kw={"linewidth": 0.6},
            color=COLOURS[peer],
            label=peer,
        )
    axes.axvline(1, color="black", linewidth=0.8)
    limits = [entry.limit / entry.peers["eager"].figure.median for entry in summary.values()]
    axes.plot(limits, range(len(names)), "k|", markersize=12, label="limit")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("time / CPU eager's, less is better")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(path, dpi=150)
