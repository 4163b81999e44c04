"""torch.compile(backend="shark") of programs on the CPU, which need no other line."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torch_shark import config


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function, **arguments):
    return torch.compile(function, backend="shark", **arguments)


def same(function, *inputs, times=3):
    """What a function returns and writes is what it is in eager code; the results are the CPU's."""
    other = compiled(function, fullgraph=True)
    for _ in range(times):
        ours = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        theirs = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        result, expected = other(*ours), function(*theirs)
        assert_close(result, expected)
        assert_close(ours, theirs)
    return result


def test_a_model_runs_without_being_moved(policy):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), torch.randn(8, 16)
    network = compiled(model, fullgraph=True)
    with torch.no_grad():
        network(x)  # its operators are new: some run at once
        torch.shark.reset_metrics()
        for _ in range(4):
            result = network(x)
            assert result.device.type == "cpu"
            assert_close(result, model(x), rtol=1e-5, atol=1e-6)
    counts = torch.shark.metrics()
    assert counts.windows == counts.flushes["graph"] == 4
    assert (counts.regions > 0) == (policy == "iree")


def test_training_follows_eager(policy):
    def train(network_of):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 4))
        network, optimizer = network_of(model), torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for _ in range(6):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(torch.randn(8, 16)), torch.randn(8, 4))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, model.state_dict()

    losses, state = train(compiled)
    expected_losses, expected_state = train(lambda model: model)
    assert_close(losses, expected_losses, rtol=1e-4, atol=1e-5)
    assert_close(state, expected_state, rtol=1e-4, atol=1e-5)


def test_what_is_written_in_place_is_written(policy):
    def step(x, y):
        x.mul_(3)
        y[1:].add_(x[:-1])
        return x + y

    same(step, torch.randn(4, 3), torch.randn(4, 3))


def test_aliases_stay_aliases(policy):
    def views(x):
        return x.t(), x[1:], x + 1

    x = torch.randn(4, 3)
    transposed, rest, _ = compiled(views)(x)
    x.zero_()
    assert not transposed.any()
    assert not rest.any()


def test_inputs_that_share_memory(policy):
    base = torch.randn(6, 4)
    function = compiled(lambda x, y, z: (x * y + 1, z.sum()))
    for _ in range(3):
        result = function(base[:3], base[3:], base.t())
        assert_close(result, (base[:3] * base[3:] + 1, base.sum()))
        base.add_(1)  # seen by the next call


def test_a_parameter_that_an_optimizer_writes_is_seen(policy):
    weight = torch.randn(4, 4)
    function = compiled(lambda x: x @ weight + 1)
    for _ in range(4):
        assert_close(function(torch.eye(4)), weight + 1)
        weight.mul_(2)


def test_memory_that_is_another_tensors_now_is_read_anew(policy):
    function = compiled(lambda x: x * 2)
    for i in range(5):
        x = torch.full((100, 100), float(i))
        assert_close(function(x), x * 2)
        del x


@pytest.mark.parametrize("kind", ["dropout", "rand", "randn_like", "bernoulli"])
def test_random_numbers_are_those_of_the_cpus_generator(kind, policy):
    functions = {
        "dropout": lambda x: nn.functional.dropout(x, 0.5) * 2,
        "rand": lambda x: x + torch.rand(3, 3),
        "randn_like": lambda x: torch.randn_like(x) + x,
        "bernoulli": lambda x: torch.bernoulli(x.sigmoid()) + x,
    }
    x = torch.randn(3, 3)
    results = []
    for backend in ("aot_eager", "shark"):
        torch._dynamo.reset()
        function = torch.compile(functions[kind], backend=backend)
        torch.manual_seed(5)
        first = torch.rand(2)
        results.append((first, function(x), torch.rand(2), function(x), torch.rand(2)))
    assert_close(results[1], results[0], rtol=0, atol=0)


def test_constants_and_what_is_made_inside(policy):
    table = torch.arange(6.0).reshape(2, 3)
    same(lambda x: x + table + torch.zeros(3) + torch.arange(3) + torch.tensor(2.0), torch.ones(3))


def test_what_the_program_makes_for_the_device_stays_there(policy):
    result = compiled(lambda x: (x + 1, x.to("shark") * 2))(torch.ones(3))
    assert [value.device.type for value in result] == ["cpu", "shark"]
    assert [value.tolist() for value in result] == [[2, 2, 2], [2, 2, 2]]


GEOMETRIES = {
    "transposed": torch.randn(3, 4).t(),
    "every second": torch.randn(3, 4)[:, ::2],
    "expanded": torch.randn(1, 4).expand(3, 4),
    "empty": torch.randn(3, 0),
    "without dimensions": torch.tensor(2.0),
    "integers": torch.arange(5),
    "bools": torch.tensor([True, False]),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "half as wide": torch.randn(4, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("x", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_geometries_and_dtypes(x, policy):
    same(lambda x: (x + x, x * 2), x)


def test_lengths_compile_no_more_often_than_eager_backends(policy):
    def count(backend):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        function = torch.compile(lambda x: torch.softmax(x * 2, -1), backend=backend)
        for length in (4, 5, 6, 7, 8, 9):
            x = torch.randn(2, length)
            assert_close(function(x), torch.softmax(x * 2, -1))
        return torch._dynamo.utils.counters["stats"]["unique_graphs"]

    assert count("shark") == count("aot_eager")


def test_graph_breaks_and_numbers(policy):
    def step(x, factor):
        y = x * factor
        if y.sum().item() > 0:
            return y + 1
        return y - 1

    function = compiled(step)
    for factor in (2, 3.5, -1, 4):
        assert_close(function(torch.ones(3), factor), step(torch.ones(3), factor))


def test_autocast(policy):
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        result = compiled(model)(x)
        assert_close(result, model(x), rtol=2e-2, atol=2e-2)
    assert result.dtype == torch.bfloat16


def test_checkpointing(policy):
    layer = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def function(x):
        return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum()

    x = torch.randn(4, 8, requires_grad=True)
    expected = torch.autograd.grad(function(x), x)
    assert_close(torch.autograd.grad(compiled(function)(x), x), expected)


def test_higher_order_operators(policy):
    def branch(x):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))

    for x in (torch.ones(3), -torch.ones(3)):
        same(branch, x, times=2)


def test_an_error_leaves_everything_usable(policy):
    function = compiled(lambda x, i: x[i] * 2)
    x = torch.arange(4.0)
    with pytest.raises(IndexError):
        function(x, torch.tensor([7]))
    assert function(x, torch.tensor([3])).tolist() == [6]
    assert (x.to("shark") + 1).tolist() == [1, 2, 3, 4]


def test_what_a_call_returned_is_not_changed_by_the_next():
    function = compiled(lambda x: (x * 2).sin() + 1)
    with config.scope(policy="iree"), torch.no_grad():
        inputs = [torch.randn(64, 64) for _ in range(5)]
        results = [function(x) for x in inputs]
        for x, result in zip(inputs, results, strict=True):
            assert_close(result, (x * 2).sin() + 1)
