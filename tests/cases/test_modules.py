"""Cases 17 and 18: modules keep their ties and their dtypes on the way to the device."""

import copy

import torch
from torch import nn


class Tied(nn.Module):
    """A language model's shape: the output layer has the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.output = nn.Linear(4, 5, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        return self.output(self.embedding(tokens))


def loss_of(model, d):
    model(torch.tensor([0, 3, 3], device=d)).square().sum().backward()


def test_tied_weights_stay_one_parameter_and_gather_both_gradients(run_both):
    def program(d):
        model = Tied().to(d)
        assert model.output.weight is model.embedding.weight
        assert [name for name, _ in model.named_parameters()] == ["embedding.weight"]
        loss_of(model, d)
        return model.embedding.weight.grad, dict(model.state_dict())

    run_both(program)


def test_tie_after_the_move_holds(run_both):
    def program(d):
        model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)).to(d)
        model[1].weight = model[0].weight
        model(torch.ones(2, 3, device=d)).sum().backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        optimizer.step()
        return len(list(model.parameters())), model[1].weight, model[0].weight.grad

    run_both(program)


def test_module_to_keeps_the_parameters_themselves():
    layer = nn.Linear(3, 2)
    parameters, optimizer = list(layer.parameters()), torch.optim.SGD(layer.parameters(), lr=1.0)
    layer.to("shark")
    assert all(a is b for a, b in zip(parameters, layer.parameters(), strict=True))
    assert all(p.is_shark for group in optimizer.param_groups for p in group["params"])


def test_deepcopy_keeps_the_tie_and_shares_nothing_with_the_original(run_both):
    def program(d):
        model = Tied().to(d)
        loss_of(model, d)
        twin = copy.deepcopy(model)
        assert twin.output.weight is twin.embedding.weight
        assert twin.output.weight.data_ptr() != model.output.weight.data_ptr()
        with torch.no_grad():
            twin.output.weight.mul_(2)
        return model.embedding.weight, twin.embedding.weight, twin.embedding.weight.grad

    run_both(program)


def test_deepcopy_keeps_views_of_one_storage(run_both):
    def program(d):
        base = torch.arange(6.0, device=d)
        both = copy.deepcopy([base, base[2:4], base.view(2, 3).t()])
        both[0].mul_(2)
        return base, both

    run_both(program, compiled=False)


def test_bfloat16_after_the_move_changes_the_data(run_both):
    def program(d):
        m = nn.Linear(4, 3).to(d).to(torch.bfloat16)
        assert all(p.dtype == torch.bfloat16 for p in m.parameters())
        assert m.weight.untyped_storage().nbytes() == 4 * 3 * 2
        return m.weight, m(torch.ones(2, 4, dtype=torch.bfloat16, device=d)).dtype, m.weight + 1

    run_both(program)


def test_dtypes_change_on_the_device_as_on_the_cpu(run_both):
    def program(d):
        norm = nn.BatchNorm1d(3).to(d).double()
        state = norm.state_dict()
        back = nn.Linear(3, 2).to(d).half().float()
        return {k: v.dtype for k, v in state.items()}, norm.weight, back.weight, back.bias

    run_both(program)


def test_move_and_dtype_in_one_call(run_both):
    def program(d):
        m = nn.Linear(4, 3).to(d, torch.float64)
        return m.weight, m(torch.ones(1, 4, dtype=torch.float64, device=d))

    run_both(program)


def test_move_back_to_the_cpu_takes_what_is_pending(run_both):
    def program(d):
        m = nn.Linear(2, 2).to(d)
        with torch.no_grad():
            m.weight.add_(1)
        pointer = m.weight
        m.cpu()
        assert m.weight is pointer
        return m.weight, m.weight.device.type

    run_both(program)


def test_buffers_and_batch_statistics_follow(run_both):
    def program(d):
        norm = nn.BatchNorm1d(3).to(d)
        x = torch.arange(12.0).view(4, 3).to(d)
        for _ in range(3):
            y = norm(x)
        norm.eval()
        return y, norm(x), norm.running_mean, norm.running_var, norm.num_batches_tracked

    run_both(program)


def test_parameters_flattened_and_back_keep_their_values(run_both):
    def program(d):
        m = nn.Linear(3, 2).to(d)
        flat = nn.utils.parameters_to_vector(m.parameters()) * 2
        nn.utils.vector_to_parameters(flat, m.parameters())
        return m.weight, m.bias

    run_both(program)


def test_encoder_takes_a_padded_batch(run_both):
    def program(d):
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        # The CPU would make a nested tensor of the batch, and round otherwise.
        encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=d != "cpu").eval().to(d)
        x = torch.arange(160.0).sin().view(2, 5, 16).to(d)
        padded = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]).bool().to(d)
        with torch.no_grad():
            return encoder(x, src_key_padding_mask=padded)

    run_both(program)
