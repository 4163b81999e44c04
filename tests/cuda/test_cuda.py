"""The shark device over CUDA, against CUDA itself, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import PROGRAMS

pytestmark = pytest.mark.skipif(torch.cuda.device_count() == 0, reason="no CUDA device")
HERE = Path(__file__).parent

# CUDA has cuDNN's kernels for these, the device ATen's own. The former compute recurrent layers in
# TF32; three steps of Adam make more of a difference in the gradients.
CLOSE = {"batch_norm": 5e-3, "recurrent": 1e-3}


def run_on(device: str, file: Path, **variables: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "programs.py"), device, str(file)]
    subprocess.run(command, check=True, env=os.environ | variables, cwd=HERE)
    return torch.load(file)


@pytest.fixture(scope="session")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    plain = run_on("cuda", folder / "cuda.pt", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    return plain, run_on("shark", folder / "shark.pt", TORCH_SHARK_TARGET="cuda")


@pytest.mark.parametrize("name", PROGRAMS)
def test_gives_the_bits_of_cuda(both, name):
    plain, shark = (results[name] for results in both)
    assert not isinstance(plain, str), plain
    assert not isinstance(shark, str), shark
    assert len(plain) == len(shark)
    if name in CLOSE:
        torch.testing.assert_close(shark, plain, rtol=0, atol=CLOSE[name])
        return
    for number, (expected, got) in enumerate(zip(plain, shark, strict=True)):
        assert got.dtype == expected.dtype
        assert got.stride() == expected.stride()
        assert torch.equal(got.nan_to_num(), expected.nan_to_num()), (
            number, (got - expected).abs().max()
        )  # fmt: skip
