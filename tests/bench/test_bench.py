"""The bench suite: one small entry from end to end, and the arithmetic of its ratios."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest
import torch

from torch_shark.bench.__main__ import is_wrong
from torch_shark.bench.bars import bars
from torch_shark.bench.chart import draw
from torch_shark.bench.limits import Rates, Work, count_work
from torch_shark.bench.peers import PEERS, Compilation, Peer
from torch_shark.bench.process import Process
from torch_shark.bench.registry import entries, entry_named
from torch_shark.bench.report import END, START, markdown, write_into
from torch_shark.bench.results import compare
from torch_shark.bench.summary import figure, summarize
from torch_shark.bench.timing import FEWEST_STEPS, QUIET_STEPS, Trace, measure
from torch_shark.bench.worker import run

RATES = Rates(1e12, {1: 1e11, 64: 1e10})
NAME = "layer-norm"
ENTRY = entry_named(NAME)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command gives: its JSON, its tables, and the output of a second look at the JSON."""
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "-m", "torch_shark.bench", "--entries", NAME, "--peers", "shark"]
    files = ["--json", str(folder / "bench.json"), "--docs", str(folder / "performance.md")]
    done = subprocess.run(
        [*command, "--quick", *files],
        env=os.environ | {"TORCH_SHARK_POLICY": "iree"},  # by which it is known what compiles
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    data = json.loads((folder / "bench.json").read_text())
    return data | {"printed": done.stdout, "docs": (folder / "performance.md").read_text()}


def test_each_peer_ran_once_and_gave_the_right_result(bench):
    runs = bench["runs"]
    assert [one["peer"] for one in runs] == ["eager", "shark", "shark-warm"]
    for one in runs:
        assert (one["entry"], one["round"], one["right"]) == (NAME, 0, True)
        assert one["steps"] > one["steady"]["steps"] >= 4
        assert len(one["turns"]) == 2
        assert 0 < one["steady"]["low"] <= one["steady"]["median"] <= one["steady"]["high"]
        assert 1 <= one["steady"]["reached_step"] <= one["steps"]
        assert one["first_seconds"] <= one["steady"]["reached_seconds"]
        assert one["peak_bytes"] > 0


def test_a_warm_process_finds_what_the_cold_one_compiled(bench):
    eager, cold, warm = (one["compilation"] for one in bench["runs"])
    assert eager["compiles"] == warm["compiles"] == 0
    assert warm["disk_hits"] == cold["compiles"] > 0


def test_ratios_of_the_command_are_those_of_its_turns(bench):
    eager, cold, _ = (one["turns"] for one in bench["runs"])
    expected = statistics.median(mine / its for mine, its in zip(cold, eager, strict=True))
    summary = bench["summary"][NAME]
    assert summary["peers"]["shark"]["ratio"]["median"] == expected
    assert summary["best"] == "eager"
    assert summary["to_best"]["median"] == expected
    assert summary["to_fused"] is None
    work, rates = bench["runs"][0]["work"], bench["rates"][0]
    assert work == {"flops": 0, "read": 4 * (512 + 2) * 768, "written": 4 * 512 * 768}
    copy = min(rates["bytes"], key=int)  # 3 MB fit two times a MiB twice
    assert int(copy) == 1
    assert summary["limit"] > (work["read"] + work["written"]) / max(rates["bytes"].values())


def test_tables_are_written_between_their_markers(bench, tmp_path):
    assert bench["docs"].count(START) == bench["docs"].count(END) == 1
    assert bench["printed"].strip() in bench["docs"]
    path = tmp_path / "performance.md"
    path.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    write_into(path, r"new \1")
    assert path.read_text() == f"before\n{START}\nnew \\1\n{END}\nafter\n"


def a_run(peer: str, number: int, seconds: float, **others: Any) -> dict[str, Any]:
    steady = {"median": seconds, "low": seconds, "high": seconds, "steps": 9}
    return {
        "entry": NAME,
        "peer": peer,
        "round": number,
        "steady": steady | {"reached_step": 3, "reached_seconds": 1.0},
        "turns": [seconds],
        "first_seconds": 10 * seconds,
        "build_seconds": 0.1,
        "total_seconds": 20 * seconds,
        "last_compile_step": 0,
        "settled": True,
        "compilation": asdict(Compilation()),
        "peak_bytes": 1000,
        "relative_error": 0.0,
        "right": True,
        "work": {"flops": 4, "read": 100, "written": 60},
    } | others


def test_a_ratio_is_the_median_of_the_turns_ratios():
    eager, shark, other = (1.0, 10.0, 4.0), (2.0, 10.0, 2.0), (0.5, 40.0, 1.0)
    times = {"eager": eager, "shark": shark, "iree": other}
    runs = [a_run(peer, 0, statistics.median(ts), turns=ts) for peer, ts in times.items()]
    entry = summarize(runs, [ENTRY], [RATES])[NAME]
    assert entry.peers["shark"].figure.median == 2.0
    assert asdict(entry.peers["shark"].ratio) == {"median": 1.0, "low": 0.5, "high": 2.0}
    assert entry.peers["shark"].first_ratio.median == 2.0 / 4.0
    assert entry.best == "iree"
    assert entry.to_best is not None
    assert entry.to_best.median == statistics.median((4.0, 0.25, 2.0))


def test_a_ratio_of_loops_is_the_median_of_the_rounds_ratios():
    times = {"eager": (1.0, 10.0, 4.0), "shark": (2.0, 10.0, 2.0)}
    loop = {"steady": None, "turns": []}
    runs = [a_run(peer, i, t, **loop) for peer, ts in times.items() for i, t in enumerate(ts)]
    ratio = summarize(runs, [ENTRY], [RATES])[NAME].peers["shark"].ratio
    assert asdict(ratio) == {"median": 1.0, "low": 0.5, "high": 2.0}


def test_a_loop_counts_from_its_first_step_to_its_last():
    assert figure(a_run("shark", 0, 2.0)) == 2.0
    assert figure(a_run("shark", 0, 2.0, steady=None)) == 40.0


def test_a_wrong_result_is_flagged_and_is_no_peer_to_beat():
    runs = [a_run("eager", 0, 1.0), a_run("shark", 0, 1.0), a_run("iree", 0, 0.1, right=False)]
    summary = summarize(runs, [ENTRY], [RATES])
    assert summary[NAME].best == "eager"
    machine = {"date": "", "processor": "", "cores": 1, "memory_bytes": 0, "system": "", "load": 0}
    settings = {"rounds": 1, "loops": 1, "turns": 1, "budget": 1}
    assert is_wrong(summary.values(), runs)
    text = markdown(machine | {"versions": {}}, settings, [RATES], summary, bars(summary, set()))
    assert text.count("WRONG") == 1


def test_a_peer_may_fail_but_not_the_device():
    runs = [a_run("eager", 0, 1.0), a_run("shark", 0, 1.0)]
    fails = {"entry": NAME, "round": 0, "failed": "no such operator"}
    other = [*runs, fails | {"peer": "iree"}]
    summary = summarize(other, [ENTRY], [RATES])
    assert summary[NAME].failed == {"iree": "no such operator"}
    assert not is_wrong(summary.values(), other)
    assert is_wrong(summary.values(), [*runs, fails | {"peer": "shark-warm"}])


def test_the_chart_is_a_png(tmp_path):
    pytest.importorskip("matplotlib", reason="the chart wants the extra `bench`")
    runs = [a_run("eager", 0, 1.0), a_run("shark", 0, 0.5), a_run("iree", 0, 3.0)]
    draw(summarize(runs, [ENTRY], [RATES]), tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_worker_sees_that_its_results_are_not_the_expected_ones(tmp_path):
    expected = tmp_path / "expected.pt"
    first = run(ENTRY, Peer(), 1.0, expected, [0.01])
    assert first["right"] is True
    assert "work" in first
    results = torch.load(expected)
    results[0][0][3, 5] += 0.1
    torch.save(results, expected)
    second = run(ENTRY, Peer(), 1.0, expected, [0.01])
    assert second["right"] is False
    assert second["absolute_error"] == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize(
    ("actual", "right"),
    [
        (torch.tensor([1.0, 100.0]), True),
        (torch.tensor([1.05, 100.0]), True),  # small beside the tensor's largest
        (torch.tensor([1.0, 101.0]), False),
        (torch.tensor([float("nan"), 100.0]), False),
        (torch.tensor([1.0]), False),
        (torch.tensor([1, 100]), False),
    ],
)
def test_what_counts_as_the_same_result(actual, right):
    assert compare([[actual]], [[torch.tensor([1.0, 100.0])]])["right"] is right


def test_integers_have_no_tolerance():
    assert compare([[torch.tensor([100001])]], [[torch.tensor([100000])]])["right"] is False


def test_a_limit_takes_the_rate_of_a_copy_of_that_size():
    small, large = Work(10**9, 10**6, 10**6), Work(0, 10**9, 0)
    assert RATES.seconds(small, steps=1, passes=1) == pytest.approx(1e-3 + 2e6 / 1e11)
    assert RATES.seconds(large, steps=1, passes=3) == pytest.approx(3e9 / 1e10)
    assert RATES.seconds(large, steps=1000, passes=1) == pytest.approx(1e9 / 1e11)


def test_work_counts_each_input_parameter_and_result_once():
    weight, table = torch.randn(8, 8), torch.randn(1000, 8)
    state, rows = torch.zeros(4, 8), torch.tensor([1, 2, 3, 4])

    def step():
        x = torch.nn.functional.embedding(rows, table)
        x = (x @ weight).relu() @ weight
        state.copy_(x[:, :8])
        return [state, x]

    work = count_work(step)
    assert count_work(step, 2) == Work(2 * work.flops, 2 * work.read, 2 * work.written)
    assert work.flops == 2 * (2 * 4 * 8 * 8)
    assert work.read == 4 * 8 + 4 * 8 * 4 + 8 * 8 * 4
    assert work.written == 2 * (4 * 8 * 4)


def test_an_optimizer_reads_gradients_and_does_not_write_them():
    weight = torch.nn.Parameter(torch.ones(1000))
    weight.grad = torch.ones(1000)
    optimizer = torch.optim.AdamW([weight], fused=True)
    optimizer.step()
    work = count_work(lambda: optimizer.step() or [])
    assert 4 * 4000 <= work.read <= 4 * 4000 + 16  # and a step counter
    assert 3 * 4000 <= work.written <= 3 * 4000 + 16


def test_grouped_convolutions_are_not_counted_as_full_ones():
    convolution = torch.nn.Conv2d(16, 16, 3, groups=16, bias=False)
    x = torch.randn(1, 16, 10, 10, requires_grad=True)

    def step():
        convolution(x).sum().backward()
        return []

    with torch.enable_grad():
        assert count_work(step).flops == 3 * (2 * 16 * 9 * 8 * 8)


class Compiles(Peer):
    """It compiles in the third step and is not done before the fifth."""

    def __init__(self):
        self.calls = 0

    def compilation(self):
        self.calls += 1
        return Compilation(compiles=int(self.calls >= 3), pending=int(self.calls < 5))


def test_steady_steps_begin_when_compilation_is_over():
    trace = measure(lambda: [], ENTRY, Compiles(), 60.0, [0.0, 0.0])
    assert trace.settled
    assert trace.last_compile_step == 3
    assert trace.begins == [3 + QUIET_STEPS + turn * FEWEST_STEPS for turn in range(3)]


def test_a_peer_that_never_settles_is_measured_and_says_so():
    class Storm(Peer):
        calls = 0

        def compilation(self):
            self.calls += 1
            return Compilation(compiles=self.calls)

    trace = measure(lambda: [], ENTRY, Storm(), 0.0, [0.0])
    assert not trace.settled
    assert trace.steady() is not None


def test_the_steady_state_is_reached_where_steps_are_near_its_median():
    trace = Trace(begins=[6, 15])
    for seconds in (9.0, 1.0, 5.0, 5.0, 1.05, 1.1, *(1.0 for _ in range(9))):
        trace.add(seconds, Compilation())
    steady = trace.steady()
    assert steady is not None
    assert steady.median == 1.0
    assert steady.reached_step == 5
    assert steady.reached_seconds == pytest.approx(21.05)


def test_a_process_that_ends_or_takes_too_long_is_no_result(tmp_path):
    with Process("worker", ["no-such-entry", "eager", "1", str(tmp_path / "x")], {}, 60) as process:
        process.wait()
        process.ask("0.1\n")
        assert "expected one of" in process.finish()["failed"]
    with Process("no_such_module", [], {}, 60) as process:
        assert process.finish()["failed"].startswith("exit status 1\n")
    with Process("worker", [NAME, "eager", "1", str(tmp_path / "x")], {}, 0.01) as process:
        process.wait()
        process.ask("0.1\n")
        assert process.finish() == {"failed": "not done after 0 s"}


def test_every_entry_has_a_peer_and_a_name_of_its_own():
    known = entries()
    assert {"lengths", "data-loop", "heat", "adamw-single", "bert-train"} <= known.keys()
    assert all(entry_named(name) is entry for name, entry in known.items())
    whole = [name for name, entry in known.items() if PEERS["iree"]().takes(entry)]
    assert NAME in whole
    assert not any(known[name].training or known[name].steps for name in whole)
