"""Derivatives of derivatives: the same sums in the same order as the CPU's."""

import pytest
import torch
from torch.nn import functional

pytestmark = pytest.mark.parametrize(
    "policy", ["native", pytest.param("iree", marks=pytest.mark.slow)], indirect=True
)


def leaf(d: str, *shape: int) -> torch.Tensor:
    return torch.linspace(-1, 2, torch.Size(shape).numel()).reshape(shape).to(d).requires_grad_()


def test_sums_of_a_second_backward_are_added_in_the_cpus_order(run_both, policy):
    """Gradients that meet are added in the order in which their nodes were made."""

    def program(d):
        torch.manual_seed(0)
        x = torch.randn(20, 5).to(d).requires_grad_()
        y = functional.rms_norm(x, (5,), eps=1e-6) * x.exp()
        (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        if policy == "iree":  # each further one makes the rounding some ten times larger
            return first
        (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        return first, second, torch.autograd.grad(second.square().sum(), x)[0]

    run_both(program)


def test_penalty_of_a_gradient(run_both):
    def program(d):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
        model = model.to(d)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
        x = leaf(d, 5, 4)
        losses = []
        for _ in range(3):
            y = model(x)
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            loss = y.square().mean() + (slope.norm(dim=1) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, list(model.parameters())

    run_both(program)


def test_graph_is_kept_for_another_backward(run_both, same_error):
    def program(d):
        x = leaf(d, 3, 2)
        y = (x.exp() * x).sum()
        y.backward(retain_graph=True)
        y.backward(retain_graph=True)
        y.backward()
        return x.grad

    run_both(program)

    def twice(d):
        y = leaf(d, 3).exp().sum()
        y.backward()
        y.backward()

    same_error(twice)


def test_gradients_accumulate_over_small_batches(run_both):
    def program(d):
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 3).to(d)
        x = leaf(d, 8, 4).detach()
        for part in x.chunk(4):
            (layer(part).square().sum() / 4).backward()
        kept = [p.grad for p in layer.parameters()]
        layer.zero_grad(set_to_none=False)
        layer(x).sum().backward(inputs=[layer.weight])
        assert kept[0] is layer.weight.grad
        return [p.grad for p in layer.parameters()]

    run_both(program)


def test_gradient_in_another_layout(run_both):
    def program(d):
        x = leaf(d, 2, 3, 4, 4)
        weight = leaf(d, 5, 3, 3, 3)
        last = x.contiguous(memory_format=torch.channels_last)
        functional.conv2d(last, weight, padding=1).square().sum().backward()
        return x.grad, weight.grad

    run_both(program)


def test_engine_in_the_threads_of_the_caller(run_both):
    def program(d):
        x = leaf(d, 3)
        with torch.autograd.set_multithreading_enabled(False):
            (first,) = torch.autograd.grad(x.exp().sum(), x, create_graph=True)
            first.sum().backward()
        return first, x.grad

    run_both(program)


class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = (ctx.x.exp() * ctx.x).sum(0)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, gradient):
        ctx.y.backward(gradient, retain_graph=True)
        return ctx.x.grad


def test_backward_within_a_backward(run_both):
    def program(d):
        x = leaf(d, 4, 2)
        Nested.apply(Nested.apply(x * 0.5).expand(3, 2) * 0.1).sum().backward()
        return x.grad

    run_both(program)
