"""Recurrent layers: PyTorch takes kernels for them that only CUDA has."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_layers_and_their_gradients_are_those_of_the_cpu(native, layer):
    torch.manual_seed(0)
    model = layer(4, 5, num_layers=2, bidirectional=True)
    x = torch.randn(3, 2, 4)
    expected = model(x)[0]
    expected.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.to("shark")
    torch.shark.reset_metrics()
    result = model(x.to("shark"))[0]
    result.sum().backward()
    torch.testing.assert_close(result.cpu(), expected)
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(p.grad.cpu(), gradient)
    assert torch.shark.metrics().native_steps["aten::tanh"] >= 6


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
