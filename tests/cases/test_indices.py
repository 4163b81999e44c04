"""Cases 11, 12 and 25: repeated indices, empty tensors, and indices out of range."""

import pytest
import torch
from torch.nn import functional

ACCUMULATING = {
    "index_put_": lambda x, i, v: x.index_put_((i,), v, accumulate=True),
    "index_add_": lambda x, i, v: x.index_add_(0, i, v),
    "index_add_ alpha": lambda x, i, v: x.index_add_(0, i, v, alpha=-2),
    "scatter_add_": lambda x, i, v: x.scatter_add_(0, i, v),
    "negative": lambda x, i, v: x.index_put_((i - 3,), v, accumulate=True),
    "put_": lambda x, i, v: x.put_(i, v, accumulate=True),
    "into a view": lambda x, i, v: (
        x.expand(2, 3).contiguous()[1].index_put_((i,), v, accumulate=True)
    ),
}


@pytest.mark.parametrize("add", ACCUMULATING.values(), ids=ACCUMULATING)
def test_repeated_indices_accumulate(run_both, add):
    def program(d):
        x = torch.zeros(3, device=d)
        return add(x, torch.tensor([0, 0], device=d), torch.ones(2, device=d)), x

    run_both(program)


def test_repeated_indices_accumulate_in_integers_and_rows(run_both):
    def program(d):
        n = torch.zeros(3, dtype=torch.int64, device=d)
        rows = torch.zeros(3, 2, device=d)
        i, j = torch.tensor([0, 2, 0], device=d), torch.tensor([1, 1, 1], device=d)
        n.index_put_((i,), torch.tensor([1, 2, 3], device=d), accumulate=True)
        rows.index_put_((i, j), torch.tensor([1.0, 2.0, 3.0], device=d), accumulate=True)
        return n, rows

    run_both(program)


def test_gradient_of_repeated_rows_accumulates(run_both):
    def program(d):
        table = torch.arange(12.0).view(4, 3).to(d).requires_grad_()
        i = torch.tensor([1, 3, 1, 1], device=d)
        (functional.embedding(i, table) * 2).sum().backward()
        (table[i] * 3).sum().backward()
        return table.grad

    run_both(program)


EMPTY = {
    "empty slice": lambda d: torch.randn(2, 3, 4).to(d)[:, 1:1],
    "cummax": lambda d: tuple(torch.cummax(torch.rand(0, device=d), -1)),
    "baddbmm of K = 0": lambda d: torch.baddbmm(
        torch.ones(2, 3, 4, device=d),
        torch.zeros(2, 3, 0, device=d),
        torch.zeros(2, 0, 4, device=d),
        beta=0.5,
    ),
    "addmm of K = 0": lambda d: torch.addmm(
        torch.ones(3, device=d), torch.zeros(2, 0, device=d), torch.zeros(0, 3, device=d), beta=2
    ),
    "mm of K = 0": lambda d: torch.zeros(2, 0, device=d) @ torch.zeros(0, 3, device=d) + 1,
    "sum": lambda d: (torch.zeros(0, device=d).sum(), torch.zeros(2, 0, device=d).sum(1)),
    "prod": lambda d: torch.zeros(0, 3, device=d).prod(0) * 2,
    "mean": lambda d: torch.zeros(0, device=d).mean(),
    "cat": lambda d: torch.cat([torch.zeros(0, device=d), torch.ones(2, device=d)]) + 1,
    "write": lambda d: torch.ones(3, device=d).index_put_(
        (torch.zeros(0, dtype=torch.int64, device=d),), torch.zeros(0, device=d)
    ),
    "empty slice written": lambda d: torch.ones(3, device=d)[1:1].add_(1),
    "softmax": lambda d: torch.softmax(torch.zeros(3, 0, device=d), 1),
    "linear": lambda d: functional.linear(torch.zeros(0, 3, device=d), torch.ones(2, 3, device=d)),
    "embedding": lambda d: functional.embedding(
        torch.zeros(0, dtype=torch.int64, device=d), torch.ones(2, 3, device=d)
    ),
    "all and any": lambda d: (
        torch.zeros(0, dtype=torch.bool, device=d).all(),
        torch.zeros(0, dtype=torch.bool, device=d).any(),
    ),
    "nonzero": lambda d: torch.zeros(3, device=d).nonzero(),
    "mask": lambda d: torch.ones(3, device=d)[torch.zeros(3, dtype=torch.bool, device=d)],
    "resized": lambda d: torch.zeros(0, device=d).resize_(2).fill_(3),
    "host": lambda d: torch.zeros(0, 2, device=d).tolist(),
    "grad": lambda d: torch.autograd.grad(
        torch.ones(0, 2, device=d, requires_grad=True).mul(2).sum()
        + (w := torch.ones(2, device=d, requires_grad=True)).sum(),
        w,
    ),
}


@pytest.mark.parametrize("program", EMPTY.values(), ids=EMPTY)
def test_empty_tensors_are_right(run_both, program):
    run_both(program, compiled=False)


def test_reduction_of_nothing_is_refused(same_error):
    same_error(lambda d: torch.max(torch.zeros(2, 0, 4, device=d)))
    same_error(lambda d: torch.zeros(2, 0, device=d).max(1))
    same_error(lambda d: torch.zeros(2, 0, device=d).argmin(1))
    same_error(lambda d: torch.zeros(2, 0, device=d).amax(1))


WEIGHT = torch.arange(12.0).view(4, 3)

LOOKUPS = {
    "embedding": (lambda x, i: functional.embedding(i, x), (4, -1)),
    "index_select": (lambda x, i: x.index_select(0, i), (4, -1)),
    "gather": (lambda x, i: x.gather(0, i.view(1, 3)), (4, -1)),
    "x[i]": (lambda x, i: x[i], (4, -5)),
    "x[:, i]": (lambda x, i: x[:, i], (3, -4)),
    "x[i, j]": (lambda x, i: x[i, i], (3, -5)),
    "take": (lambda x, i: x.take(i), (12, -13)),
}
WRITES = {
    "x[i] = v": (lambda x, i: x.index_put_((i,), x[:3].clone()), (4, -5)),
    "index_add_": (lambda x, i: x.index_add_(0, i, x[:3].clone()), (4, -1)),
    "index_copy_": (lambda x, i: x.index_copy_(0, i, x[:3].clone()), (4, -1)),
    "index_fill_": (lambda x, i: x.index_fill_(0, i, 2.0), (4, -5)),
    "scatter_": (lambda x, i: x.scatter_(0, i.view(1, 3), 2.0), (4, -1)),
    "scatter_add_": (lambda x, i: x.scatter_add_(0, i.view(1, 3), x[:1].clone()), (4, -1)),
}


def error_type(work):
    with pytest.raises((IndexError, RuntimeError)) as caught:
        work()
    return caught.type


def allowed(policy, work):
    """The CPU's own error, which is not always an IndexError; compiled code raises that alone."""
    expected = error_type(work)
    return {expected} if policy == "native" else {expected, IndexError}


@pytest.mark.parametrize(("look_up", "bad"), LOOKUPS.values(), ids=LOOKUPS)
def test_index_out_of_range_raises_and_the_process_lives(policy, look_up, bad):
    x = WEIGHT.to("shark")

    def run(index):
        result = look_up(x * 2, torch.tensor([0, index, 1]).to("shark")) + 1
        torch.shark.synchronize()
        return result

    right = look_up(WEIGHT * 2, torch.tensor([0, 2, 1])) + 1
    for _ in range(2):
        assert torch.equal(run(2).cpu(), right)
    for index in bad:
        expected = allowed(policy, lambda i=index: look_up(WEIGHT, torch.tensor([0, i, 1])))
        for _ in range(2):
            assert error_type(lambda i=index: run(i)) in expected
        assert torch.equal(run(2).cpu(), right)
    assert (torch.shark.metrics().regions > 0) == (policy == "iree")


@pytest.mark.parametrize(("write", "bad"), WRITES.values(), ids=WRITES)
def test_write_out_of_range_raises_and_leaves_the_target(policy, write, bad):
    x = WEIGHT.to("shark")

    def run(index):
        write(x, torch.tensor([0, index, 1]).to("shark"))
        torch.shark.synchronize()

    for _ in range(2):
        run(2)
    for index in bad:
        before = x.cpu()
        on_cpu = before.clone()  # its kernels may write what comes before the bad index
        expected = allowed(policy, lambda i=index, y=on_cpu: write(y, torch.tensor([0, i, 1])))
        assert error_type(lambda i=index: run(i)) in expected
        assert torch.equal(x.cpu(), on_cpu) or (policy == "iree" and torch.equal(x.cpu(), before))
    run(2)


def test_label_out_of_range_raises_and_the_parameters_keep_their_values(policy):
    layer = torch.nn.Linear(3, 4).to("shark")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(label):
        optimizer.zero_grad()
        output = layer(torch.ones(2, 3, device="shark"))
        functional.cross_entropy(output, torch.tensor([0, label]).to("shark")).backward()
        optimizer.step()
        torch.shark.synchronize()

    for _ in range(2):
        step(3)
    before = [p.detach().cpu() for p in layer.parameters()]
    assert error_type(lambda: step(4)) is IndexError
    assert error_type(lambda: step(-2)) is IndexError
    for p, old in zip(layer.parameters(), before, strict=True):
        assert torch.equal(p.detach().cpu(), old)
    step(3)
    assert not torch.equal(layer.weight.detach().cpu(), before[0])
    step(-100)  # the label that is ignored


UNUSED = {
    "integer division": lambda d: (
        torch.ones(3, dtype=torch.int64, device=d) // torch.tensor([0]).to(d)
    ),
    "take": lambda d: torch.ones(3, device=d).take(torch.tensor([5]).to(d)),
    "labels of images": lambda d: functional.nll_loss(
        torch.ones(2, 3, 4, device=d), torch.full((2, 4), 7).to(d)
    ),
    "no rows": lambda d: torch.ones(0, 3, device=d).index_select(1, torch.tensor([5]).to(d)),
}


@pytest.mark.parametrize("work", UNUSED.values(), ids=UNUSED)
def test_error_of_what_nobody_needs_is_raised(policy, work):
    def run():
        work("shark")
        torch.shark.synchronize()

    for _ in range(2):
        assert error_type(run) is error_type(lambda: work("cpu"))


def test_late_error_names_the_operator(policy):
    x = WEIGHT.to("shark")
    for index in (1, 2):
        functional.embedding(torch.tensor([index]).to("shark"), x).sum().item()
    with pytest.raises(IndexError, match="embedding"):
        functional.embedding(torch.tensor([7]).to("shark"), x).sum().item()


def test_index_computed_in_the_window_is_checked(policy):
    x = WEIGHT.to("shark")

    def run(shift):
        i = torch.arange(2, device="shark") + torch.tensor(shift).to("shark")
        return x[i].cpu()

    for _ in range(2):
        assert torch.equal(run(1), WEIGHT[1:3])
    assert error_type(lambda: run(3)) is IndexError
    assert torch.equal(run(2), WEIGHT[2:])
