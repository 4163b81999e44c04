"""safetensors files: written from the device, read onto it."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from torch import nn

pytestmark = pytest.mark.usefixtures("native")
TENSORS = {
    "float": torch.arange(6.0).view(2, 3),
    "half": torch.arange(4.0).half(),
    "bfloat": torch.arange(4.0).bfloat16(),
    "long": torch.arange(3),
    "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tensors.safetensors"
    save_file({name: x.to("shark") for name, x in TENSORS.items()}, path)
    return path


@pytest.mark.parametrize("device", ["cpu", "shark", "shark:0", 0, torch.device("shark")], ids=str)
def test_file_is_loaded_where_it_is_wanted(file, device):
    loaded = load_file(file, device=device)
    assert loaded.keys() == TENSORS.keys()
    for name, x in loaded.items():
        assert x.device.type == ("cpu" if device == "cpu" else "shark")
        assert x.dtype == TENSORS[name].dtype
        assert torch.equal(x.cpu(), TENSORS[name])


def test_parts_of_a_file(file):
    with safe_open(file, framework="pt", device="shark") as opened:
        assert set(opened.keys()) == set(TENSORS)
        row = opened.get_slice("float")[1:, :2]
        whole = opened.get_tensor("float")
    assert row.is_shark
    assert row.tolist() == [[3.0, 4.0]]
    assert torch.equal(whole.cpu(), TENSORS["float"])


def test_bytes():
    loaded = load(save({"x": torch.ones(2, device="shark") + 1}))
    assert loaded["x"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("device", ["cpu", "shark"])
def test_model_with_tied_weights(tmp_path, device):
    def tied():
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        model[1].weight = model[0].weight
        return model.to("shark")

    one, two = tied(), tied()
    save_model(one, tmp_path / "model.safetensors")
    assert load_model(two, tmp_path / "model.safetensors", device=device) == (set(), [])
    assert two[0].weight is two[1].weight
    assert torch.equal(two[1].weight.cpu(), one[0].weight.cpu())
    assert torch.equal(two[1].bias.cpu(), one[1].bias.cpu())


def test_shared_memory_and_strides_are_refused_as_on_the_cpu(tmp_path):
    for make in (lambda x: {"a": x, "b": x[0]}, lambda x: {"a": x.t()}):
        errors = []
        for d in ("cpu", "shark"):
            with pytest.raises((RuntimeError, ValueError)) as caught:
                save_file(make(torch.ones(2, 3).to(d)), tmp_path / "bad")
            errors.append((caught.type, str(caught.value)))
        assert errors[0] == errors[1]


def test_device_that_is_not_there_is_refused(file):
    with pytest.raises(RuntimeError, match="expected a device index below 1, got 2"):
        load_file(file, device="shark:2")
