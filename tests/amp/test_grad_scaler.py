"""torch.amp.GradScaler("shark"): scales, steps that are skipped, state, every form of optimizer."""

import io

import pytest
import torch
from torch import nn

FORMS = [{"fused": True}, {"foreach": True}, {"foreach": False}]
OPTIMIZERS = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad]


def scaled_training(d, optimizer_type, dtype=torch.float16, unscale=False, **form):
    """Five steps, the third of which overflows; what the scaler and the weights became."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).to(d)
    optimizer = optimizer_type(model.parameters(), lr=0.01, **form)
    scaler = torch.amp.GradScaler(d, init_scale=2.0**10, growth_interval=2)
    x, y = torch.rand(4, 6).to(d), torch.rand(4, 2).to(d)
    scales, norms = [], []
    for step in range(5):
        optimizer.zero_grad()
        with torch.autocast(d, dtype=dtype):
            loss = nn.functional.mse_loss(model(x), y) * (float("inf") if step == 2 else 1)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        before = model[0].weight.detach().clone()
        scaler.step(optimizer)
        assert torch.equal(before, model[0].weight) == (step == 2)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [1024.0, 2048.0, 1024.0, 1024.0, 2048.0]
    weights = [p.detach().to(dtype) for p in model.parameters()]
    return scales, [n.to(dtype) for n in norms], weights, scaler.state_dict()


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("optimizer_type", OPTIMIZERS)
def test_steps_are_those_of_the_cpu(native, optimizer_type, form):
    outcomes = []
    for d in ("cpu", "shark"):
        torch.manual_seed(0)
        outcomes.append(scaled_training(d, optimizer_type, unscale=True, **form))
    expected, actual = outcomes
    assert actual[0] == expected[0]
    assert actual[3] == expected[3]
    for one, other in zip(actual[1] + actual[2], expected[1] + expected[2], strict=True):
        assert torch.equal(one.cpu().nan_to_num(), other.nan_to_num())


@pytest.mark.slow
def test_compiled_steps(compiled):
    torch.manual_seed(0)
    scales, norms, weights, state = scaled_training("cpu", torch.optim.SGD, unscale=True)
    torch.manual_seed(0)
    ours = scaled_training("shark", torch.optim.SGD, unscale=True)
    assert (ours[0], ours[3]) == (scales, state)
    for one, other in zip(ours[1] + ours[2], norms + weights, strict=True):
        torch.testing.assert_close(one.cpu(), other, equal_nan=True)
    assert torch.shark.metrics().regions > 0


def test_scale_and_unscale():
    scaler = torch.amp.GradScaler("shark", init_scale=8.0)
    assert scaler.is_enabled()
    p = nn.Parameter(torch.ones(3, device="shark"))
    optimizer = torch.optim.SGD([p], lr=1.0)
    loss = (p * torch.tensor([1.0, 2.0, 3.0], device="shark")).sum()
    assert scaler.scale([loss, loss])[1].item() == 48.0
    scaler.scale(loss).backward()
    assert p.grad.tolist() == [8.0, 16.0, 24.0]
    scaler.unscale_(optimizer)
    assert p.grad.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called"):
        scaler.unscale_(optimizer)
    found = scaler._found_inf_per_device(optimizer)
    assert found[torch.device("shark:0")].item() == 0.0
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.0, -1.0, -2.0]


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_gradient_that_is_not_finite_is_found(native, bad):
    scaler = torch.amp.GradScaler("shark", init_scale=4.0)
    p, q = (nn.Parameter(torch.ones(2, device="shark")) for _ in range(2))
    optimizer = torch.optim.SGD([p, q], lr=1.0)
    scaler.scale(p.sum() + q[1] * bad).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0
    assert p.tolist() == q.tolist() == [1.0, 1.0]


def test_skipping_a_step_of_a_fused_optimizer_reads_nothing(native):
    scaler = torch.amp.GradScaler("shark", init_scale=4.0)
    p = nn.Parameter(torch.ones(2, device="shark"))
    optimizer = torch.optim.SGD([p], lr=1.0, fused=True)

    def step():
        optimizer.zero_grad()
        scaler.scale(p.sum()).backward()
        scaler.step(optimizer)

    step()
    scaler.update()
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    step()
    assert torch.shark.metrics().flushes["sync"] == 0


def test_state_is_saved_and_restored(native):
    scaler = torch.amp.GradScaler("shark", init_scale=4.0, growth_interval=3)
    scaler.scale(torch.ones(1, device="shark"))
    scaler.update(16.0)
    file = io.BytesIO()
    torch.save(scaler.state_dict(), file)
    file.seek(0)
    other = torch.amp.GradScaler("shark")
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.state_dict() == scaler.state_dict()
    assert other.scale(torch.ones(1, device="shark")).item() == 16.0
    other.update(torch.tensor(2.0, device="shark"))
    assert other.get_scale() == 2.0


def test_scaler_that_is_disabled_does_nothing(native):
    scaler = torch.amp.GradScaler("shark", enabled=False)
    p = nn.Parameter(torch.ones(2, device="shark"))
    optimizer = torch.optim.SGD([p], lr=1.0)
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.0, 0.0]
    assert scaler.state_dict() == {}


def test_half_gradients_cannot_be_unscaled(native):
    scaler = torch.amp.GradScaler("shark")
    p = nn.Parameter(torch.ones(2, device="shark").half())
    optimizer = torch.optim.SGD([p], lr=1.0)
    scaler.scale(p.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(optimizer)
