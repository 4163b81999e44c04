"""Hooks of tensors, nodes and modules; what is saved for backward, and where."""

from typing import Any

import pytest
import torch
from torch.autograd.graph import (
    Node,
    disable_saved_tensors_hooks,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)

pytestmark = pytest.mark.parametrize(
    "policy", ["native", pytest.param("iree", marks=pytest.mark.slow)], indirect=True
)


def leaf(d: str, *shape: int) -> torch.Tensor:
    return torch.linspace(-1, 2, torch.Size(shape).numel()).reshape(shape).to(d).requires_grad_()


def test_hook_of_a_tensor_changes_the_gradient(run_both):
    def program(d):
        seen = []
        x = leaf(d, 3, 2)
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        removed = y.register_hook(lambda grad: grad * 100)
        removed.remove()
        y.register_hook(lambda grad: seen.append(grad.clone()))
        y.retain_grad()
        x.register_hook(lambda grad: grad + 1)
        (y * y).sum().backward()
        return x.grad, y.grad, seen

    run_both(program)


def test_hook_after_accumulation_sees_the_sum(run_both):
    def program(d):
        seen = []
        x = leaf(d, 4)

        def take(tensor: torch.Tensor) -> None:
            seen.append(tensor.grad.clone())
            tensor.grad = None

        x.register_post_accumulate_grad_hook(take)
        for _ in range(2):
            ((x * x).sum() + x.sum()).backward()
            assert x.grad is None
        return seen

    run_both(program)


def test_optimizer_step_in_the_backward(run_both):
    def program(d):
        layer = torch.nn.Linear(3, 2).to(d)
        optimizers = {p: torch.optim.SGD([p], 0.1, foreach=False) for p in layer.parameters()}

        def step(p: torch.Tensor) -> None:
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in layer.parameters():
            p.register_post_accumulate_grad_hook(step)
        for _ in range(3):
            layer(leaf(d, 4, 3)).square().sum().backward()
        return list(layer.parameters()), [p.grad for p in layer.parameters()]

    run_both(program)


def test_hooks_of_nodes(run_both):
    def program(d):
        seen: list[Any] = []
        x = leaf(d, 3)
        y = (x * 2).exp()
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
        y.grad_fn.register_hook(lambda inputs, outputs: seen.extend([*inputs, *outputs]))
        y.sum().backward()
        return x.grad, seen

    run_both(program)


@pytest.mark.parametrize("mode", ["all", "any"])
def test_hook_of_several_gradients(run_both, mode):
    def program(d):
        seen = []
        x, y, z = leaf(d, 2), leaf(d, 3), leaf(d, 4)

        def note(grads: Any) -> None:
            grads = grads if mode == "all" else [grads]
            seen.append([grad.clone() for grad in grads if grad is not None])

        register_multi_grad_hook((x, y), note, mode=mode)
        (x.square().sum() + z.sum()).backward()
        (x.square().sum() * y.sum()).backward()
        return seen

    run_both(program)


def test_hooks_of_modules(run_both):
    def program(d):
        seen: list[Any] = []
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        model = model.to(d)
        model.register_forward_pre_hook(lambda _, args: (args[0] + 1,))
        model[0].register_forward_hook(lambda module, args, out: out * 2)
        model[1].register_full_backward_pre_hook(lambda module, grads: (grads[0] * 3,))
        model[1].register_full_backward_hook(
            lambda module, inputs, outputs: seen.extend([*inputs, *outputs])
        )
        model[2].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 0.5,))
        x = leaf(d, 5, 3)
        y = model(x)
        y.square().sum().backward()
        return y, seen, x.grad, [p.grad for p in model.parameters()]

    run_both(program)


def test_saved_tensors_are_packed_and_unpacked(run_both):
    def program(d):
        packed = []

        def pack(tensor: torch.Tensor) -> Any:
            packed.append(tuple(tensor.shape))
            return tensor.dtype, tensor.detach().half()

        x = leaf(d, 4, 3)
        with saved_tensors_hooks(pack, lambda saved: saved[1].to(saved[0])):
            y = (x.exp() * x).sum()
        y.backward()
        return x.grad, packed

    run_both(program)


def test_saved_tensors_wait_on_the_cpu(run_both):
    def program(d):
        x, w = leaf(d, 4, 3), leaf(d, 3, 5)
        with save_on_cpu():
            y = (x @ w).sigmoid().square().sum()
        places = {saved.device.type for saved in saved_of(y.grad_fn)}
        y.backward()
        assert places == {d}
        return x.grad, w.grad

    run_both(program)


def saved_of(node: Node) -> list[torch.Tensor]:
    return [
        getattr(node, name)
        for name in dir(node)
        if name.startswith("_saved_") and isinstance(getattr(node, name), torch.Tensor)
    ] or [saved for following, _ in node.next_functions for saved in saved_of(following)]


def test_saving_on_the_cpu_frees_the_device(policy):
    if policy == "iree":
        return  # compiled regions keep what they please

    def kept(*, on_cpu: bool) -> int:
        x = torch.ones(1 << 18, device="shark", requires_grad=True)
        before = torch.shark.memory_allocated()
        if on_cpu:
            with save_on_cpu(pin_memory=True):
                y = x.exp().exp().exp().sum()
        else:
            y = x.exp().exp().exp().sum()
        grown = torch.shark.memory_allocated() - before
        y.backward()
        assert x.grad is not None
        return grown

    assert kept(on_cpu=False) >= 3 << 20
    assert kept(on_cpu=True) < 1 << 20


def test_saving_can_be_forbidden_to_hooks(same_error):
    def program(d):
        with disable_saved_tensors_hooks("not here"), saved_tensors_hooks(lambda x: x, lambda x: x):
            leaf(d, 2).exp()

    same_error(program)
