"""Pieces of one large tensor: the same program on each is compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from torch_shark import config

ROWS, BATCH = 48, 8


@pytest.fixture(autouse=True)
def iree() -> Iterator[None]:
    with config.scope(policy="iree"):
        yield
        torch.shark.synchronize()


def counted(program: Callable[[str], list[torch.Tensor]]) -> tuple[int, int]:
    """Run on both and compare; plans and compiles of the second run on the device."""
    expected = program("cpu")
    program("shark")
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    actual = program("shark")
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    counts = torch.shark.metrics()
    return counts.plans, counts.compiles


def each_piece(
    work: Callable[[torch.Tensor], torch.Tensor],
    columns: int = 16,
    dtype: torch.dtype = torch.float32,
) -> Callable[[str], list[torch.Tensor]]:
    table = (torch.arange(ROWS * columns) % 37).reshape(ROWS, columns).to(dtype)

    def program(device: str) -> list[torch.Tensor]:
        x = table.to(device)
        results = []
        for begin in range(0, ROWS, BATCH):
            results.append(work(x[begin : begin + BATCH]))
            if device == "shark":
                torch.shark.synchronize()
        return results

    return program


@pytest.mark.parametrize("columns", [16, 5])  # 5: pieces begin where executables cannot read
def test_batches(columns: int) -> None:
    program = each_piece(lambda x: (x * 2).tanh().sum(1), columns)
    torch.shark.reset_metrics()
    on_cpu, on_device = program("cpu"), program("shark")
    counts = torch.shark.metrics()
    for one, other in zip(on_device, on_cpu, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    assert counts.regions == ROWS // BATCH
    assert counts.plans <= 2
    assert counts.compiles <= 1


def test_rows() -> None:
    table = torch.arange(24.0).reshape(6, 4)
    x = table.to("shark")
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    for i in range(6):
        assert torch.equal((x[i] + 1).cpu(), table[i] + 1)
    assert torch.shark.metrics().compiles <= 1


def test_a_transposed_piece() -> None:
    assert counted(each_piece(lambda x: x.T @ x + x.sum())) == (0, 0)


def test_indices_that_are_cut_out_are_checked() -> None:
    values = torch.arange(10.0).to("shark")
    index = torch.tensor([1, 2, 3, 4, 5, 99]).to("shark")
    torch.shark.synchronize()
    assert values[index[1:3]].tolist() == [2, 3]
    assert values[index[3:5]].tolist() == [4, 5]
    with pytest.raises(IndexError):
        values[index[4:6]].tolist()


def test_two_pieces_in_one_window() -> None:
    table = torch.arange(24.0).reshape(6, 4)
    x = table.to("shark")
    for i in range(5):
        assert torch.equal((x[i] * x[i + 1]).cpu(), table[i] * table[i + 1])


def test_a_piece_that_is_written() -> None:
    table = torch.arange(24.0).reshape(6, 4)
    x = table.to("shark")
    for i in range(6):
        x[i].mul_(2).add_(x[i])
        torch.shark.synchronize()
    assert torch.equal(x.cpu(), table * 4)


def test_a_piece_of_another_dtype() -> None:
    table = torch.arange(24.0).reshape(6, 4)
    x = table.to("shark")
    for i in range(6):
        bits = x[i].view(torch.int32) & 0x7FFFFFFF
        assert torch.equal(bits.cpu(), table[i].view(torch.int32))


def test_a_piece_whose_memory_is_replaced_meanwhile() -> None:
    """The piece of one window is not that of the next: the storage has other memory then."""
    x = torch.zeros(6, 4, device="shark")
    for i in range(6):
        x = x + 1
        assert (x[i] * 2).tolist() == [2.0 * (i + 1)] * 4
