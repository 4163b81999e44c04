"""Buffers that a model writes: they begin as they were exported and stay with the program."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.testing import assert_close


class Cache(nn.Module):
    """Keeps what it was given, as the cache of a decoder does."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 4)
        self.register_buffer("keys", torch.zeros(1, 16, 4))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64), persistent=False)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x):
        before = self.keys.sum()
        self.keys.index_copy_(1, self.count, self.project(x))
        self.count.add_(1)
        return self.keys * self.scale, before, self.count


def test_a_cache_grows_from_call_to_call(tmp_path):
    model = Cache()
    torch.shark.export(model, (torch.randn(1, 1, 4),), tmp_path / "b")
    assert model.count.item() == 0  # the export left the model as it was
    program = torch.shark.load(tmp_path / "b")
    assert sorted(program.state) == ["count", "keys"]
    first = copy.deepcopy(model)
    for step in range(4):
        x = torch.randn(1, 1, 4)
        result = program(x)
        assert_close(result, tuple(value.detach() for value in model(x)))
        assert result[2].item() == step + 1
    x = torch.randn(1, 1, 4)
    fresh = torch.shark.load(tmp_path / "b")
    assert_close(fresh(x), tuple(value.detach() for value in first(x)))


def test_batch_norm_that_trains(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).train()
    start = copy.deepcopy(model.state_dict())
    torch.shark.export(model, (torch.randn(6, 8),), tmp_path / "b")
    assert_close(dict(model.state_dict()), dict(start), rtol=0, atol=0)
    program = torch.shark.load(tmp_path / "b")
    assert sorted(program.state) == ["1.num_batches_tracked", "1.running_mean", "1.running_var"]
    for _ in range(3):
        x = torch.randn(6, 8)
        assert_close(program(x), model(x).detach())


class Swapping(nn.Module):
    """Writes a buffer with an argument, another with the first one, and returns an old value."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(3))
        self.register_buffer("earlier", torch.ones(3))

    def forward(self, x):
        self.earlier.copy_(self.last)
        self.last.copy_(x)
        return self.earlier + 0, self.last


def test_buffers_that_take_one_anothers_values(tmp_path):
    model = Swapping()
    torch.shark.export(model, (torch.randn(3),), tmp_path / "b")
    program = torch.shark.load(tmp_path / "b")
    for _ in range(3):
        x = torch.randn(3)
        kept = program(x)
        assert_close(kept, tuple(value.clone() for value in model(x)), rtol=0, atol=0)
