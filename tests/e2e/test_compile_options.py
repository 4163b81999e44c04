"""What the options of torch.compile(backend="shark") do, for one function alone."""

from __future__ import annotations

import pytest
import torch

from tests.anew import new_planner
from torch_shark import config


def program(x):
    return (x.sin() * 2 + x).relu()


X = torch.arange(6.0)


def run(function, device="cpu"):
    """Call a function three times, and return what was compiled and found meanwhile."""
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    for _ in range(3):
        torch.testing.assert_close(function(X.to(device)).cpu(), program(X))
    counts = torch.shark.metrics()
    return counts.compiles, counts.disk_hits


@pytest.fixture(autouse=True)
def iree(tmp_path):
    torch._dynamo.reset()
    with new_planner(policy="iree", cache_dir=tmp_path / "own"):
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize("device", ["cpu", "shark"])
def test_flags_are_for_one_function(device):
    plain = torch.compile(program, backend="shark")
    assert run(plain, device) == (1, 0)
    options = {"compile_flags": ["--iree-opt-level=O1"]}
    flagged = torch.compile(program, backend="shark", options=options)
    assert run(flagged, device) == (1, 0)  # the same region, by other flags
    assert run(flagged, device) == run(plain, device) == (0, 0)


def test_a_folder_for_the_cache(tmp_path):
    options = {"cache_dir": str(tmp_path / "other")}
    compiled = torch.compile(program, backend="shark", options=options)
    assert run(compiled) == (1, 0)
    assert list((tmp_path / "other").glob("*.entry"))
    assert not (tmp_path / "own").exists()
    with new_planner(policy="iree", cache_dir=tmp_path / "other"):
        assert run(torch.compile(program, backend="shark")) == (0, 1)


def test_a_folder_for_what_does_not_compile(tmp_path):
    def refused(x):
        return torch.hypot(x.view(2, 3, 1), x)

    options = {"dump_dir": tmp_path / "dumps", "target": "cpu"}
    compiled = torch.compile(refused, backend="shark", options=options)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), refused(X))
    assert torch.shark.metrics().failures > 0
    assert list((tmp_path / "dumps").glob("*.mlir"))
    assert not (tmp_path / "own" / "failed").exists()


def test_flags_of_the_process(monkeypatch):
    monkeypatch.setenv("TORCH_SHARK_COMPILE_FLAGS", "--iree-opt-level=O1 --iree-opt-level=O3")
    assert config.compile_flags == ("--iree-opt-level=O1", "--iree-opt-level=O3")
