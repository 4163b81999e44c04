"""Cases 20, 22, 23 and 24: what ends a window, and what never does."""

import resource
from concurrent.futures import Future

import pytest
import torch

from torch_shark import config
from torch_shark.lowering.artifact import Answer, Artifact


def of_loop(count, start):
    x = start
    for _ in range(count):
        x = x + 1
    return x


@pytest.fixture
def forbidden(monkeypatch, policy):
    """Nothing compiles in this test; what was compiled before is forgotten."""
    from torch_shark import compiler

    def refuse(region, targets):
        answer = Future()
        failed = Artifact.failed("forbidden by the test")
        answer.set_result(Answer((failed,) * len(targets), lasting=True))
        return answer

    torch.shark.synchronize()
    monkeypatch.setattr(compiler, "_compiling", lambda *_: refuse)
    compiler.forget()
    with config.scope(disk_cache=False):
        yield
        torch.shark.synchronize()
        compiler.forget()


FACTORIES = {
    "eye": lambda d: torch.eye(3, device=d),
    "eye wide": lambda d: torch.eye(2, 4, dtype=torch.int64, device=d),
    "arange": lambda d: torch.arange(1, 9, 3, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 5, device=d),
    "full": lambda d: torch.full((2, 2), 7, device=d),
    "ones_like": lambda d: torch.ones_like(torch.empty(2, 3, device=d).t()),
    "tril_indices": lambda d: torch.tril_indices(3, 3, device=d),
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    "scalar": lambda d: torch.scalar_tensor(2.5, device=d),
    "new_zeros": lambda d: torch.empty(0, device=d).new_zeros(2, 2),
    "out of eye": lambda d: torch.eye(3, out=torch.zeros(3, 3, device=d)),
    "out of add": lambda d: torch.add(
        torch.ones(3, device=d), 2, out=torch.empty(0, device=d)
    ),
    "out of cat": lambda d: torch.cat(
        [torch.ones(2, device=d), torch.zeros(1, device=d)], out=torch.empty(3, device=d)
    ),
    "outs of max": lambda d: torch.max(
        torch.tensor([[1.0, 5.0], [7.0, 2.0]], device=d),
        1,
        out=(torch.empty(2, device=d), torch.empty(2, dtype=torch.int64, device=d)),
    )[1],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_factories_and_outs_are_filled_where_nothing_compiles(forbidden, policy):
    for make in FACTORIES.values():
        expected = make("cpu")
        for _ in range(2):
            result = make("shark")
            assert result.dtype == expected.dtype
            assert torch.equal(result.cpu(), expected)
    counts = torch.shark.metrics()
    assert counts.regions == 0
    assert (counts.failures > 0) == (policy == "iree")


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_factories_and_outs_are_filled(run_both):
    run_both(lambda d: [make(d) for make in FACTORIES.values()])


def parameters(count):
    parameters = [torch.nn.Parameter(torch.ones(4, 3, device="shark")) for _ in range(count)]
    for p in parameters:
        p.grad = torch.full_like(p, 0.5)
    return parameters


OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p),
    "AdamW": lambda p: torch.optim.AdamW(p),
    "Adam fused": lambda p: torch.optim.Adam(p, fused=True),
    "Adam one by one": lambda p: torch.optim.Adam(p, foreach=False),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "RMSprop": lambda p: torch.optim.RMSprop(p),
    "Adagrad": lambda p: torch.optim.Adagrad(p),
}


def on_cpu(parameters):
    copies = [torch.nn.Parameter(p.detach().cpu()) for p in parameters]
    for copy, p in zip(copies, parameters, strict=True):
        copy.grad = p.grad.cpu()
    return copies


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizer_step_is_one_window_without_a_sync(policy, make):
    ours = parameters(60 if make is OPTIMIZERS["Adam"] else 4)
    theirs = on_cpu(ours)
    optimizer, reference = make(ours), make(theirs)
    with config.scope(policy="native"):
        optimizer.step()  # makes the state
    optimizer.step()
    torch.shark.synchronize()
    before = torch.shark.metrics()
    for _ in range(3):
        optimizer.step()
    torch.shark.synchronize()
    after = torch.shark.metrics()
    assert after.windows - before.windows == 3
    ended = {reason: n - before.flushes[reason] for reason, n in after.flushes.items()}
    assert {reason: n for reason, n in ended.items() if n} == {"optimizer": 3}
    assert (after.compiles, after.plans) == (before.compiles, before.plans)
    if policy == "iree":
        assert after.native_steps == before.native_steps
        assert after.regions > before.regions
    else:
        assert after.regions == 0
    for _ in range(5):
        reference.step()
    tolerance = {"rtol": 0, "atol": 0} if policy == "native" else {}
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach(), **tolerance)


PRINTED = {
    "repr": repr,
    "str": str,
    "format": lambda t: f"{t}",
    "list": lambda t: repr([t, t[0]]),
    "parameter": lambda t: repr(torch.nn.Parameter(t, requires_grad=t.is_floating_point())),
}


@pytest.mark.parametrize("show", PRINTED.values(), ids=PRINTED)
@pytest.mark.parametrize(
    "host",
    [torch.arange(6).view(2, 3), torch.rand(40, 60), torch.tensor([[1.5, float("nan")]])],
    ids=["ints", "long", "nan"],
)
def test_printing_what_is_ready_runs_next_to_nothing(policy, show, host):
    t = host.to("shark")
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    text = show(t)
    counts = torch.shark.metrics()
    assert counts.windows <= 1
    assert counts.recorded <= 1
    assert (counts.compiles, counts.plans) == (0, 0)
    assert "".join(text.split()).replace(",device='shark:0'", "") == "".join(show(host).split())


def test_printing_a_pending_tensor_runs_one_window(policy):
    t = torch.ones(3, device="shark")
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    assert repr(t + 1) == "tensor([2., 2., 2.], device='shark:0')"
    assert torch.shark.metrics().windows == 1


def test_only_reading_a_value_ends_a_window(policy):
    x = torch.ones(4, 4, device="shark")
    for _ in range(2):
        torch.shark.synchronize()
        torch.shark.reset_metrics()
        y = (x @ x).relu()
        y.t()[0] = 2
        assert y.shape == (4, 4)
        assert y.is_contiguous()
        assert y.data_ptr()
        z = torch.cat([y, x]).sum(0)
        assert torch.shark.metrics().windows == 0
    assert z.tolist() == [12.0, 20.0, 20.0, 20.0]
    counts = torch.shark.metrics()
    assert counts.windows == 1
    assert counts.flushes["sync"] == 1


def resident_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_endless_loop_is_cut_by_content_and_keeps_memory_flat(policy):
    with config.scope(window_operators=64):
        start = torch.zeros(1024, device="shark")
        of_loop(1000, start)
        torch.shark.synchronize()
        memory, resident = torch.shark.memory_allocated(), resident_bytes()
        torch.shark.reset_metrics()
        torch.shark.reset_peak_memory_stats()
        x = of_loop(100_000, start)
        torch.shark.synchronize()
        counts = torch.shark.metrics()
    assert x.eq(100_000).all().item()
    assert counts.windows == -(-100_000 // 64)
    assert counts.flushes["operators"] >= counts.windows - 1
    assert counts.plans <= 2  # full windows, and the last
    assert counts.compiles <= 2
    assert torch.shark.memory_allocated() - memory <= 4096
    # A queue of windows is pending at any time, each with its results.
    assert torch.shark.max_memory_allocated() - memory <= 32 * 64 * 4096
    assert resident_bytes() - resident < 64 << 20
    assert (counts.regions > 0) == (policy == "iree")


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_loop_meets_the_same_windows_wherever_it_begins(policy, offset):
    with config.scope(window_operators=32):
        x = torch.full((8,), 0.5, device="shark")
        for _ in range(offset):
            x = x * 2
        for _ in range(300):
            x = torch.relu(x - 0.25) + 0.125
        torch.shark.synchronize()
        counts = torch.shark.metrics()
    assert counts.windows >= 20
    if policy == "iree":
        # The first two, the last, and one for all between: at first the cut knows no period.
        assert counts.plans <= 4
        assert counts.regions >= counts.windows


def test_large_results_end_a_window_early(policy):
    with config.scope(pending_bytes=1 << 20):
        torch.shark.synchronize()
        torch.shark.reset_metrics()
        torch.shark.reset_peak_memory_stats()
        before = torch.shark.memory_allocated()
        x = of_loop(64, torch.zeros(1 << 16, device="shark"))
        torch.shark.synchronize()
        counts = torch.shark.metrics()
    assert counts.flushes["memory"] >= 8
    assert x[0].item() == 64
    assert torch.shark.max_memory_allocated() - before <= 64 << 18
