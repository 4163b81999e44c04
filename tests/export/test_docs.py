"""What docs/export.md shows is what happens."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import torch

from tests.export.conftest import RUN_MODULE

DOCS = Path(__file__).parents[2] / "docs" / "export.md"


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = DOCS.read_text()
    names: dict[str, object] = {}
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(code, names)
    program, model = names["program"], names["model"]
    x = torch.randn(9, 8)
    torch.testing.assert_close(program(x), model(x).detach())
    named = torch.shark.load("classifier", target="cpu:x86-64-v3")
    torch.testing.assert_close(named(x), model(x).detach())

    np.save("input.npy", x.numpy())
    (command,) = re.findall(r"```\n(iree-run-module.*?)```", text, re.DOTALL)
    line = command.replace("iree-run-module", str(RUN_MODULE)).replace("\\\n", "")
    done = subprocess.run(line.split(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "9x4xf32=" in done.stdout


def test_the_table_of_files_is_that_of_a_bundle(bundle):
    files = {file.name for file in bundle.iterdir()}
    assert files == {"cpu-x86-64-v3.vmfb", "parameters.irpa", "manifest.json"}
    for name in files:
        assert f"`{name}`" in DOCS.read_text()
    fields = json.loads((bundle / "manifest.json").read_text())
    assert fields["format"] == 1
    assert set(fields["versions"]) == {"torch_shark", "torch", "torch-mlir", "iree"}
