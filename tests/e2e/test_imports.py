"""Pooled memory keeps its import while it waits to be used again, and no longer than it lasts."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch

from torch_shark import config
from torch_shark.runtime import interop

Imports = list[weakref.ref[interop.ImportedBuffer]]


@pytest.fixture(autouse=True)
def iree() -> Iterator[None]:
    torch.shark.empty_cache()
    with config.scope(policy="iree"):
        yield
        torch.shark.synchronize()


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Imports:
    """The imports made from now on."""
    made: Imports = []
    init = interop.ImportedBuffer.__init__

    def noted(self: interop.ImportedBuffer, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]
        made.append(weakref.ref(self))

    monkeypatch.setattr(interop.ImportedBuffer, "__init__", noted)
    return made


def double(imports: Imports, count: int) -> torch.Tensor:
    """A region's result, over memory that is new; the region has run before."""

    def run() -> torch.Tensor:
        y = torch.ones(count, device="shark") * 2 + 1
        torch.shark.synchronize()
        return y

    run()
    torch.shark.empty_cache()
    imports.clear()
    return run()


def alive(imports: Imports) -> int:
    gc.collect()
    return sum(imported() is not None for imported in imports)


def turn(x: torch.Tensor) -> list[float]:
    y = torch.linalg.qr(x * 2 + 1).R  # runs natively, so there are two regions
    return [(y * 3 - 1).sum().item(), (x + 5).tanh().sum().item()]


def test_a_steady_loop_imports_nothing(imports: Imports) -> None:
    x = torch.arange(12.0).reshape(3, 4).to("shark")
    expected = [turn(x) for _ in range(5)][-1]
    made = len(imports)
    assert made > 0
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    assert [turn(x) for _ in range(5)] == [expected] * 5
    assert torch.shark.metrics().regions >= 10
    assert len(imports) == made


def test_memory_that_changes_its_size_is_imported_anew(imports: Imports) -> None:
    def total(count: int) -> float:
        return (torch.ones(count, device="shark") * 2 + 1).sum().item()

    # Both are blocks of one size, and the second is the first's.
    assert [total(1000), total(1020), total(1000)] == [3000, 3060, 3000]
    made = len(imports)
    assert [total(1000), total(1000)] == [3000, 3000]
    assert len(imports) == made


def test_imports_go_with_the_cache(imports: Imports) -> None:
    y = double(imports, 1 << 20)
    held = torch.shark.memory_reserved()
    del y
    torch.shark.synchronize()
    assert alive(imports) > 0
    torch.shark.empty_cache()
    assert alive(imports) == 0
    assert torch.shark.memory_reserved() <= held - (4 << 20)


def test_imports_go_with_blocks_that_make_room(imports: Imports) -> None:
    y = double(imports, 1 << 20)
    del y
    torch.shark.synchronize()
    large = alive(imports)
    assert large > 0
    with config.scope(policy="native"):
        x = torch.ones(3 << 20, device="shark")  # takes the place of what is cached
    torch.shark.synchronize()
    z = x[:16] * 2 + 1  # whoever comes by drops what was forgotten
    torch.shark.synchronize()
    del z
    torch.shark.synchronize()
    assert alive(imports[:large]) == 0
    torch.testing.assert_close((x * 2).sum().item(), 2.0 * (3 << 20))


def test_memory_that_others_hold_keeps_no_import(imports: Imports) -> None:
    import numpy as np

    y = torch.ones(16, device="shark") * 2 + 1
    torch.shark.synchronize()
    array = np.from_dlpack(y)
    before = alive(imports)
    del y
    torch.shark.synchronize()
    assert array.tolist() == [3.0] * 16
    assert alive(imports) <= before
    z = torch.ones(16, device="shark") * 2 + 2
    torch.shark.synchronize()
    assert array.tolist() == [3.0] * 16
    assert z.tolist() == [4.0] * 16
