"""What recording costs, against CPU eager in the same run.

Each figure is the median of interleaved rounds; a ratio is the median of the rounds' ratios. Run by
``make bench-dispatch``; exits non-zero if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertModel

from torch_shark import _C, config

TINY = (2, 2)


@dataclass(frozen=True)
class Row:
    """One comparison; `shark` and `cpu` in microseconds."""

    name: str
    shark: float
    cpu: float
    ratio: float
    bar: float | None = None

    @property
    def missed(self) -> bool:
        """Whether the ratio is above its bar."""
        return self.bar is not None and self.ratio > self.bar

    def __str__(self) -> str:
        bar = "" if self.bar is None else f"  (bar {self.bar}{', MISSED' if self.missed else ''})"
        return f"{self.name:44} {self.shark:10.3f} {self.cpu:10.3f} {self.ratio:8.2f}{bar}"


def compare(
    name: str,
    shark: Callable[[], float],
    cpu: Callable[[], float],
    rounds: int,
    bar: float | None = None,
) -> Row:
    """Interleave two measurements, each of which returns microseconds."""
    pairs = []
    for _ in range(rounds):
        pairs.append((shark(), cpu()))
        torch.shark.synchronize()
    return Row(
        name,
        statistics.median(s for s, _ in pairs),
        statistics.median(c for _, c in pairs),
        statistics.median(s / c for s, c in pairs),
        bar,
    )


def timed(call: Callable[[], Any], repeats: int) -> Callable[[], float]:
    """A measurement of a Python call."""

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) / repeats * 1e6

    return measure


def timed_in_cpp(calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]], rounds: int):
    """A measurement of dispatcher calls from C++, a mean over the calls."""
    return lambda: _C.nanoseconds_per_round(calls, rounds) / len(calls) / 1e3


def operator_calls(x: torch.Tensor) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """The operators whose recording is measured alone, on a tiny tensor."""
    ones = torch.ones(TINY[-1], device=x.device)
    return {
        "add": ("aten::add.Tensor", (x, x)),
        "mul_": ("aten::mul_.Tensor", (x, x)),
        "addmm": ("aten::addmm", (x, x, x)),
        "gelu": ("aten::gelu", (x,)),
        "layer_norm": ("aten::native_layer_norm", (x, TINY[-1:], ones, ones, 1e-5)),
        "transpose": ("aten::transpose.int", (x, 0, 1)),
    }


class Capture(TorchDispatchMode):
    """Keeps the calls of operators that reach the device, views included."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((func.name(), args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def is_recorded(name: str) -> bool:
    """Whether an operator is neither a view nor the question which attention kernel to take."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    schema = getattr(getattr(torch.ops.aten, packet), overload or "default")._schema
    return packet != "_fused_sdp_choice" and not any(a.alias_info for a in schema.arguments)


def minilm() -> tuple[BertModel, torch.Tensor]:
    """A 12-layer MiniLM with random weights, and tokens of one text of 128."""
    torch.manual_seed(0)
    shape = BertConfig(hidden_size=384, num_hidden_layers=12, intermediate_size=1536)
    return BertModel(shape).eval(), torch.randint(0, shape.vocab_size, (1, 128))


def capture_forward(device: str) -> tuple[list[Any], int]:
    """The calls of a MiniLM forward on a device, and how many operators it records there."""
    model, tokens = minilm()
    model, tokens = model.to(device), tokens.to(device)
    model(tokens)
    with Capture() as capture:
        model(tokens)
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    model(tokens)
    torch.shark.synchronize()
    return capture.calls, torch.shark.metrics().recorded


def measure_operators(rounds: int) -> list[Row]:
    """Python and C++ cost of single operators on tiny tensors."""
    cpu = torch.ones(TINY)
    shark = cpu.to("shark")
    rows = [
        compare("add, Python", timed(lambda: shark + shark, 2000), timed(lambda: cpu + cpu, 2000),
                rounds, bar=1.2)
    ]  # fmt: skip
    for name, (op, args) in operator_calls(shark).items():
        native = operator_calls(cpu)[name][1]
        rows.append(
            compare(
                f"{name}, C++",
                timed_in_cpp([(op, args, {})], 2000),
                timed_in_cpp([(op, native, {})], 2000),
                rounds,
            )
        )
    return rows


def measure_item(rounds: int) -> Row:
    """A program that reads a value at every step."""
    cpu = torch.ones(())
    shark = cpu.to("shark")
    return compare(
        "x = x + 1; x.item()",
        timed(lambda: (shark + 1).item(), 2000),
        timed(lambda: (cpu + 1).item(), 2000),
        rounds,
        bar=2.0,
    )


def measure_recorded_operator(rounds: int) -> Row:
    """C++ cost of a recorded operator over a MiniLM forward, beside the CPU's own add."""
    calls, recorded = capture_forward("shark")
    calls = [call for call in calls if is_recorded(call[0])]
    if len(calls) != recorded:
        raise RuntimeError(f"captured {len(calls)} calls of operators, recorded {recorded}")
    cpu = torch.ones(TINY)
    forward = timed_in_cpp(calls, 20)
    add = timed_in_cpp([("aten::add.Tensor", (cpu, cpu), {})], 5000)
    return compare(f"per operator of MiniLM ({recorded}) / CPU add", forward, add, rounds, bar=2.0)


def measure_forward(rounds: int) -> Row:
    """A MiniLM forward under the native policy against CPU eager, to the result."""
    model, tokens = minilm()
    on_shark = minilm()[0].to("shark")
    shark_tokens = tokens.to("shark")

    def run_shark() -> None:
        on_shark(shark_tokens)
        torch.shark.synchronize()

    run_shark(), model(tokens)
    return compare(
        "MiniLM forward, native", timed(run_shark, 1), timed(lambda: model(tokens), 1), rounds,
        bar=1.0,
    )  # fmt: skip


def main() -> int:
    """Measure, print, and say whether every bar was met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    config.policy = "native"
    with torch.no_grad():
        rows = [
            *measure_operators(options.rounds),
            measure_recorded_operator(options.rounds),
            measure_item(options.rounds),
            measure_forward(3 * options.rounds),
        ]
    print(f"{'':44} {'shark us':>10} {'cpu us':>10} {'ratio':>8}")
    for row in rows:
        print(row)
    if options.json:
        with open(options.json, "w") as file:
            json.dump([asdict(row) for row in rows], file, indent=2)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
