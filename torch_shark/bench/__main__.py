"""Run the suite: ``python -m torch_shark.bench [--entries NAME ...] [--peers NAME ...]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch_shark.bench.bars import bars
from torch_shark.bench.chart import draw
from torch_shark.bench.limits import Rates
from torch_shark.bench.machine import describe
from torch_shark.bench.peers import PEERS
from torch_shark.bench.registry import Entry, entries, entry_named
from torch_shark.bench.report import markdown, write_into
from torch_shark.bench.schedule import QUICK, Settings, run_rounds
from torch_shark.bench.summary import EntrySummary, figure, summarize


def parse() -> argparse.Namespace:
    """Read the command line."""
    default = Settings()
    parser = argparse.ArgumentParser(prog="python -m torch_shark.bench")
    parser.add_argument("--entries", nargs="+", type=entry_named, metavar="NAME", help="or all")
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--rounds", type=int, help=f"{default.rounds}, if not quick")
    parser.add_argument("--turns", type=int, help=f"turns of each process, {default.turns}")
    parser.add_argument("--budget", type=float, help=f"seconds of a turn, {default.budget}")
    parser.add_argument("--settle", type=float, help=f"longest wait for them, {default.settle}")
    parser.add_argument("--quick", action="store_true", help="a glance: one short round")
    parser.add_argument("--json", type=Path, help="write all that was measured to this file")
    parser.add_argument("--from-json", type=Path, help="measure nothing, read such a file")
    parser.add_argument("--chart", type=Path, help="draw a chart to this PNG file")
    parser.add_argument("--docs", type=Path, help="write the tables between this file's markers")
    return parser.parse_args()


def measure(options: argparse.Namespace, chosen: Sequence[Entry]) -> dict[str, Any]:
    """Run the suite, saving after each process what is known by then."""
    settings = QUICK if options.quick else Settings()
    given = {name: getattr(options, name) for name in ("rounds", "turns", "budget", "settle")}
    settings = replace(settings, **{name: value for name, value in given.items() if value})
    peers = [peer for peer in PEERS if peer in {"eager", *options.peers}]
    data: dict[str, Any] = {
        "machine": describe(),
        "settings": asdict(settings),
        "rates": [],
        "runs": [],
    }
    for item in run_rounds(chosen, peers, settings):
        if "rates" in item:
            data["rates"].append(item["rates"])
        else:
            data["runs"].append(item)
            print(_line(item), file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(data, indent=1))
    return data


def _line(run: dict[str, Any]) -> str:
    outcome = "failed" if "failed" in run else f"{figure(run) * 1e3:.3f} ms"
    wrong = "" if run.get("right", True) else "  WRONG"
    return f"round {run['round'] + 1}  {run['entry']:16} {run['peer']:18} {outcome}{wrong}"


def main() -> int:
    """Measure, write what was asked for, and say whether all results were right."""
    options = parse()
    chosen: list[Entry] = options.entries or list(entries().values())
    if options.from_json:
        data = json.loads(options.from_json.read_text())
    else:
        data = measure(options, chosen)
    rates = [read_rates(rate) for rate in data["rates"]]
    summary = summarize(data["runs"], chosen, rates)
    training = {entry.name for entry in chosen if entry.training}
    judged = bars(summary, training)
    text = markdown(data["machine"], data["settings"], rates, summary, judged)
    print(text)
    if options.json:
        data |= {"summary": {name: asdict(entry) for name, entry in summary.items()}}
        data |= {"bars": [asdict(bar) | {"met": bar.met} for bar in judged]}
        options.json.write_text(json.dumps(data, indent=1))
    if options.chart:
        draw(summary, options.chart)
    if options.docs:
        write_into(options.docs, text)
    return 1 if is_wrong(summary.values(), data["runs"]) else 0


def read_rates(rate: dict[str, Any]) -> Rates:
    """A machine's rates, of JSON."""
    return Rates(rate["flops"], {int(mib): value for mib, value in rate["bytes"].items()})


def is_wrong(summary: Iterable[EntrySummary], runs: Iterable[dict[str, Any]]) -> bool:
    """Whether a peer gave a wrong result, or eager or shark gave none."""
    missing = any(
        "failed" in run for run in runs if run["peer"] in ("eager", "shark", "shark-warm")
    )
    return missing or not all(peer.right for entry in summary for peer in entry.peers.values())


if __name__ == "__main__":
    sys.exit(main())
