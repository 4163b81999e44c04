"""Planners and stores for the tests of lowering; the windows come from `recording`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from checking import MemoryStore, in_process

from torch_shark.planner import Planner
from torch_shark.runtime.executable import Executable
from torch_shark.targets import get_target


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def planner(store: MemoryStore) -> Planner:
    return Planner(get_target("cpu"), in_process(), Executable, store)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
