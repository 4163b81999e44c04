"""torch.compiler.save_cache_artifacts and load_cache_artifacts carry what was compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from torch_shark.cache import CacheKey, decode, encode

PROGRAM = """
import sys
from pathlib import Path

import torch

file = Path(sys.argv[1])
eager = (torch.arange(8.0).to("shark") * 3).tanh()
torch.shark.synchronize()  # compiled before anything of torch.compile's is
if file.exists():
    found = torch.compiler.load_cache_artifacts(file.read_bytes())
    print(len(found.torch_shark_artifacts))
else:
    print(0)
compiled = torch.compile(lambda x: (x.sin() * 2 + x).relu(), backend="shark")
value = compiled(torch.arange(6.0))
assert torch.allclose(value, (torch.arange(6.0).sin() * 2 + torch.arange(6.0)).relu())
counts = torch.shark.metrics()
print(counts.compiles, counts.disk_hits)
if not file.exists():
    file.write_bytes(torch.compiler.save_cache_artifacts()[0])
"""


def run(folder: Path, file: Path) -> list[int]:
    environment = {"TORCH_SHARK_CACHE_DIR": str(folder), "TORCH_SHARK_POLICY": "iree"}
    environment |= {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_another_machine_compiles_nothing_that_was_carried(tmp_path):
    file = tmp_path / "artifacts"
    assert run(tmp_path / "one", file) == [0, 2, 0]
    # The eager region comes before the artifacts are there.
    assert run(tmp_path / "two", file) == [2, 1, 1]
    assert run(tmp_path / "two", file) == [2, 0, 2]


def test_a_damaged_artifact_is_not_taken(tmp_path, caplog):
    from torch.compiler._cache import CacheArtifactFactory

    entry = encode(CacheKey.of([("region", "abc")]), b"payload")
    assert decode(entry) == (CacheKey.of([("region", "abc")]), b"payload")
    artifact = CacheArtifactFactory.create("torch_shark", "abc", entry[:-1])
    artifact.populate_cache()
    assert "a cache artifact is not taken" in caplog.text
    assert (torch.ones(2, device="shark") + 1).tolist() == [2.0, 2.0]
