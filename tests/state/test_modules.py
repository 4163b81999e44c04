"""What PyTorch hangs on modules: parametrizations, pruning, norms of weights, averaged models."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.optim import swa_utils


def trained(d, model, steps=2):
    """Outputs and parameters over some steps of training."""
    model = model.to(d)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.rand(3, 4).to(d)
    outputs = []
    for _ in range(steps):
        optimizer.zero_grad()
        y = model(x)
        y.square().mean().backward()
        optimizer.step()
        outputs.append(y.detach())
    return outputs, {k: v.detach() for k, v in model.state_dict().items()}


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


def symmetric():
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


def pruned(method, **options):
    def make():
        layer = nn.Linear(4, 4)
        method(layer, "weight", **options)
        return layer

    return make


def old_spectral():
    with pytest.warns(FutureWarning, match="weight_norm"):
        layer = nn.utils.weight_norm(nn.Linear(4, 4))
    return layer


WRAPPED = {
    "parametrization": symmetric,
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
    "old weight_norm": old_spectral,
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
    "old spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
    "random pruning": pruned(prune.random_unstructured, amount=0.5),
    "pruning by size": pruned(prune.l1_unstructured, amount=3),
    "structured pruning": pruned(prune.ln_structured, amount=0.5, n=2, dim=0),
}


@pytest.mark.parametrize("make", WRAPPED.values(), ids=WRAPPED)
def test_training(native, make):
    outcomes = []
    for d in ("cpu", "shark"):
        torch.manual_seed(0)
        outcomes.append(trained(d, make()))
    (outputs, state), (our_outputs, our_state) = outcomes
    assert list(state) == list(our_state)
    for one, other in zip([*outputs, *state.values()], [*our_outputs, *our_state.values()],
                          strict=True):  # fmt: skip
        assert torch.equal(other.cpu(), one)


def test_spectral_norm_is_compiled(run_both):
    run_both(lambda d: trained(d, parametrizations.spectral_norm(nn.Linear(4, 4))))


def test_wrapped_on_the_device(native):
    layer = nn.Linear(4, 4).to("shark")
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert layer.weight.is_shark
    assert torch.equal(layer.weight.cpu(), layer.weight.mT.cpu())
    layer.weight = torch.ones(4, 4, device="shark")
    assert layer.parametrizations.weight.original.is_shark
    parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.tolist() == [[1.0] * 4] * 4


def test_pruning_is_undone_and_repeated(native):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to("shark")
    names = [(layer, "weight") for layer in model]
    prune.global_unstructured(names, pruning_method=prune.L1Unstructured, amount=0.5)
    zeros = sum(int((layer.weight == 0).sum()) for layer in model)
    assert zeros == 16
    assert model[0].weight_mask.is_shark
    prune.l1_unstructured(model[0], "weight", amount=2)
    for layer in model:
        prune.remove(layer, "weight")
        assert not prune.is_pruned(layer)
        assert layer.weight.is_shark


def averaged(d, *layers, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), *layers).to(d)
    mean = swa_utils.AveragedModel(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
    batches = [torch.rand(4, 4).to(d) for _ in range(3)]
    for x in batches:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        mean.update_parameters(model)
        schedule.step()
    swa_utils.update_bn(batches, mean, device=torch.device(d))
    return {k: v.detach() for k, v in mean.state_dict().items()}, optimizer.param_groups[0]["lr"]


AVERAGES = {
    "mean": {},
    "exponential": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)},
    "with buffers": {"avg_fn": swa_utils.get_ema_avg_fn(0.9), "use_buffers": True},
    "exponential, one by one": {"avg_fn": swa_utils.get_ema_avg_fn(0.9)},
    "stochastic": {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()},
}


@pytest.mark.parametrize("options", AVERAGES.values(), ids=AVERAGES)
def test_averaged_models(native, options):
    state, rate = averaged("cpu", nn.BatchNorm1d(3), **options)
    ours, our_rate = averaged("shark", nn.BatchNorm1d(3), **options)
    assert rate == our_rate
    for name, value in state.items():
        # By default the device's parameters are averaged by one operator, the CPU's one by one.
        torch.testing.assert_close(
            ours[name].cpu(), value, **({"rtol": 0, "atol": 0} if options else {})
        )


def test_exponential_average_is_compiled(run_both):
    run_both(lambda d: averaged(d, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)))


NORMS = [{}, {"foreach": True}, {"foreach": False}]


@pytest.mark.parametrize("options", NORMS, ids=str)
@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf"), 0.5])
def test_gradients_are_clipped(native, norm_type, options):
    results = []
    for d in ("cpu", "shark"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).to(d)
        model(torch.rand(5, 4).to(d)).square().sum().backward()
        grads = [p.grad for p in model.parameters()]
        total = nn.utils.get_total_norm(grads, norm_type, **options)
        clipped = nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm_type, **options)
        assert torch.equal(total, clipped)
        nn.utils.clip_grad_value_(model.parameters(), 0.01, **options)
        flat = nn.utils.parameters_to_vector(grads)
        results.append([total.cpu(), flat.cpu()])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_gradient_that_is_not_finite_is_an_error_if_asked_for(native):
    p = nn.Parameter(torch.ones(2, device="shark"))
    p.grad = torch.tensor([1.0, float("nan")], device="shark")
    with pytest.raises(RuntimeError, match=r"The total norm of order 2.0 .* is non-finite"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)


def test_lazy_module_is_moved_before_it_has_shapes(native):
    for module in (nn.LazyLinear(3).shark(), nn.LazyLinear(3).to("shark")):
        assert module(torch.ones(2, 4, device="shark")).shape == (2, 3)
        assert module.weight.is_shark
