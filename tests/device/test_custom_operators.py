"""Operators that a program defines by torch.library: a kernel of the CPU is enough."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.library import Library, custom_op, opcheck

ran_on = []


@custom_op("shark_tests::scaled", mutates_args=(), device_types="cpu")
def scaled(x: Tensor, factor: float) -> Tensor:
    ran_on.append((x.device.type, x.data_ptr()))
    return torch.from_numpy(x.numpy() * np.float32(factor))


@custom_op("shark_tests::known", mutates_args=(), device_types="cpu")
def known(x: Tensor, y: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return x + 1, (x if y is None else y).sum(0)


@known.register_fake
def _(x, y=None):
    return torch.empty_like(x), x.new_empty(x.shape[1:])


@custom_op("shark_tests::add_one_", mutates_args={"x"}, device_types="cpu")
def add_one_(x: Tensor) -> None:
    x.numpy()[...] += 1


@custom_op("shark_tests::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return x * x * x


cube.register_fake(torch.empty_like)
cube.register_autograd(
    lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@custom_op("shark_tests::sine", mutates_args=(), device_types="cpu")
def sine(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


sine.register_fake(torch.empty_like)
sine.register_autograd(
    lambda ctx, grad: grad * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)

library = Library("shark_tests", "FRAGMENT")
library.define("plain(Tensor x) -> Tensor")
library.impl("plain", lambda x: x.sin() + 1, "CPU")
library.define("composite(Tensor x) -> Tensor")
library.impl("composite", lambda x: x.sin() + 1, "CompositeImplicitAutograd")
library.define("ours(Tensor x) -> Tensor")
library.impl("ours", lambda x: x + 10, "PrivateUse1")
library.impl("ours", lambda x: x + 20, "CPU")
library.define("nothing(Tensor x) -> Tensor")


def test_kernel_of_the_cpu_reads_the_devices_memory(run_both):
    def program(d):
        return scaled(torch.arange(4.0, device=d) + 1, 3.0) * 2

    ran_on.clear()
    run_both(program)
    assert {device for device, _ in ran_on} == {"cpu"}


def test_second_call_is_recorded(policy):
    x = torch.arange(4.0, device="shark") + 1
    for factor in (1.0, 2.0):  # with new metadata, the first call runs at once
        y = scaled(x, factor)
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    ran_on.clear()
    y = scaled(x, 3.0)
    assert ran_on == []
    assert y.tolist() == [3.0, 6.0, 9.0, 12.0]
    assert len(ran_on) == 1
    assert torch.shark.metrics().native_steps["shark_tests::scaled"] == 1


def test_several_results_and_optional_arguments(run_both):
    def program(d):
        x = torch.arange(6.0, device=d).view(2, 3)
        return known(x), known(x * 2, x.clone())

    run_both(program)


def test_in_place_through_a_view(run_both):
    def program(d):
        x = torch.zeros(2, 3, device=d)
        add_one_(x[:, 1])
        y = x * 2
        add_one_(x.t()[1])
        return x, y

    run_both(program)


@pytest.mark.parametrize("operator", [cube, sine])
def test_gradients_of_its_own(run_both, operator):
    def program(d):
        x = torch.arange(1.0, 4.0).to(d).requires_grad_()
        y = operator(x)
        y.sum().backward()
        return y, x.grad

    run_both(program)


@pytest.mark.parametrize("name", ["plain", "composite"])
def test_library_with_kernels(run_both, name):
    def program(d):
        return getattr(torch.ops.shark_tests, name)(torch.arange(3.0).to(d))

    run_both(program, compiled=name == "composite")


def test_kernel_for_the_device_is_preferred(native):
    assert torch.ops.shark_tests.ours(torch.ones(1, device="shark")).tolist() == [11.0]
    assert torch.ops.shark_tests.ours(torch.ones(1)).tolist() == [21.0]


def test_operator_without_a_kernel_says_so(native):
    with pytest.raises(NotImplementedError, match="Could not run 'shark_tests::nothing'"):
        torch.ops.shark_tests.nothing(torch.ones(1, device="shark"))


def test_error_of_a_kernel_is_raised(native):
    @custom_op("shark_tests::fails", mutates_args=(), device_types="cpu")
    def fails(x: Tensor) -> Tensor:
        raise ValueError("it does not like this")

    with pytest.raises(ValueError, match="it does not like this"):
        fails(torch.ones(1, device="shark"))
    assert (torch.ones(1, device="shark") + 1).tolist() == [2.0]


def test_pytorchs_own_checks_of_operators(native):
    x = torch.arange(1.0, 4.0, device="shark", requires_grad=True)
    # One more, test_autograd_registration, knows no devices but the CPU, CUDA and XPU.
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    assert set(opcheck(sine, (x,), test_utils=checks).values()) == {"SUCCESS"}
    assert set(opcheck(known, (torch.ones(2, 3, device="shark"),)).values()) == {"SUCCESS"}


def test_vmap_of_its_own(native):
    @custom_op("shark_tests::twice", mutates_args=(), device_types="cpu")
    def twice(x: Tensor) -> Tensor:
        return x * 2

    twice.register_vmap(lambda info, in_dims, x: (twice(x), in_dims[0]))
    x = torch.arange(6.0, device="shark").view(2, 3)
    assert torch.func.vmap(twice)(x).tolist() == (x * 2).tolist()
