"""torch.compile(backend="shark") compiles no more often than an eager backend does."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

Calls = Callable[[Callable], list]


def randn(*sizes, device, **options):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(7), **options).to(device)


class Scaled(nn.Module):
    def __init__(self, device):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8).to(device)
        self.factor = 2

    def forward(self, x):
        return self.linear(x) * self.factor + (1 if self.training else 0)


def module(device, compiled, change):
    """Calls of a module that is changed in between."""
    model = Scaled(device)
    network = compiled(model)
    results = []
    for i in range(4):
        change(model, i)
        results.append(network(randn(4, 8, device=device)))
    return results


def each(function, inputs):
    """A program that calls a function with one list of arguments after the other."""
    return lambda device, compiled: [
        call(*arguments) for call in [compiled(function)] for arguments in inputs(device)
    ]


def under(function, contexts):
    """A program that calls a function in one context after the other."""

    def program(device, compiled):
        call, results = compiled(function), []
        for context in contexts:
            with context():
                results.append(call(randn(4, 4, device=device)))
        return results

    return program


def marked(device, compiled):
    call, results = compiled(lambda x: x.softmax(-1)), []
    for size in (4, 5, 6):
        x = randn(size, 8, device=device)
        torch._dynamo.mark_dynamic(x, 0)
        results.append(call(x))
    return results


def lengths(*sizes):
    return lambda device: [(randn(n, 8, device=device),) for n in sizes]


PROGRAMS = {
    "lengths": each(lambda x: x.softmax(-1), lengths(4, 5, 6, 7)),
    "a length of one": each(lambda x: x * 2 + 1, lengths(4, 1, 5, 1)),
    "two lengths": each(
        lambda x: x.sum(0), lambda d: [(randn(n, n + 1, device=d),) for n in (3, 4, 5, 6)]
    ),
    "equal lengths": each(
        lambda x, y: x + y,
        lambda d: [(randn(n, device=d), randn(n, device=d)) for n in (3, 4, 5)],
    ),
    "broadcasting": each(
        lambda x, y: x * y,
        lambda d: [(randn(4, n, device=d), randn(n, device=d)) for n in (3, 1, 5)],
    ),
    "dtypes": each(
        lambda x: x * 2 + 1,
        lambda d: [
            (randn(4, device=d).to(dtype),)
            for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float32)
        ],
    ),
    "strides": each(
        lambda x: x.relu() + 1,
        lambda d: [(x,) for x in [randn(4, 4, device=d)] for x in (x, x.t(), x[::2], x)],
    ),
    "dimensions": each(
        lambda x: x.exp(), lambda d: [(randn(*[2] * n, device=d),) for n in (1, 2, 3, 1)]
    ),
    "requires_grad": each(
        lambda x: x.sin(),
        lambda d: [(randn(4, device=d).requires_grad_(i % 2 == 1),) for i in range(4)],
    ),
    "floats": each(
        lambda x, f: x * f, lambda d: [(randn(4, device=d), f) for f in (1.5, 2.5, 3.5)]
    ),
    "integers": each(lambda x, n: x + n, lambda d: [(randn(4, device=d), n) for n in (2, 3, 4, 5)]),
    "booleans": each(
        lambda x, up: x + 1 if up else x - 1,
        lambda d: [(randn(4, device=d), up) for up in (True, False, True)],
    ),
    "lists": each(
        lambda xs: sum(xs),
        lambda d: [([randn(4, device=d)] * n,) for n in (2, 3, 2)],
    ),
    "dictionaries": each(
        lambda xs: {key: value * 2 for key, value in xs.items()},
        lambda d: [({key: randn(4, device=d)},) for key in ("a", "b", "a")],
    ),
    "train and eval": lambda d, c: module(d, c, lambda model, i: model.train(i % 2 == 0)),
    "an attribute": lambda d, c: module(d, c, lambda model, i: setattr(model, "factor", i + 1)),
    "frozen parameters": lambda d, c: module(
        d, c, lambda model, i: model.requires_grad_(i % 2 == 0)
    ),
    "grad modes": under(
        lambda x: x.cos() * 2, [torch.no_grad, nullcontext, torch.inference_mode, torch.no_grad]
    ),
    "autocast": under(
        lambda x: x @ x,
        [nullcontext, lambda: torch.autocast("cpu", torch.bfloat16), nullcontext],
    ),
    "mark_dynamic": marked,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("device", ["cpu", "shark"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_many_graphs_as_an_eager_backend(name, device, dynamic):
    found = {}
    for backend in ("aot_eager", "shark"):
        torch._dynamo.reset()
        counter = CompileCounterWithBackend(backend)
        compiled = partial(torch.compile, backend=counter, dynamic=dynamic)
        results = PROGRAMS[name](device, compiled)
        found[backend] = counter.frame_count, results
    torch._dynamo.reset()
    assert found["shark"][0] == found["aot_eager"][0] > 0
    results, expected = (
        torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, found[backend][1])
        for backend in ("shark", "aot_eager")
    )
    assert_close(results, expected)
