"""Case 19: what is saved on the device loads on it and on the CPU."""

import io
import pickle

import pytest
import torch
from torch import nn


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    buffer.seek(0)
    return buffer


@pytest.fixture(params=[True, False], ids=["zip", "legacy"])
def save(request):
    return lambda value: saved(value, _use_new_zipfile_serialization=request.param)


@pytest.mark.parametrize("place", ["cpu", "shark", None])
def test_tensor_loads_wherever_it_is_wanted(policy, save, place):
    x = torch.arange(6.0, device="shark").view(2, 3)
    y = x * 2 + 1  # pending while it is saved
    loaded = torch.load(save(y), map_location=place, weights_only=True)
    assert loaded.device.type == (place or "shark")
    assert torch.equal(loaded.cpu(), torch.arange(6.0).view(2, 3) * 2 + 1)
    assert torch.equal((loaded + 1).cpu(), y.cpu() + 1)


@pytest.mark.parametrize("place", ["cpu", "shark"])
def test_views_of_one_storage_stay_shared(policy, save, place):
    base = torch.arange(6.0, device="shark").add(1)
    pair = torch.load(save([base[1:4], base.view(2, 3).t()]), map_location=place)
    pair[0].mul_(10)
    torch.shark.synchronize()
    assert pair[1].stride() == (1, 3)
    expected = torch.arange(6.0).add(1)
    expected[1:4].mul_(10)
    assert torch.equal(pair[1].cpu(), expected.view(2, 3).t())
    assert torch.equal(base.cpu(), torch.arange(6.0).add(1))


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool,
     torch.complex64],
)  # fmt: skip
def test_every_dtype_survives(policy, dtype):
    x = torch.tensor([0, 1, 2]).to(dtype)
    loaded = torch.load(saved(x.to("shark")))
    assert loaded.is_shark
    assert loaded.dtype == dtype
    assert torch.equal(loaded.cpu(), x)


def test_cpu_file_loads_onto_the_device(policy):
    x = torch.rand(3, 2).t()
    loaded = torch.load(saved(x), map_location=torch.device("shark", 0))
    assert loaded.is_shark
    assert loaded.stride() == x.stride()
    assert torch.equal(loaded.cpu(), x)


def model_and_optimizer(d):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).to(d)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def train(model, optimizer, d):
    optimizer.zero_grad()
    model(torch.arange(12.0).view(4, 3).to(d)).square().mean().backward()
    optimizer.step()


def test_training_goes_on_after_a_checkpoint(run_both):
    def program(d):
        model, optimizer = model_and_optimizer(d)
        train(model, optimizer, d)
        file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        other, its_optimizer = model_and_optimizer(d)
        state = torch.load(file, map_location=d, weights_only=True)
        assert other.load_state_dict(state["model"]) == ([], [])
        its_optimizer.load_state_dict(state["optimizer"])
        train(model, optimizer, d)
        train(other, its_optimizer, d)
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one.detach().cpu(), two.detach().cpu())
        return 0

    run_both(program)


def test_state_dict_of_the_cpu_loads_into_a_model_on_the_device(policy):
    source, target = nn.Linear(3, 2), nn.Linear(3, 2).to("shark")
    weight = target.weight
    target.load_state_dict(source.state_dict())
    assert target.weight is weight
    assert torch.equal(weight.detach().cpu(), source.weight.detach())
    fresh = nn.Linear(3, 2).to("shark")
    fresh.load_state_dict(target.state_dict(), assign=True)
    assert torch.equal(fresh.bias.detach().cpu(), source.bias.detach())


def test_whole_module_and_pickle(policy):
    layer = nn.Linear(3, 2).to("shark")
    loaded = torch.load(saved(layer), weights_only=False)
    assert isinstance(loaded.weight, nn.Parameter)
    assert loaded.weight.is_shark
    again = pickle.loads(pickle.dumps(layer.weight))
    for one in (loaded.weight, again):
        assert torch.equal(one.detach().cpu(), layer.weight.detach().cpu())


def test_generator_state_is_saved(policy):
    torch.manual_seed(4)
    state = torch.load(saved(torch.shark.get_rng_state()))
    first = torch.rand(3, device="shark").cpu()
    torch.shark.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="shark").cpu(), first)
