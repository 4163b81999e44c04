"""Under deterministic algorithms, memory that nothing was written to holds what the CPU's does."""

from collections.abc import Iterator

import pytest
import torch

from tests.conftest import same


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int64,
          torch.bool, torch.complex64]  # fmt: skip


def resized(device, dtype):
    x = torch.zeros(2, dtype=dtype, device=device)
    return [x.resize_(size).clone() for size in (6, 2, 7)]


EMPTY = {
    "empty": lambda d, t: torch.empty(2, 3, dtype=t, device=d),
    "none": lambda d, t: torch.empty(0, 3, dtype=t, device=d),
    "channels last": lambda d, t: torch.empty(
        1, 2, 3, 2, dtype=t, device=d, memory_format=torch.channels_last
    ),
    "empty_strided": lambda d, t: torch.empty_strided((2, 3), (1, 2), dtype=t, device=d),
    "empty_like": lambda d, t: torch.empty_like(torch.zeros(3, dtype=t, device=d)),
    "new_empty": lambda d, t: torch.zeros(3, dtype=t, device=d).new_empty(2),
    "resize_": resized,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("make", EMPTY.values(), ids=EMPTY)
def test_uninitialized_memory_is_filled_as_on_the_cpu(native, make, dtype):
    same(make("shark", dtype), make("cpu", dtype), exact=True)


def test_filling_can_be_turned_off(native, monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    before = torch.shark.metrics().recorded
    torch.empty(3, device="shark").resize_(5)
    torch.empty_strided((2, 2), (1, 2), device="shark")
    assert torch.shark.metrics().recorded == before


def test_copies_are_not_overwritten(policy):
    host = torch.arange(24.0).view(4, 6)[:, ::2]
    x = torch.empty(4, 3, device="shark")
    x.copy_(host)
    assert torch.equal(x.cpu(), host)
    assert torch.equal(host.to("shark").cpu(), host)
    y = torch.zeros(4, 3, device="shark")
    y.copy_(host)
    assert torch.equal((y + 1).cpu(), host + 1)
