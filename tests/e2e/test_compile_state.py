"""What a compiled function asks of torch.shark happens each time, not when it is traced."""

from __future__ import annotations

import pytest
import torch


def seeds(x):
    torch.shark.manual_seed(1)
    return x + torch.rand(3, device="shark").cpu()


def seeds_all(x):
    torch.manual_seed(3)
    return x + torch.rand(3) + torch.rand(3, device="shark").cpu()


def forks(x):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        y = torch.rand(3)
    return x + y


def restores(x):
    state = torch.shark.get_rng_state()
    y = torch.rand(3, device="shark")
    torch.shark.set_rng_state(state)
    return x + (y - torch.rand(3, device="shark")).cpu()


def waits(x):
    y = x * 2
    torch.shark.synchronize()
    torch.shark.current_stream().synchronize()
    return y + 1


def frees(x):
    torch.shark.empty_cache()
    torch.shark.reset_peak_memory_stats()
    return x + (1 if torch.shark.memory_allocated() >= 0 else 0)


def counts(x):
    torch.shark.reset_metrics()
    return x + torch.shark.metrics().compiles


def asks(x):
    is_there = torch.shark.is_available() and torch.shark.device_count() == 1
    return x * 2 if is_there and torch.shark.current_device() == 0 else x


@pytest.mark.parametrize(
    "program",
    [seeds, seeds_all, forks, restores, waits, frees, counts, asks],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("backend", ["shark", "aot_eager"])
def test_state_is_asked_for_at_each_call(program, backend, native, recwarn):
    torch._dynamo.reset()
    compiled = torch.compile(program, backend=backend)
    for start in (1.0, 2.0):
        x = torch.full((3,), start)
        torch.rand(2, device="shark")  # a call that does not seed would give others
        assert torch.equal(compiled(x), program(x))
    torch._dynamo.reset()
    assert [str(one.message) for one in recwarn if "Dynamo" in str(one.message)] == []


def test_what_is_constant_breaks_no_graph(native):
    torch._dynamo.reset()
    compiled = torch.compile(asks, backend="shark", fullgraph=True)
    assert compiled(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    torch._dynamo.reset()
