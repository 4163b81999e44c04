"""Indices: those in range as in PyTorch, those out of range without harm."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.testing import assert_close


class Reading(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids, x):
        return (
            self.table(ids),
            x[ids],
            x.index_select(0, ids),
            torch.gather(x, 0, ids[:, None]),
            x[:, ids],
        )


class Writing(nn.Module):
    def forward(self, ids, x):
        rows = torch.ones(ids.shape[0], 10)
        return (
            x.index_add(0, ids, rows),
            x.index_copy(0, ids, rows),
            x.index_put((ids,), rows),
            x.scatter(0, ids[:, None], 5.0),
            x.scatter_add(0, ids[:, None], rows[:, :1]),
        )


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("model", [Reading(), Writing()], ids=["reading", "writing"])
def test_indices_are_those_of_pytorch_or_the_nearest(tmp_path, model, dynamic):
    n = Dim("n", min=2, max=1000)
    shapes = ({0: n}, {}) if dynamic else None
    x = torch.randn(10, 10)
    torch.shark.export(model, (torch.tensor([3, 0, 9]), x), tmp_path / "b", dynamic_shapes=shapes)
    program = torch.shark.load(tmp_path / "b")
    for ids in ([0, 9, 5], [7, 2, 3]) + (([1, 2], [9, 8, 7, 6, 5]) if dynamic else ()):
        ids = torch.tensor(ids)
        before = x.clone()
        assert_close(program(ids, x), tuple(value.detach() for value in model(ids, x)))
        assert torch.equal(x, before)
    far = program(torch.tensor([10**9, -(10**9), 4]), x)
    assert_close(far, tuple(value.detach() for value in model(torch.tensor([9, 0, 4]), x)))


def test_negative_indices_and_masks(tmp_path):
    class Negative(nn.Module):
        def forward(self, x, ids, mask):
            return x[ids], torch.where(mask, x, 0)

    x, ids, mask = torch.randn(6), torch.tensor([-1, -6, 2]), torch.randn(6) > 0
    torch.shark.export(Negative(), (x, ids, mask), tmp_path / "b")
    assert_close(torch.shark.load(tmp_path / "b")(x, ids, mask), Negative()(x, ids, mask))
