"""One bundle, several sizes: torch.export.Dim, and what depends on it."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.testing import assert_close
from torch.utils import _pytree as pytree


def check(model, dynamic_shapes, calls, path):
    """Export with the first call's arguments; all calls give what the model gives."""
    torch.shark.export(model, calls[0], path, dynamic_shapes=dynamic_shapes)
    program = torch.shark.load(path)
    for call in calls:
        with torch.no_grad():
            expected = model(*call)
        result = program(*call)
        assert pytree.tree_structure(result) == pytree.tree_structure(expected)
        assert_close(pytree.tree_leaves(result), pytree.tree_leaves(expected))
    return program


BATCH = Dim("batch", max=4096)
LENGTH = Dim("length", max=512)


def test_an_unknown_batch(tmp_path, iree_run_module):
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    calls = [(torch.randn(n, 8),) for n in (3, 1, 2, 64, 4096)]
    program = check(model, ({0: BATCH},), calls, tmp_path / "b")
    fields = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert fields["inputs"]["leaves"][0]["shape"] == ["batch", 8]
    assert fields["outputs"]["leaves"][0]["shape"] == ["batch", 4]
    assert fields["symbols"] == {"batch": [0, 4096]}
    x = torch.randn(5, 8)
    assert torch.equal(iree_run_module(tmp_path / "b", x)[0], program(x))
    assert program(x.to("shark")).shape == (5, 4)


def test_sizes_out_of_range_or_that_do_not_fit(tmp_path):
    class Two(nn.Module):
        def forward(self, x, y):
            return y[:, None] + x.repeat(2).sum(), x.shape[0] * 3

    n = Dim("n", min=3, max=10)
    calls = [(torch.randn(k), torch.randn(2 * k + 1)) for k in (4, 3, 10)]
    program = check(Two(), ({0: n}, {0: 2 * n + 1}), calls, tmp_path / "b")
    for sizes, said in [
        ((2, 5), r"expected x to have shape \[n\], n from 3 to 10, got \[2\]"),
        ((11, 23), r"expected x to have shape \[n\], n from 3 to 10, got \[11\]"),
        ((4, 10), r"expected y to have shape \[2\*n \+ 1\] where n is 4, got \[10\]"),
        ((4, 11), r"expected y to have shape \[2\*n \+ 1\] where n is 4, got \[11\]"),
    ]:
        with pytest.raises(ValueError, match=said):
            program(*map(torch.randn, sizes))


def test_an_encoder_with_batch_and_length(tmp_path):
    """Two sizes that IREE can't tell apart; it once took them for one another."""
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    calls = [(torch.randn(k, n, 32),) for k, n in ((2, 7), (1, 1), (3, 16), (5, 33))]
    check(model, ({0: BATCH, 1: LENGTH},), calls, tmp_path / "b")


def test_images_of_any_size(tmp_path):
    model = nn.Sequential(
        *[nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Conv2d(8, 4, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)],
    ).eval()
    dims = {0: BATCH, 2: Dim("height", min=16, max=256), 3: Dim("width", min=16, max=256)}
    calls = [(torch.randn(k, 3, h, w),) for k, h, w in ((2, 32, 32), (1, 16, 48), (3, 65, 33))]
    check(model, (dims,), calls, tmp_path / "b")


class Views(nn.Module):
    def forward(self, x):
        batch, length, width = x.shape
        heads = x.reshape(batch, length, 4, width // 4).permute(0, 2, 1, 3)
        return (
            heads.reshape(batch * 4, length, -1),
            x.reshape(-1, 2).view(batch, -1, 4, 4),
            x.unsqueeze(0).reshape(batch * length * width),
            x.view(batch, 1, -1).flatten(0, 1).unsqueeze(-1),
            x.transpose(0, 1).contiguous().view(length, batch * 4, width // 4),
        )


def test_views_of_sizes_that_are_not_known(tmp_path):
    calls = [(torch.randn(k, n, 32),) for k, n in ((2, 7), (1, 1), (3, 16))]
    check(Views(), ({0: BATCH, 1: LENGTH},), calls, tmp_path / "b")


class Reductions(nn.Module):
    def forward(self, x):
        rows = x.sum(1)
        return (
            *(x.mean(0), x.var(0), x.softmax(0), x.amax(0), x.argmax(0), x.cumsum(0)),
            *(rows[:, None] + rows[None], torch.cat([x, x * 2]), torch.cat([x, x * 3])),
            *(x.t() @ x, x[1:].flip(0), torch.where(x > 0, x, 0.5).clamp(-1, 1)),
        )


@pytest.mark.parametrize("dynamic", [False, True])
def test_reductions_and_what_iree_must_keep_apart(tmp_path, dynamic):
    sizes = (70, 3, 131, 600) if dynamic else (70,)
    shapes = ({0: Dim("n", min=3, max=4000)},) if dynamic else None
    check(Reductions(), shapes, [(torch.randn(n, 5),) for n in sizes], tmp_path / "b")


def test_decompositions_do_not_choose_by_the_examples_size(tmp_path):
    """Regions add up long sums in stages; an unknown size must not be taken for a short one."""

    class Sums(nn.Module):
        def forward(self, x):
            return x.sum(0), x.mean(0), torch.linalg.vector_norm(x)

    calls = [(torch.ones(n, 4),) for n in (30, 2048, 2049, 5000)]  # exact in any order
    check(Sums(), ({0: Dim("n", min=2, max=100000)},), calls, tmp_path / "b")


def test_lookups_of_any_number(tmp_path):
    class Lookups(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 4)

        def forward(self, ids):
            rows = self.table(ids)
            return rows, torch.gather(rows, 1, ids[:, None] % 4), rows[ids.flip(0) % ids.shape[0]]

    calls = [(torch.arange(n) % 10,) for n in (4, 3, 25)]
    check(Lookups(), ({0: Dim("n", min=2, max=1000)},), calls, tmp_path / "b")


def test_attention_whose_result_is_viewed(tmp_path):
    """The view is possible of what the CPU's own kernel returns, not of attention written out."""

    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(32, 96)

        def forward(self, x):
            batch, length, _ = x.shape
            parts = self.project(x).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
            heads = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            return heads.transpose(1, 2).reshape(batch, length, 32).view(-1, 32)

    calls = [(torch.randn(k, n, 32),) for k, n in ((2, 7), (1, 3), (3, 16))]
    check(Attending(), ({0: BATCH, 1: LENGTH},), calls, tmp_path / "b")
