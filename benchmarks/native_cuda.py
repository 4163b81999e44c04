"""Eager code on the shark device over CUDA, against eager code on CUDA.

Each device has a process of its own, for PyTorch cannot train on CUDA beside a further device. The
two take turns; a ratio is the median of the turns' ratios. Run by ``make bench-cuda``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Step = Callable[[], object]
TURNS = 15
SECONDS = 0.5  # of a turn


def minilm(device: str, forwards: int) -> Step:
    """MiniLM-L12, 1 x 128 tokens: some forwards, then one read."""
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=384, num_hidden_layers=12, intermediate_size=1536)
    model = BertModel(config, add_pooling_layer=False).eval().to(device)
    tokens = torch.randint(0, 30522, (1, 128), device=device)

    @torch.no_grad()
    def step() -> object:
        for _ in range(forwards):
            result = model(tokens).last_hidden_state
        return result[0, 0, 0].item()

    return step


def bert_train(device: str) -> Step:
    """BERT of 4 layers, hidden 256, 8 x 128 tokens, a step with foreach AdamW."""
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(
        BertConfig(
            hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
        )
    ).to(device)
    adam = torch.optim.AdamW(model.parameters(), 1e-4, foreach=True)
    tokens = torch.randint(0, 30522, (8, 128), device=device)
    labels = torch.randint(0, 2, (8,), device=device)

    def step() -> object:
        loss = model(tokens, labels=labels).loss
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss.item()

    return step


def adamw(device: str, foreach: bool) -> Step:
    """AdamW over 110M parameters in 200 tensors."""
    weights = [nn.Parameter(torch.randn(550_000, device=device)) for _ in range(200)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    adam = torch.optim.AdamW(weights, foreach=foreach)

    def step() -> object:
        adam.step()
        return weights[0][0].item()

    return step


ENTRIES: dict[str, Callable[[str], Step]] = {
    "minilm-b1": lambda device: minilm(device, forwards=1),
    "minilm-b1-x20": lambda device: minilm(device, forwards=20),
    "bert4-train": bert_train,
    "adamw-single": lambda device: adamw(device, foreach=False),
    "adamw-foreach": lambda device: adamw(device, foreach=True),
}


def serve(entry: str, device: str) -> None:
    """Be one of the processes: measure a turn for each line that is read."""
    torch.manual_seed(0)
    start = time.perf_counter()
    step = ENTRIES[entry](device)
    built = time.perf_counter()
    step()
    first = time.perf_counter() - built
    for _ in range(5):
        step()
    print(json.dumps({"first": first, "build": built - start}), flush=True)
    for _ in sys.stdin:
        times = []
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(times) < 3:
            before = time.perf_counter()
            step()
            times.append(time.perf_counter() - before)
        print(json.dumps(statistics.median(times)), flush=True)


def start(entry: str, device: str) -> subprocess.Popen[str]:
    """Start a process."""
    variables = {"cuda": {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}}.get(
        device, {"TORCH_SHARK_TARGET": "cuda"}
    )
    return subprocess.Popen(
        [sys.executable, __file__, "--serve", entry, device],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
    )


def ask(process: subprocess.Popen[str]) -> Any:
    """Read an answer."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def measure(entry: str) -> None:
    """Measure an entry on both devices and print a line."""
    processes = [start(entry, device) for device in ("cuda", "shark")]
    first = [ask(process)["first"] for process in processes]
    turns: list[list[float]] = []
    for number in range(TURNS):
        turn = [0.0, 0.0]
        for i in (0, 1) if number % 2 == 0 else (1, 0):
            assert processes[i].stdin is not None
            processes[i].stdin.write("turn\n")
            processes[i].stdin.flush()
            turn[i] = ask(processes[i])
        turns.append(turn)
    for process in processes:
        process.communicate()
    eager, shark = (statistics.median(times) * 1e3 for times in zip(*turns, strict=True))
    ratios = sorted(shark / eager for eager, shark in turns)
    print(
        f"{entry:16} eager {eager:8.3f} ms  shark {shark:8.3f} ms  ratio "
        f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})  "
        f"first {first[0] * 1e3:.0f} {first[1] * 1e3:.0f} ms",
        flush=True,
    )


def main() -> None:
    """Measure the entries that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", nargs=2, metavar=("ENTRY", "DEVICE"))
    parser.add_argument("entries", nargs="*", choices=[*ENTRIES, []])
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    for entry in options.entries or ENTRIES:
        measure(entry)


if __name__ == "__main__":
    main()
