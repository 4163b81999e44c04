"""Cases 7, 8, 14 and 15: gradients of slice writes, version counters, dropout, checkpointing."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from torch_shark import config


def layer_and_input(d, features=6):
    layer = torch.nn.Linear(4, features)
    return layer.to(d), torch.rand(3, 4).to(d)


SLICES = {
    "y[:, :3] = 0": lambda y: y.__setitem__((slice(None), slice(3)), 0),
    "y[:, ::2] += 1": lambda y: y[:, ::2].add_(1),
    "y.t()[0] = 5": lambda y: y.t().__setitem__(0, 5),
    "y[0] = y[1]": lambda y: y.__setitem__(0, y[1].clone()),
    "mask index": lambda y: y.__setitem__(y.detach() > 0, 0),
    "index_put": lambda y: y.__setitem__(torch.tensor([0, 2], device=y.device), 3.0),
    "diagonal": lambda y: y.diagonal().zero_(),
}


@pytest.mark.parametrize("write", SLICES.values(), ids=SLICES)
def test_slice_write_reaches_the_gradients(run_both, write):
    def program(d):
        layer, x = layer_and_input(d)
        y = layer(x)
        write(y)
        (y * y).sum().backward()
        return y, layer.weight.grad, layer.bias.grad

    run_both(program)


def test_gradient_flows_into_what_was_written(run_both):
    def program(d):
        a = torch.arange(3.0).to(d).requires_grad_()
        y = torch.zeros(2, 3, device=d)
        y[1] = a * a
        y[0, 1:] = a[:2]
        torch.shark.synchronize()
        y.mul_(3).sum().backward()
        return y, a.grad

    run_both(program)


def test_second_gradient_through_a_view(run_both):
    def program(d):
        a = torch.arange(1.0, 7.0).view(2, 3).to(d).requires_grad_()
        (first,) = torch.autograd.grad((a.t()[1:] ** 3).sum(), a, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), a)
        return first, second

    run_both(program)


CHANGES = {
    "add_": lambda x: x.add_(1),
    "view": lambda x: x[0].mul_(2),
    "setitem": lambda x: x.__setitem__(0, 1.0),
    "copy_": lambda x: x.copy_(torch.ones(2, 2)),
    "out": lambda x: torch.mul(torch.ones_like(x), 2, out=x),
    "foreach": lambda x: torch._foreach_add_([x], 1),
    "detached": lambda x: x.detach().zero_(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("synced", [False, True], ids=["pending", "synced"])
def test_change_of_a_saved_tensor_is_noticed(policy, change, synced):
    def versions(d):
        w = torch.rand(2, 2).to(d).requires_grad_()
        x = torch.rand(2, 2).to(d)
        y = x @ w
        before = x._version
        if synced:
            torch.shark.synchronize()
        change(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        return x._version - before, x.t()._version - before

    assert versions("shark") == versions("cpu")


def test_leaf_that_needs_a_gradient_is_not_written(same_error):
    same_error(lambda d: torch.ones(2, device=d, requires_grad=True).add_(1))
    same_error(lambda d: torch.ones(2, device=d, requires_grad=True)[0].zero_())


RANDOM = {
    "dropout": lambda x: functional.dropout(x, 0.5),
    "dropout of a transpose": lambda x: functional.dropout(x.t(), 0.3),
    "alpha_dropout": lambda x: functional.alpha_dropout(x, 0.5, training=True),
    "dropout2d": lambda x: functional.dropout2d(x.view(1, 8, 4, 2), 0.5),
    "rand_like": lambda x: torch.rand_like(x),
    "bernoulli": lambda x: torch.bernoulli(x * 0.5),
    "randperm": lambda x: torch.randperm(20, device=x.device),
    "multinomial": lambda x: torch.multinomial(x, 5),
}


@pytest.mark.parametrize("draw", RANDOM.values(), ids=RANDOM)
def test_each_step_draws_anew_and_a_seed_repeats_it(run_both, draw):
    def program(d):
        x = torch.ones(8, 8, device=d)
        torch.manual_seed(3)
        first, second = draw(x), draw(x)
        torch.shark.synchronize()
        third = draw(x)
        torch.manual_seed(3)
        assert torch.equal(draw(x), first)
        assert not torch.equal(first, second)
        assert not torch.equal(second, third)
        return first, second, third

    run_both(program, compiled=False)


def test_dropout_in_a_training_loop_compiles_once(policy):
    layer = torch.nn.Linear(8, 8).to("shark")
    x = torch.ones(4, 8, device="shark")

    def step():
        layer.zero_grad()
        y = functional.dropout(torch.relu(layer(x)), 0.5)
        y.sum().backward()
        return y, y.detach().ne(0).cpu()

    torch.manual_seed(1)
    masks = [step()[1]]
    step()
    before = torch.shark.metrics()
    masks += [step()[1] for _ in range(4)]
    after = torch.shark.metrics()
    assert all(not torch.equal(a, b) for a, b in pairwise(masks))
    assert (after.compiles, after.plans) == (before.compiles, before.plans)
    assert after.native_steps["aten::bernoulli_.float"] == 6
    assert (after.regions > before.regions) == (policy == "iree")
    torch.manual_seed(1)
    assert torch.equal(step()[1], masks[0])


class Block(torch.nn.Module):
    """A layer whose activations are larger than its parameters, with dropout."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    def forward(self, x):
        return functional.dropout(torch.tanh(self.layer(x)), 0.25)


def checkpointed(d, rows, depth, reentrant):
    """Output and gradients of a chain of blocks; `reentrant` None keeps all activations."""
    torch.manual_seed(5)
    blocks = torch.nn.ModuleList([Block() for _ in range(depth)]).to(d)
    x = torch.rand(rows, 16).to(d).requires_grad_()
    torch.manual_seed(6)
    y = x
    for block in blocks:
        if reentrant is None:
            y = block(y)
        else:
            y = checkpoint(block, y, use_reentrant=reentrant)
    y.square().sum().backward()
    return y, x.grad, *(p.grad for p in blocks.parameters())


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "plain"])
def test_recomputation_draws_the_same_mask(run_both, reentrant):
    run_both(lambda d: checkpointed(d, 4, 3, reentrant))
    kept = checkpointed("shark", 4, 3, None)
    again = checkpointed("shark", 4, 3, reentrant)
    for one, other in zip(kept, again, strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu())


def peak_of(work):
    work()  # once for the oracle and the compiler
    torch.shark.reset_peak_memory_stats()
    before = torch.shark.memory_allocated()
    results = work()  # held until they are computed: what nobody can read need not run
    peak = torch.shark.max_memory_allocated() - before
    del results
    return peak


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "plain"])
def test_checkpointing_lowers_the_peak_of_memory(policy, reentrant):
    # Against what eager code keeps: compiled regions keep about as little without checkpointing.
    with config.scope(policy="native"):
        kept = peak_of(lambda: checkpointed("shark", 8192, 4, None))
    lower = peak_of(lambda: checkpointed("shark", 8192, 4, reentrant))
    assert lower < 0.75 * kept
