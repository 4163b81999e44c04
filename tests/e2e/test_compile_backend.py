"""torch.compile(backend="shark"): values, gradients, counters, and errors that say what to do."""

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.testing import assert_close

from torch_shark import config


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def make_model():
    torch.manual_seed(0)
    # A bias before batch norm would have no gradient but rounding errors, which Adam scales up.
    first = nn.Linear(16, 32, bias=False)
    return nn.Sequential(first, nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 4))


def train(device, compile_it):
    """Losses, final parameters and running statistics of a few steps."""
    model = make_model().to(device)
    network = torch.compile(model, backend="shark") if compile_it else model
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(4):
        x, y = (torch.randn(8, n, generator=data).to(device) for n in (16, 4))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(network(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.cpu() for name, value in model.state_dict().items()}


def test_training_follows_the_cpu(policy):
    losses, state = train("shark", compile_it=True)
    counts = torch.shark.metrics()
    assert (counts.regions > 0) == (policy == "iree")
    expected_losses, expected_state = train("cpu", compile_it=False)
    tolerance = {"rtol": 1e-4, "atol": 1e-5}
    assert_close(losses, expected_losses, **tolerance)
    assert_close(state, expected_state, **tolerance)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference_is_one_window_a_call(policy, mode):
    model, x = make_model().eval().to("shark"), torch.randn(8, 16, device="shark")
    compiled = torch.compile(model, backend="shark", fullgraph=True)
    with mode():
        expected = model(x).cpu()
        compiled(x)
        torch.shark.synchronize()
        torch.shark.reset_metrics()
        result = compiled(x)
        torch.shark.synchronize()
        counts = torch.shark.metrics()
    assert not result.requires_grad
    assert counts.windows == counts.flushes["graph"] == 1
    assert counts.plans == 0
    assert (counts.regions > 0) == (policy == "iree")
    assert_close(result.cpu(), expected, rtol=1e-5, atol=1e-6)


def test_a_window_in_progress_does_not_change_the_graphs():
    @torch.compile(backend="shark")
    def twice_the_sine(x):
        return x.sin() * 2

    with config.scope(policy="iree"), torch.no_grad():
        for _ in range(2):  # the second time, its operators are known and none runs at once
            x = torch.rand(8, device="shark")
            twice_the_sine(x).cpu()
        torch.shark.reset_metrics()
        shifted = x + 1  # pending when the graph begins
        result = twice_the_sine(shifted)
        assert_close(result.cpu(), (x.cpu() + 1).sin() * 2)
        assert torch.shark.metrics().flushes["graph"] == 2
        assert torch.shark.metrics().compiles <= 1  # of x + 1


def test_attention_is_traced_as_it_runs(policy):
    attention = nn.functional.scaled_dot_product_attention
    compiled = torch.compile(attention, backend="shark", fullgraph=True)
    for length in (5, 7, 9):  # from the second on, the length is symbolic
        inputs = [torch.randn(2, 2, length, 8, requires_grad=True) for _ in range(3)]
        on_device = [x.detach().to("shark").requires_grad_() for x in inputs]
        expected, result = attention(*inputs), compiled(*on_device)
        expected.sum().backward()
        result.sum().backward()
        assert_close(result.cpu(), expected)
        for x, gradient in zip(inputs, on_device, strict=True):
            assert_close(gradient.grad.cpu(), x.grad)
    kernel = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert (kernel in torch.shark.metrics().native_steps) == (policy == "native")


def test_inputs_written_in_place(policy):
    @torch.compile(backend="shark")
    def scale(x):
        x.mul_(3)
        return x.sum()

    x = torch.arange(4.0, device="shark")
    with torch.no_grad():
        assert scale(x).item() == 18
    assert x.tolist() == [0, 3, 6, 9]


def test_a_number_on_the_cpu_is_an_input(policy):
    factor = torch.tensor(3.0)
    compiled = torch.compile(lambda x, f: x * f, backend="shark")
    assert compiled(torch.ones(2, device="shark"), factor).tolist() == [3, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": {"speed": 11}}, "expected options among policy, verify, target, .*'speed'"),
        ({"options": {"debug": 1}}, "other knobs are the process's"),
        ({"options": {"target": "tpu"}}, "a known target"),
        ({"options": {"compile_flags": ["--no-such=1"]}}, "option not found: no-such"),
        ({"options": {"compile_flags": 3}}, "flags of IREE's compiler, got 3"),
        ({"options": {"policy": "fast"}}, "expected config.policy to be 'auto', 'iree' or"),
        ({"mode": "fastest"}, "expected modes among default, reduce-overhead, max-autotune, got"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "shark"])
def test_an_unknown_option_raises(arguments, message, device):
    compiled = torch.compile(torch.sin, backend="shark", **arguments)
    with pytest.raises(BackendCompilerFailed, match=rf"\[shark\] .*{message}"):
        compiled(torch.ones(2, device=device))


def test_a_graph_of_both_devices_runs_as_eager_code_does():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: (x + 1, y + 1, x * y.cpu()), backend="shark")
    x, y, z = compiled(torch.ones(2), torch.full((2,), 3.0, device="shark"))
    assert (x.device.type, y.device.type, z.device.type) == ("cpu", "shark", "cpu")
    assert (x.tolist(), y.tolist(), z.tolist()) == ([2.0, 2.0], [4.0, 4.0], [3.0, 3.0])


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("device", ["cpu", "shark"])
def test_modes_give_the_same_values(mode, device):
    model, x = make_model().eval(), torch.randn(8, 16)
    expected = model(x)
    compiled = torch.compile(model.to(device), backend="shark", mode=mode)
    for _ in range(4):
        assert_close(compiled(x.to(device)).cpu(), expected, rtol=1e-5, atol=1e-6)


def test_a_policy_is_for_one_function():
    x = torch.randn(300, 300)
    compiled = torch.compile(
        lambda x: (x * 2).sin() + 1, backend="shark", options={"policy": "iree"}
    )
    with config.scope(policy="native"):
        torch.shark.reset_metrics()
        assert_close(compiled(x), (x * 2).sin() + 1)
        assert torch.shark.metrics().regions == 1
        (x.to("shark") * 3).cpu()
        assert torch.shark.metrics().regions == 1
