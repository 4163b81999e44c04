"""Recurrent layers: PyTorch composes them for the CPU otherwise than for other devices."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

LAYERS = {
    "lstm": nn.LSTM,
    "projected-lstm": lambda *sizes, **options: nn.LSTM(*sizes, proj_size=3, **options),
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "deep": {"num_layers": 2, "dropout": 0.3, "bidirectional": True},
    "without-bias": {"bias": False, "batch_first": True, "bidirectional": True},
}


def results_of(model: nn.Module, x: torch.Tensor, *, packed: bool, gradients: bool) -> list[Any]:
    """The layer's output, its states and, if wanted, the gradients of everything."""
    torch.manual_seed(1)
    x = x.detach().requires_grad_(gradients)
    lengths = torch.tensor([4, 3, 3, 1])
    with torch.set_grad_enabled(gradients):
        first = model.batch_first
        given = pack_padded_sequence(x, lengths, batch_first=first) if packed else x
        output, states = model(given)
        data = output.data if isinstance(output, PackedSequence) else output
        results = [data, *(states if isinstance(states, tuple) else (states,))]
        if gradients:
            loss = sum(each.float().square().sum() for each in results)
            results += torch.autograd.grad(loss, [x, *model.parameters()])
    return results


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_layers_have_the_bits_of_the_cpu(native, layer, shape, packed):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for gradients in (False, True):
            torch.manual_seed(0)
            model = layer(5, 8, **shape).to(dtype)
            x = torch.randn(4, 4, 5).to(dtype)
            expected = results_of(model, x, packed=packed, gradients=gradients)
            moved = copy.deepcopy(model).to("shark")
            actual = results_of(moved, x.to("shark"), packed=packed, gradients=gradients)
            for one, other in zip(expected, actual, strict=True):
                assert other.is_shark
                assert other.stride() == one.stride()
                assert torch.equal(other.detach().cpu(), one.detach())


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_have_the_bits_of_the_cpu(native, cell):
    torch.manual_seed(0)
    model = cell(5, 8)
    x = torch.randn(3, 5)

    def run(device: str) -> list[torch.Tensor]:
        moved = copy.deepcopy(model).to(device)
        state = moved(x.to(device))
        states = state if isinstance(state, tuple) else (state,)
        loss = sum(each.sin().sum() for each in states)
        return [*states, *torch.autograd.grad(loss, list(moved.parameters()))]

    for one, other in zip(run("cpu"), run("shark"), strict=True):
        assert torch.equal(other.detach().cpu(), one.detach())


def test_an_lstm_is_one_operator_for_each_layer_and_direction(native):
    model = nn.LSTM(4, 5, num_layers=2, bidirectional=True).to("shark")
    x = torch.randn(3, 2, 4, device="shark")
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            model(x)
            torch.shark.synchronize()
            torch.shark.reset_metrics()
            model(x)
        torch.shark.synchronize()
        counts = torch.shark.metrics()
        assert counts.native_steps["shark::rnn_layer"] == 4
        assert counts.recorded == sum(counts.native_steps.values())


def test_wrong_sizes_raise_at_the_call(same_error):
    x = torch.randn(3, 2, 4)
    states = [torch.zeros(1, 2, 5), torch.zeros(1, 2, 5)]
    weights = [torch.randn(20, 4), torch.randn(20, 5)]

    def lstm(device, x=x, states=states, weights=weights, layers=1):
        move = [[each.to(device) for each in group] for group in ([x], states, weights)]
        return torch.lstm(move[0][0], move[1], move[2], False, layers, 0.0, False, False, False)

    same_error(lambda device: lstm(device, states=states[:1]))
    same_error(lambda device: lstm(device, states=[states[0][0], states[1]]))
    same_error(lambda device: lstm(device, layers=2))
    same_error(lambda device: nn.GRUCell(4, 5).to(device)(torch.zeros(2, 3, device=device)))


def test_packed_sequences_keep_their_lengths_on_the_cpu(native):
    x = torch.randn(2, 3, 4)
    packed = pack_padded_sequence(x.to("shark"), torch.tensor([3, 2]), batch_first=True)
    assert packed.batch_sizes.device.type == "cpu"
    assert packed.data.is_shark
    expected = pack_padded_sequence(x, torch.tensor([3, 2]), batch_first=True)
    assert torch.equal(packed.data.cpu(), expected.data)
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    assert torch.equal(padded.cpu(), pad_packed_sequence(expected, batch_first=True)[0])
    assert lengths.tolist() == [3, 2]
