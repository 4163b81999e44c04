"""A process that finds its regions in the store never loads a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys
import torch
from recording import record, run_plan
from torch_shark.cache import CacheKey, DiskCache
from checking import in_process

from torch_shark.planner import Planner
from torch_shark.runtime.executable import Executable
from torch_shark.targets import get_target


class Store:
    cache = DiskCache(sys.argv[1], 1 << 30)

    def get(self, parts):
        return self.cache.get(CacheKey.of(parts))

    def put(self, parts, data):
        self.cache.put(CacheKey.of(parts), data)


planner = Planner(get_target("cpu"), in_process(), Executable, Store())
x = torch.arange(4.0)
recording = record(lambda x: [torch.hypot(x * 2.0, x + 1).sin(), x.cumsum(0)], x)
run = run_plan(planner.plan(recording.record), recording)
loaded = [name for name in ("torch_mlir", "iree.compiler", "iree.runtime") if name in sys.modules]
print(planner.stats.compiles > 0, run.native, *loaded)
"""


def _run(folder: Path) -> str:
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_a_warm_process_loads_no_compiler(tmp_path: Path) -> None:
    assert _run(tmp_path) == "True ['aten::hypot'] torch_mlir iree.compiler iree.runtime"
    assert _run(tmp_path) == "False ['aten::hypot'] iree.runtime"
