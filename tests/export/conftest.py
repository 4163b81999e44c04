"""What the tests of bundles share: a small model exported once, and IREE's own tool to run one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

RUN_MODULE = Path(sys.executable).parent / "iree-run-module"


class Small(torch.nn.Module):
    """Two layers and what is between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.second(torch.nn.functional.gelu(self.first(x))), -1)


@pytest.fixture(scope="session")
def small() -> Small:
    """The model of the bundle that `bundle` gives."""
    torch.manual_seed(0)
    return Small().eval()


@pytest.fixture(scope="session")
def bundle(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of `small` for inputs of 3x8, compiled for this CPU; not to be changed."""
    path = tmp_path_factory.mktemp("bundles") / "small"
    torch.shark.export(small, (torch.randn(3, 8),), path)
    return path


@pytest.fixture
def iree_run_module(tmp_path: Path) -> Callable[..., list[torch.Tensor]]:
    """Return `run(bundle, *tensors)`: what IREE's own tool makes of them."""

    def run(bundle: Path, *tensors: torch.Tensor, device: str = "local-task") -> list[Any]:
        manifest = json.loads((bundle / "manifest.json").read_text())
        (entry, *_) = [t for t in manifest["targets"] if t["driver"] == device]
        command = [RUN_MODULE, f"--module={bundle / entry['file']}", f"--device={device}"]
        command += ["--function=main"]
        if manifest["parameters"]:
            command.append(f"--parameters=model={bundle / manifest['parameters']}")
        for i, tensor in enumerate(tensors):
            np.save(tmp_path / f"in{i}.npy", tensor.numpy())
            command.append(f"--input=@{tmp_path / f'in{i}.npy'}")
        leaves = manifest["outputs"]["leaves"]
        results = [tmp_path / f"out{i}.npy" for i, leaf in enumerate(leaves) if "dtype" in leaf]
        command += [f"--output=@{result}" for result in results]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [torch.from_numpy(np.load(result)) for result in results]

    return run
