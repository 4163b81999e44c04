"""What the tests of workers share; helpers are in `faking`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faking import Fakes, is_gone


@pytest.fixture
def fakes(tmp_path: Path) -> Iterator[Callable[..., Fakes]]:
    """Return `make(*behaviours, **limits)`; afterwards no worker may be left."""
    made: list[Fakes] = []

    def make(*behaviours: str, **limits: Any) -> Fakes:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Fakes(folder, *behaviours, **limits))
        return made[-1]

    yield make
    for fake in made:
        fake.pool.close()
        assert [pid for pid in fake.pids() if not is_gone(pid)] == []
