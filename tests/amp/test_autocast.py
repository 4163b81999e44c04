"""torch.autocast("shark") around programs: values, dtypes, nesting, the cache of cast weights."""

import copy
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.conftest import same

DTYPES = [torch.bfloat16, torch.float16]


def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 16), nn.ReLU(), nn.Linear(16, 5))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)
    )


def train(d, dtype, make=convolutions, **options):
    """Losses and weights of three steps; the casts of these operators are the CPU's too."""
    torch.manual_seed(0)
    model = make().to(d)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **options)
    x, y = torch.rand(4, 3, 6, 6).to(d), torch.rand(4, 5).to(d)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast(d, dtype=dtype, enabled=dtype != torch.float32):
            logits = model(x)
            loss = functional.mse_loss(logits, y)
        assert (logits.dtype, loss.dtype) == (dtype, torch.float32)
        loss.backward()
        assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(p.detach() for p in model.parameters())]


def attend(d, dtype):
    """A transformer layer's output and the gradient of its input."""
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(d)
    x = torch.rand(2, 5, 8).to(d).requires_grad_()
    with torch.autocast(d, dtype=dtype, enabled=dtype != torch.float32):
        y = layer(x)
    if d == "shark":
        assert y.dtype == torch.float32  # there, norms run in the lower precision
    y.float().square().mean().backward()
    return [y.detach(), x.grad]


def rounds_no_worse_than_the_cpu(program, dtype):
    """The distance from float32's results is about the CPU's own in the lower precision."""
    exact, rounded = program("cpu", torch.float32), program("cpu", dtype)
    ours = program("shark", dtype)
    for one, other, true in zip(ours, rounded, exact, strict=True):
        assert (one.cpu() - true).norm() <= 2 * (other - true).norm() + 1e-6 * true.norm()


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": False}], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_training(native, dtype, options):
    same(train("shark", dtype, **options), train("cpu", dtype, **options), exact=True)


@pytest.mark.parametrize("make", [perceptron, pytest.param(convolutions, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_compiled_training(compiled, dtype, make):
    rounds_no_worse_than_the_cpu(lambda *where: train(*where, make=make), dtype)
    assert torch.shark.metrics().regions > 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transformer_layer_keeps_its_norms_in_float32(native, dtype):
    rounds_no_worse_than_the_cpu(attend, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_compiled_transformer_layer(compiled, dtype):
    rounds_no_worse_than_the_cpu(attend, dtype)
    assert torch.shark.metrics().regions > 0


def recurrent(layer, x):
    return (layer(x.unsqueeze(0))[0] if isinstance(layer, nn.RNNBase) else layer(x)[0]).detach()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_layers_run_in_the_lower_precision(native, cell, dtype):
    torch.manual_seed(0)
    x, layer = torch.rand(5, 3), cell(3, 4)
    exact, rounded = recurrent(layer, x), recurrent(copy.deepcopy(layer).to(dtype), x.to(dtype))
    with torch.autocast("shark", dtype=dtype):
        y = recurrent(layer.to("shark"), x.to("shark"))
    assert y.dtype == dtype
    # The CPU adds the biases inside the products, the device after them.
    assert (y.cpu() - exact).abs().max() <= 2 * (rounded - exact).abs().max()


def test_lower_precision_is_compiled_too(policy):
    a, b = torch.rand(8, 8, device="shark"), torch.rand(8, 8, device="shark")
    for _ in range(2):
        torch.shark.synchronize()
        torch.shark.reset_metrics()
        with torch.autocast("shark", dtype=torch.bfloat16):
            c = torch.relu(a @ b)
        torch.shark.synchronize()
    counts = torch.shark.metrics()
    assert counts.regions == (1 if policy == "iree" else 0)
    expected = torch.relu(a.cpu().bfloat16() @ b.cpu().bfloat16())
    same(c.cpu(), expected, exact=policy == "native")


def test_default_dtype_is_that_of_cuda(native):
    assert torch.get_autocast_dtype("shark") == torch.get_autocast_dtype("cuda") == torch.float16
    assert not torch.is_autocast_enabled("shark")
    x = torch.ones(2, 2, device="shark")
    with torch.autocast("shark"):
        assert torch.is_autocast_enabled("shark")
        assert (x @ x).dtype == torch.float16
    assert (x @ x).dtype == torch.float32


def test_other_devices_keep_their_own_autocast(native):
    x, y = torch.ones(2, 2, device="shark"), torch.ones(2, 2)
    with torch.autocast("shark", dtype=torch.bfloat16):
        assert (y @ y).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32
        assert (y @ y).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8], ids=str)
def test_dtype_that_is_no_half_disables_it_with_a_warning(native, dtype):
    x = torch.ones(2, 2, device="shark")
    with pytest.warns(UserWarning, match="only supports dtypes of torch.float16, torch.bfloat16"):
        casting = torch.autocast("shark", dtype=dtype)
    with casting:
        assert (x @ x).dtype == torch.float32


def test_regions_nest(native):
    x = torch.ones(2, 2, device="shark")
    with torch.autocast("shark", dtype=torch.bfloat16):
        outer = x @ x
        with torch.autocast("shark", enabled=False):
            assert (x @ outer.float()).dtype == torch.float32
            with torch.autocast("shark", dtype=torch.float16):
                assert (x @ x).dtype == torch.float16
        assert (x @ x).dtype == torch.bfloat16


def test_decorator_and_threads(native):
    x = torch.ones(2, 2, device="shark")

    @torch.autocast("shark", dtype=torch.bfloat16)
    def product():
        return (x @ x).dtype

    assert product() == torch.bfloat16
    seen = []
    with torch.autocast("shark"):
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join()
    assert seen == [torch.float32]  # it is of one thread


@pytest.mark.parametrize("cached", [True, False])
def test_weight_is_cast_once(native, cached):
    weight = torch.ones(4, 4, device="shark", requires_grad=True)
    x = torch.ones(4, 4, device="shark").half()

    def steps():
        with torch.autocast("shark", cache_enabled=cached):
            return (x @ weight + x @ weight + x @ weight).sum()

    steps()  # first calls run at once
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    steps().backward()
    torch.shark.synchronize()
    casts = torch.shark.metrics().native_steps["aten::copy_"]
    backward = 1 if cached else 3  # the gradient of each cast is cast back
    assert casts == (1 if cached else 3) + backward + 1  # and sum() casts its argument
    assert weight.grad.tolist() == [[12.0] * 4] * 4


def test_cached_cast_does_not_outlive_its_region(native):
    weight = torch.ones(2, 2, device="shark", requires_grad=True)
    x = torch.ones(2, 2, device="shark")
    for value in (1.0, 3.0):
        with torch.no_grad():
            weight.fill_(value)
        with torch.autocast("shark"):
            assert (x @ weight).tolist() == [[2 * value] * 2] * 2


seen_in_product = []


class Product(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="shark")
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        seen_in_product.append(torch.is_autocast_enabled("shark"))
        return a @ b

    @staticmethod
    @torch.amp.custom_bwd(device_type="shark")
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        seen_in_product.append(torch.is_autocast_enabled("shark"))
        product = grad @ b.t()
        assert product.dtype == torch.float16
        return product, a.t() @ grad


class InFloat32(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="shark", cast_inputs=torch.float32)
    def forward(ctx, a):
        assert (a.dtype, torch.is_autocast_enabled("shark")) == (torch.float32, False)
        return a.exp()

    @staticmethod
    @torch.amp.custom_bwd(device_type="shark")
    def backward(ctx, grad):
        assert not torch.is_autocast_enabled("shark")
        return grad


def test_custom_functions_see_the_state_of_their_forward(native):
    a = torch.ones(2, 2, device="shark", requires_grad=True)
    seen_in_product.clear()
    with torch.autocast("shark"):
        y = Product.apply(a, a)
        assert y.dtype == torch.float16
        z = InFloat32.apply(y)
        assert z.dtype == torch.float32
    z.sum().backward()
    assert seen_in_product == [True, True]
    assert a.grad.dtype == torch.float32


def test_checkpoint_recomputes_under_the_same_casts(native):
    weight = torch.rand(4, 4, device="shark", requires_grad=True)
    seen = []

    def block(x):
        y = x @ weight
        seen.append(y.dtype)
        return y.relu()

    with torch.autocast("shark", dtype=torch.bfloat16):
        y = torch.utils.checkpoint.checkpoint(
            block, torch.rand(4, 4, device="shark"), use_reentrant=False
        )
    y.sum().backward()
    assert seen == [torch.bfloat16] * 2


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_attention_in_training_and_evaluation(native, dtype, training):
    def program(d, dtype):
        torch.manual_seed(0)
        layer = nn.MultiheadAttention(8, 2, batch_first=True).train(training).to(d)
        x = torch.rand(2, 3, 8).to(d)
        casting = torch.autocast(d, dtype=dtype, enabled=dtype != torch.float32)
        with torch.inference_mode(not training), casting:
            y = layer(x, x, x, need_weights=False)[0].detach()
        assert y.dtype == dtype
        return [y]

    rounds_no_worse_than_the_cpu(program, dtype)
