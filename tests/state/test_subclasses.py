"""Tensor subclasses over tensors of the device."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_map_only


class Named(torch.Tensor):
    """Acts by __torch_function__: keeps its class, counts what is called."""

    calls = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Named.calls += 1
        return super().__torch_function__(function, types, args, kwargs or {})


class Wrapper(torch.Tensor):
    """Acts by __torch_dispatch__: holds a tensor of the device and has its metadata."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device,
            requires_grad=inner.requires_grad,
        )  # fmt: skip

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def open_(x):
            return x.inner

        out = function(
            *tree_map_only(Wrapper, open_, args), **tree_map_only(Wrapper, open_, kwargs or {})
        )
        out = tree_map_only(torch.Tensor, Wrapper, out)
        return return_and_correct_aliasing(function, args, kwargs or {}, out)


def test_function_subclass(run_both):
    def program(d):
        x = torch.arange(4.0).to(d).as_subclass(Named)
        y = (x * 2).sin() + 1
        assert isinstance(y, Named)
        assert isinstance(y[1:], Named)
        return y.as_subclass(torch.Tensor)

    before = Named.calls
    run_both(program)
    assert Named.calls > before


def test_function_subclass_moves_between_devices(native):
    x = torch.arange(4.0).as_subclass(Named).to("shark")
    assert isinstance(x, Named)
    assert x.is_shark
    assert isinstance(x.cpu(), Named)
    p = torch.nn.Parameter(x)
    assert isinstance(p, Named)
    (p * 3).sum().backward()
    assert p.grad.tolist() == [3.0] * 4


def test_dispatch_subclass(run_both):
    def program(d):
        inner = torch.arange(6.0).view(2, 3).to(d)
        x = Wrapper(inner.clone())
        x.mul_(2).t()[0].add_(1)
        y = torch.nn.functional.gelu(x @ x.t())
        assert isinstance(y, Wrapper)
        assert y.device.type == d
        return x.inner, y.inner

    run_both(program)


def test_dispatch_subclass_has_gradients(native):
    results = []
    for d in ("cpu", "shark"):
        x = Wrapper(torch.arange(4.0).to(d)).requires_grad_()
        (x * x).sum().backward()
        assert isinstance(x.grad, Wrapper)
        results.append(x.grad.inner.cpu())
    assert torch.equal(*results)


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


class CountingFunctions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Counting, CountingFunctions])
def test_modes_see_the_calls_that_they_see_on_the_cpu(native, mode):
    seen = []
    for d in ("cpu", "shark"):
        x = torch.arange(4.0, device=d).requires_grad_()
        with mode() as counting:
            y = (x * 2).relu().sum()
            y.backward()
        seen.append(counting.seen)
        assert x.grad.tolist() == [0.0, 2.0, 2.0, 2.0]
    assert seen[0] == seen[1]
    assert seen[0]
