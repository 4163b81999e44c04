"""torch.utils.checkpoint: both kinds, with random numbers, nested, in sequence, selective."""

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

pytestmark = pytest.mark.parametrize(
    "policy", ["native", pytest.param("iree", marks=pytest.mark.slow)], indirect=True
)
KINDS = pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "plain"])


def leaf(d: str, *shape: int) -> torch.Tensor:
    return torch.linspace(-1, 2, torch.Size(shape).numel()).reshape(shape).to(d).requires_grad_()


def noisy(x: torch.Tensor) -> torch.Tensor:
    y = functional.dropout(x.sin(), 0.5)
    return y * torch.rand_like(y) + torch.randn(y.shape[-1], device=y.device)


@KINDS
@pytest.mark.parametrize("synced", [False, True], ids=["pending", "synced"])
def test_recomputation_draws_the_numbers_again(run_both, reentrant, synced):
    def program(d):
        x = leaf(d, 6, 5)
        y = x
        for _ in range(3):
            y = checkpoint(noisy, y, use_reentrant=reentrant)
            after = torch.rand(2, device=d)
            if synced:
                torch.shark.synchronize()
        state = torch.rand(2, device=d)
        y.square().sum().backward()
        return y, x.grad, after, state, torch.rand(2, device=d)

    run_both(program)


@KINDS
def test_recomputation_that_keeps_no_state_draws_on(run_both, reentrant):
    def program(d):
        x = leaf(d, 6, 5)
        y = checkpoint(noisy, x, use_reentrant=reentrant, preserve_rng_state=False)
        y.sum().backward()
        return y, x.grad, torch.rand(2, device=d)

    run_both(program)


@KINDS
def test_module_in_segments(run_both, reentrant):
    def program(d):
        torch.manual_seed(0)
        layers = [torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Dropout(0.3)) for _ in "1234"]
        model = torch.nn.Sequential(*layers).to(d)
        torch.manual_seed(1)
        x = leaf(d, 3, 5)
        y = checkpoint_sequential(model, 2, x, use_reentrant=reentrant)
        y.square().sum().backward()
        return y, x.grad, [p.grad for p in model.parameters()]

    run_both(program)


def test_nested(run_both):
    def inner(x):
        return noisy(x) + x

    def outer(x):
        return checkpoint(inner, x.exp(), use_reentrant=False).tanh()

    def program(d):
        x = leaf(d, 4, 3)
        with set_checkpoint_early_stop(False):
            y = checkpoint(outer, x, use_reentrant=False)
        y.sum().backward()
        return y, x.grad

    run_both(program)


def test_second_derivative(run_both):
    def program(d):
        x = leaf(d, 4, 3)
        y = checkpoint(lambda x: noisy(x).exp(), x, use_reentrant=False)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        return first, second

    run_both(program)


def test_products_alone_are_saved(run_both):
    products = [torch.ops.aten.mm.default]

    def keep(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE

    def program(d):
        x, w = leaf(d, 4, 3), leaf(d, 3, 3)
        y = checkpoint(
            lambda x, w: noisy((x @ w).tanh() @ w),
            x,
            w,
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(keep),
        )
        y.sum().backward()
        return y, x.grad, w.grad

    run_both(program)


def test_recomputation_that_differs_is_noticed(same_error):
    def program(d):
        calls = []

        def fickle(x):
            calls.append(None)
            return x.exp() if len(calls) > 1 else x.exp().sin()

        x = leaf(d, 3)
        checkpoint(fickle, x, use_reentrant=False).sum().backward()

    same_error(program)
