"""What is saved loads wherever it is wanted: every form of map_location, every kind of file."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("native")


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    buffer.seek(0)
    return buffer


# What is given as map_location, and where a tensor of the device and one of the CPU then are.
PLACES = {
    "None": (None, "shark", "cpu"),
    "cpu": ("cpu", "cpu", "cpu"),
    "shark": ("shark", "shark", "shark"),
    "shark:0": ("shark:0", "shark", "shark"),
    "meta": ("meta", "meta", "meta"),
    "device": (torch.device("shark"), "shark", "shark"),
    "device with index": (torch.device("shark", 0), "shark", "shark"),
    "cpu device": (torch.device("cpu"), "cpu", "cpu"),
    "map to the cpu": ({"shark:0": "cpu"}, "cpu", "cpu"),
    "map from the cpu": ({"cpu": "shark:0"}, "shark", "shark"),
    "function that keeps": (lambda storage, location: storage, "cpu", "cpu"),
    "function that leaves it": (lambda storage, location: None, "shark", "cpu"),
    "function that moves": (lambda storage, location: storage.shark(), "shark", "shark"),
}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_map_location(place, weights_only, zipped):
    map_location, of_ours, of_the_cpus = PLACES[place]
    x = torch.arange(6.0).view(2, 3).t()
    for tensor, expected in ((x.to("shark"), of_ours), (x, of_the_cpus)):
        file = saved(tensor, _use_new_zipfile_serialization=zipped)
        loaded = torch.load(file, map_location=map_location, weights_only=weights_only)
        assert loaded.device.type == expected
        assert (loaded.shape, loaded.stride()) == (x.shape, x.stride())
        if expected != "meta":
            assert torch.equal(loaded.cpu(), x)


def test_function_is_told_the_location():
    seen = []
    torch.load(
        saved(torch.ones(2, device="shark")), map_location=lambda s, where: seen.append(where)
    )
    assert seen == ["shark:0"]


def test_device_that_is_not_there_is_refused():
    with pytest.raises(RuntimeError, match=r"SHARK device 3 but torch.shark.device_count\(\) is 1"):
        torch.load(saved(torch.ones(2)), map_location="shark:3")


@pytest.mark.parametrize("place", [None, "cpu", "shark"])
def test_file_that_is_mapped(tmp_path, place):
    x = torch.arange(6.0, device="shark") + 1
    torch.save({"x": x}, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt", mmap=True, map_location=place)["x"]
    assert loaded.device.type == (place or "shark")
    assert torch.equal(loaded.cpu(), x.cpu())
    assert loaded.add_(1).tolist() == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_protocols(protocol):
    x = torch.arange(6.0, device="shark").view(2, 3)[:, 1:]
    module = nn.Linear(2, 2).to("shark")
    y, other = pickle.loads(pickle.dumps((x, module), protocol))
    assert y.is_shark
    assert y.stride() == x.stride()
    assert torch.equal(y.cpu(), x.cpu())
    assert torch.equal(other.weight.cpu(), module.weight.cpu())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
        self.two.weight = self.one.weight
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))


@pytest.mark.parametrize("source", ["cpu", "shark"])
@pytest.mark.parametrize("assign", [False, True])
def test_state_dict_between_devices(source, assign):
    torch.manual_seed(0)
    one, two = Tied().to(source), Tied().to("shark")
    before = two.one.weight
    two.load_state_dict(one.state_dict(), assign=assign)
    assert (two.one.weight is before) == (not assign)
    assert two.one.weight.device.type == (source if assign else "shark")
    assert torch.equal(two.one.weight.cpu(), one.one.weight.cpu())
    assert torch.equal(two.one.weight.cpu(), two.two.weight.cpu())
    assert two.one.weight.requires_grad


def test_model_on_meta_takes_its_state():
    source = Tied().to("shark")
    with torch.device("meta"):
        target = Tied()
    target.load_state_dict(source.state_dict(), assign=True)
    assert {p.device.type for p in target.parameters()} == {"shark"}
    with torch.device("meta"):
        empty = Tied()
    empty.to_empty(device="shark").load_state_dict(source.state_dict())
    assert torch.equal(empty.one.weight.cpu(), source.one.weight.cpu())


def test_wrong_state_is_refused_in_the_same_words():
    errors = []
    for d in ("cpu", "shark"):
        with pytest.raises(RuntimeError) as caught:
            nn.Linear(2, 3).to(d).load_state_dict(
                {"weight": torch.ones(2, 2), "more": torch.ones(1)}
            )
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_deepcopy_keeps_ties_views_and_hooks():
    model = Tied().to("shark")
    twin = copy.deepcopy(model)
    assert twin.one.weight is twin.two.weight
    assert twin.one.weight.data_ptr() != model.one.weight.data_ptr()
    base = torch.arange(6.0, device="shark")
    a, b = copy.deepcopy([base, base[2:]])
    a.add_(1)
    assert b.tolist() == [3.0, 4.0, 5.0, 6.0]
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    leaf = torch.ones(2, device="shark", requires_grad=True)
    (leaf * 2).sum().backward()
    assert copy.deepcopy(leaf).grad.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(leaf * 2)
    assert copy.copy(base).data_ptr() == base.data_ptr()


def test_optimizer_state_follows_its_parameters():
    torch.manual_seed(0)
    states = {}
    for d in ("cpu", "shark"):
        p = nn.Parameter(torch.ones(3, device=d))
        optimizer = torch.optim.Adam([p], lr=0.1)
        p.grad = torch.ones(3, device=d)
        optimizer.step()
        states[d] = saved(optimizer.state_dict())
    for d in ("cpu", "shark"):
        for source, file in states.items():
            file.seek(0)
            p = nn.Parameter(torch.ones(3, device=d))
            optimizer = torch.optim.Adam([p], lr=0.1)
            optimizer.load_state_dict(torch.load(file, map_location=None))
            moment = optimizer.state[p]["exp_avg"]
            assert moment.device.type == d, source
            assert torch.equal(moment.cpu(), torch.full((3,), 0.1))


def test_generators_are_pickled_and_copied():
    generator = torch.Generator("shark").manual_seed(5)
    torch.rand(3, device="shark", generator=generator)
    others = [pickle.loads(pickle.dumps(generator)), copy.deepcopy(generator)]
    expected = torch.rand(3, device="shark", generator=generator).cpu()
    for other in others:
        assert other.device == torch.device("shark:0")
        assert torch.equal(torch.rand(3, device="shark", generator=other).cpu(), expected)
