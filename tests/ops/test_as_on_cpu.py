"""Where PyTorch does otherwise for other devices than for the CPU, the device does as the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from compare import difference
from torch.nn import functional

from torch_shark import config


@pytest.fixture(autouse=True)
def native_policy() -> Iterator[None]:
    with config.scope(policy="native"):
        yield
        torch.shark.synchronize()


def assert_same(program: Callable[[str], Any]) -> None:
    """Compare the program's results on both devices, when its operators are new and when known."""
    torch.manual_seed(0)
    expected = program("cpu")
    for _ in range(2):
        torch.manual_seed(0)
        torch.default_generator.manual_seed(1)  # nothing of the device draws from the CPU's
        actual = program("shark")
        torch.shark.synchronize()
        assert difference(expected, actual) is None


@pytest.mark.parametrize("train", [True, False, None])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_native_dropout_draws_from_the_devices_generator(p: float, train: bool | None) -> None:
    x = torch.randn(4, 5)
    assert_same(lambda device: torch.native_dropout(x.to(device), p, train))


def test_dropout_under_vmap_takes_as_many_numbers() -> None:
    x = torch.randn(4, 5, 6)

    def program(device: str) -> Any:
        drop = torch.vmap(lambda row: functional.dropout(row, 0.5), randomness="different")
        return drop(x.to(device)), torch.rand(3, device=device)

    assert_same(program)


@pytest.mark.parametrize(
    "draw",
    [
        lambda out: torch.rand(3, 4, out=out),
        lambda out: torch.randn(3, 4, out=out),
        lambda out: torch.randint(10, (3, 4), out=out),
        lambda out: torch.ops.aten.rand_like.out(torch.empty_like(out), out=out),
    ],
)
def test_random_numbers_for_an_output_are_the_devices(draw: Callable[..., Any]) -> None:
    assert_same(lambda device: draw(torch.empty(3, 4, device=device)))


def test_gradients_of_several_roots_are_added_in_the_cpus_order() -> None:
    numbers = torch.randn(10, 5, dtype=torch.float64)

    def program(device: str) -> Any:
        x = numbers.to(device).requires_grad_()
        scale = torch.tensor(1.7, dtype=torch.float64, device=device, requires_grad=True)
        roots = torch.autograd.grad((x * x).pow(scale).sum(), [x, scale], create_graph=True)
        return torch.autograd.grad(roots, [x, scale], [torch.ones_like(root) for root in roots])

    for _ in range(5):
        assert_same(program)


def test_backward_runs_on_the_thread_that_calls_it() -> None:
    threads = []
    x = torch.ones(3, device="shark", requires_grad=True)
    x.register_hook(lambda gradient: threads.append(threading.get_ident()))
    (x * 2).sum().backward()
    assert threads == [threading.get_ident()]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cross_entropy_is_chunked_as_on_the_cpu(dtype: torch.dtype) -> None:
    if not hasattr(torch.nn, "LinearCrossEntropyOptions"):
        pytest.skip("this torch has none")
    torch.manual_seed(0)
    x, weight = torch.randn(16, 8).to(dtype), torch.randn(32, 8).to(dtype)
    target = torch.randint(32, (16,))

    def program(device: str) -> Any:
        options = torch.nn.LinearCrossEntropyOptions()
        arguments = (x.to(device), weight.to(device), target.to(device))
        return functional.linear_cross_entropy(*arguments, options=options)

    assert_same(program)
