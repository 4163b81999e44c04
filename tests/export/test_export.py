"""A model, exported and loaded: values, devices, structures, and what a machine needs for it."""

from __future__ import annotations

import json
from collections import namedtuple

import pytest
import torch
from torch.testing import assert_close


def test_a_loaded_model_returns_what_the_model_does(small, bundle):
    program = torch.shark.load(bundle)
    assert program.target == "cpu:x86-64-v3"
    assert program.state == ()
    for _ in range(3):
        x = torch.randn(3, 8)
        assert_close(program(x), small(x).detach())


def test_irees_own_tool_runs_the_bundle(small, bundle, iree_run_module):
    x = torch.randn(3, 8)
    (result,) = iree_run_module(bundle, x)
    assert_close(result, small(x).detach())
    assert torch.equal(result, torch.shark.load(bundle)(x))


def test_shark_tensors_give_shark_tensors(small, bundle):
    program = torch.shark.load(bundle)
    x = torch.randn(3, 8)
    result = program(x.to("shark") * 2)
    assert result.device == torch.device("shark:0")
    assert_close(result.cpu(), small(x * 2).detach())


def test_a_model_on_the_shark_device_is_exported_as_it_is(small, bundle, tmp_path):
    import copy

    model = copy.deepcopy(small).to("shark")
    x = torch.randn(3, 8)
    torch.shark.export(model, (x.to("shark"),), tmp_path / "bundle")
    assert next(model.parameters()).device.type == "shark"
    assert_close(torch.shark.load(tmp_path / "bundle")(x), small(x).detach())


def test_inputs_may_be_views_and_results_are_memory_of_their_own(small, bundle):
    program = torch.shark.load(bundle)
    x = torch.randn(8, 4)[:, 1:].t()
    assert not x.is_contiguous()
    first = program(x)
    kept = first.clone()
    program(torch.randn(3, 8))
    assert torch.equal(first, kept)
    assert_close(first, small(x).detach())


def test_no_compiler_and_no_dynamo_are_needed_to_run(small, bundle, python, tmp_path):
    x = torch.randn(3, 8)
    torch.save({"x": x, "y": small(x).detach()}, tmp_path / "values.pt")
    result = python(
        f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("iree.compiler", "torch_mlir", "torch._dynamo", "torch._inductor")):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
import torch
values = torch.load({str(tmp_path / "values.pt")!r})
program = torch.shark.load({str(bundle)!r})
torch.testing.assert_close(program(values["x"]), values["y"])
on_shark = program(values["x"].to("shark"))
torch.testing.assert_close(on_shark.cpu(), values["y"])
print(on_shark.device, sorted(m for m in sys.modules if "compiler" in m and "iree" in m))
"""
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "shark:0 []\n"


Pair = namedtuple("Pair", ["first", "second"])


class Structured(torch.nn.Module):
    """Takes and returns what is no plain tensor."""

    def forward(self, batch, scale, *, mask, mode=None):
        total = batch["x"] * scale + batch["y"][0]
        total = torch.where(mask, total, 0 if mode is None else 1)
        return {"total": total, "pair": (batch["x"], total > 0), "fixed": (None, 7, "text")}


def test_structures_are_those_of_the_model(tmp_path):
    model = Structured()
    batch = {"x": torch.randn(2, 3), "y": [torch.randn(3)]}
    named = {"mask": torch.tensor([True, False, True]), "mode": "ones"}
    torch.shark.export(model, (batch, 3), tmp_path / "b", example_kwargs=named)
    program = torch.shark.load(tmp_path / "b")
    batch = {"x": torch.randn(2, 3), "y": [torch.randn(3)]}
    expected = model(batch, 3, **named)
    result = program(batch, 3, mode="ones", mask=named["mask"])
    assert type(result["pair"]) is tuple
    assert result["fixed"] == expected["fixed"]
    assert_close([result["total"], *result["pair"]], [expected["total"], *expected["pair"]])


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    + [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool],
    ids=str,
)
def test_each_dtype_goes_in_and_out_and_is_held(dtype, tmp_path):
    class Held(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("held", torch.arange(6).reshape(2, 3).to(dtype))
            self.constant = torch.tensor([1, 0, 1]).to(dtype)

        def forward(self, x):
            return torch.maximum(x, self.held), self.constant, x[:0], x[0, 0]

    model = Held()
    x = torch.tensor([[3, 0, 1], [0, 1, 9]]).to(dtype)
    torch.shark.export(model, (x,), tmp_path / "b")
    results = torch.shark.load(tmp_path / "b")(x)
    assert_close(results, model(x), rtol=0, atol=0)
    assert [r.dtype for r in results] == [dtype] * 4


def test_tied_parameters_are_written_once(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(64, 128)
            self.head = torch.nn.Linear(128, 64, bias=False)
            self.head.weight = self.embedding.weight
            self.unused = torch.nn.Linear(128, 128)

        def forward(self, ids):
            return self.head(self.embedding(ids))

    model, ids = Tied(), torch.tensor([[1, 5, 63]])
    torch.shark.export(model, (ids,), tmp_path / "b")
    assert_close(torch.shark.load(tmp_path / "b")(ids), model(ids).detach())
    size = (tmp_path / "b" / "parameters.irpa").stat().st_size
    assert 64 * 128 * 4 <= size < 1.5 * 64 * 128 * 4


def test_a_model_without_parameters_has_no_archive(tmp_path, iree_run_module):
    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x + x

    torch.shark.export(Doubled(), (torch.ones(2),), tmp_path / "b")
    assert sorted(f.name for f in (tmp_path / "b").iterdir()) == [
        "cpu-x86-64-v3.vmfb",
        "manifest.json",
    ]
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert manifest["parameters"] is None
    x = torch.randn(2)
    assert torch.equal(torch.shark.load(tmp_path / "b")(x), x + x)
    assert torch.equal(iree_run_module(tmp_path / "b", x)[0], x + x)
