"""What the recorder foretells of an operator's results, where it was once wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from compare import difference
from torch.nn import functional

from torch_shark import config
from torch_shark.metrics import Metrics


@pytest.fixture(autouse=True)
def native_policy() -> Iterator[None]:
    with config.scope(policy="native"):
        yield
        torch.shark.synchronize()


def run_twice(program: Callable[[str], Any]) -> Metrics:
    """Compare two runs on the device with the CPU's; return the second run's counters."""
    expected = program("cpu")
    for _ in range(2):
        torch.shark.synchronize()
        torch.shark.reset_metrics()
        actual = program("shark")
        torch.shark.synchronize()
        counts = torch.shark.metrics()
        assert difference(expected, actual) is None
    return counts


def test_zeros_without_memory_become_a_gradient() -> None:
    def program(device: str) -> Any:
        x = torch.tensor([-2.0, 0.0, 3.0], device=device, requires_grad=True)
        return torch.autograd.grad(x.sgn().sum(), x)

    assert run_twice(program).recorded > 0


def test_zeros_without_memory_behave_as_on_the_cpu() -> None:
    def program(device: str) -> Any:
        zeros = torch._efficientzerotensor(2, 3, device=device)
        host = torch.full((2, 3), torch.inf).to(device)
        return zeros.clone(), host + zeros, host * zeros, zeros.t().clone(), host.copy_(zeros)

    run_twice(program)
    zeros = torch._efficientzerotensor(2, device="shark")
    assert zeros._is_zerotensor()
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        zeros.copy_(torch.ones(2, device="shark"))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_outputs_in_a_list_are_resized() -> None:
    def program(device: str) -> Any:
        x = torch.arange(6.0, device=device).reshape(2, 3)
        rows = [torch.empty(0, device=device) for _ in range(2)]
        torch.unbind_copy(x, out=rows)
        columns = [torch.empty(0, device=device) for _ in range(2)]
        torch.split_with_sizes_copy(x, [1, 2], dim=1, out=columns)
        return rows, columns

    counts = run_twice(program)
    assert counts.native_steps["aten::unbind_copy.int_out"] == 1
    assert counts.native_steps["aten::split_with_sizes_copy.out"] == 1


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_operand_resized_in_place_is_read_first() -> None:
    def program(device: str) -> Any:
        a = torch.arange(12.0, device=device).reshape(2, 2, 3)
        return torch.tensor([-8.0], device=device).addbmm_(a, a.transpose(1, 2))

    assert run_twice(program).native_steps["aten::addbmm_"] == 1


@pytest.mark.parametrize("transposed", [False, True])
def test_attention_is_laid_out_as_its_query(transposed: bool) -> None:
    torch.manual_seed(0)
    host = [torch.randn(2, 4, 3, 8) for _ in range(3)]

    def program(device: str) -> Any:
        tensors = [tensor.to(device) for tensor in host]
        if transposed:
            tensors = [tensor.transpose(1, 2) for tensor in tensors]
        return functional.scaled_dot_product_attention(*tensors)

    counts = run_twice(program)
    assert counts.recorded == 1
    assert counts.native_steps["aten::_scaled_dot_product_flash_attention_for_cpu"] == 1


@pytest.mark.parametrize("strided", [False, True])
def test_a_wrong_word_raises_at_the_call(strided: bool) -> None:
    x = torch.randn(6, device="shark")[:: 2 if strided else 1]
    functional.gelu(x, approximate="tanh")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="approximate argument must be"):
            functional.gelu(x, approximate="cubic")
        with pytest.raises(RuntimeError, match="Expected reduce to be one of"):
            x.index_reduce(0, torch.zeros(x.shape, dtype=torch.int64, device="shark"), x, "most")
    torch.shark.synchronize()
    assert run_twice(lambda device: functional.gelu(torch.ones(3, device=device))).recorded > 0


@pytest.mark.parametrize("shape", [(2, 3), (2, 1, 3), (2, 3, 1, 1), (1, 3), (0, 3)])
def test_plain_arithmetic_keeps_odd_strides(shape: tuple[int, ...]) -> None:
    def program(device: str) -> Any:
        strides = [7 if size == 1 else torch.empty(shape).stride(i) for i, size in enumerate(shape)]
        x = torch.arange(64.0, device=device).as_strided(shape, strides)
        return x + 1, x * x, x / 2.0, x - x.sigmoid(), -x

    assert run_twice(program).recorded >= 6


def test_a_lazy_conjugate_is_foretold() -> None:
    def program(device: str) -> Any:
        x = torch.tensor([1 + 2j, 3 - 1j], device=device)
        return torch.vdot(x.conj(), x.conj()), torch.vdot(x, x.conj()) * 2, torch.vdot(x.conj(), x)

    counts = run_twice(program)
    assert counts.recorded == sum(counts.native_steps.values())


REFUSED_NUMBERS: dict[str, tuple[Callable[[torch.Tensor, float], Any], float, float]] = {
    # call, a number that it takes, one that it refuses
    "bernoulli_": (lambda x, p: x.bernoulli_(p), 0.5, 1.5),
    "cauchy_": (lambda x, sigma: x.cauchy_(0.0, sigma), 1.0, -1.0),
    "cdist": (lambda x, p: torch.cdist(x, x, p=p), 3.0, -3.0),
    "exponential_": (lambda x, rate: x.exponential_(rate), 1.0, -1.0),
    "geometric_": (lambda x, p: x.geometric_(p), 0.5, 1.5),
    "huber_loss": (lambda x, delta: functional.huber_loss(x, x + 1, delta=delta), 1.0, -1.0),
    "log_normal_": (lambda x, std: x.log_normal_(0.0, std), 1.0, -1.0),
    "normal_": (lambda x, std: x.normal_(0.0, std), 1.0, -1.0),
    "renorm": (lambda x, most: torch.renorm(x, 2, 0, most), 1.0, -1.0),
    "rrelu": (lambda x, low: functional.rrelu(x, low, 1.0, training=True), 0.5, 1.5),
    "smooth_l1_loss": (lambda x, beta: functional.smooth_l1_loss(x, x + 1, beta=beta), 1.0, -1.0),
    "softshrink": (lambda x, size: functional.softshrink(x, size), 0.5, -0.5),
    "uniform_": (lambda x, most: x.uniform_(0.0, most), 1.0, -1.0),
}


@pytest.mark.parametrize("name", REFUSED_NUMBERS)
def test_a_refused_number_raises_at_the_call(name: str) -> None:
    function, right, wrong = REFUSED_NUMBERS[name]
    with pytest.raises(Exception) as expected:  # noqa: PT011 (it is the CPU's)
        function(torch.ones(3, 4), wrong)
    x = torch.ones(3, 4, device="shark")
    for _ in range(2):
        function(x, right)
    with pytest.raises(expected.type) as caught:
        function(x, wrong)
    assert str(caught.value) == str(expected.value)
    torch.shark.synchronize()
