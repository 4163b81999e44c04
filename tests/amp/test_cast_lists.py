"""Every operator of CUDA's cast lists, by PyTorch's own arguments: its dtype and its value.

The value is that of the CPU's kernel for arguments that are cast by hand.
"""

import pytest
import torch
from torch.testing._internal.autocast_test_lists import AutocastTestLists

from tests.conftest import same

pytestmark = [
    pytest.mark.usefixtures("native"),
    pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated"),
    pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim"),
]
DTYPES = [torch.bfloat16, torch.float16]
RECURRENT = {"lstm_cell", "gru_cell"}  # composed otherwise than on the CPU: see test_autocast.py
NAMESPACES = (torch, torch._C._nn, torch._C._linalg, torch.Tensor)


def cases(*lists):
    """The calls of some of PyTorch's lists, on the CPU: name, function, arguments, keywords."""
    torch.manual_seed(0)
    ours, found = AutocastTestLists(torch.device("cpu")), []
    for name, args, *more in (case for each in lists for case in getattr(ours, each)):
        if name == "einsum":  # the list gives operands of too few dimensions
            args = "ab,cb->ac", *more[0]
        if name not in RECURRENT and not name.startswith("cudnn"):
            function = next(getattr(n, name) for n in NAMESPACES if hasattr(n, name))
            keywords = more[0] if more and isinstance(more[0], dict) else {}
            found.append(pytest.param(function, args, keywords, id=name))
    return found


def mapped(value, convert):
    """`value` with `convert` applied to each floating point tensor in it."""
    if isinstance(value, torch.Tensor):
        return convert(value) if value.is_floating_point() else value
    if isinstance(value, (tuple, list)):
        return type(value)(mapped(each, convert) for each in value)
    return value


def moved(value):
    if isinstance(value, torch.Tensor):
        return value.to("shark")
    if isinstance(value, (tuple, list)):
        return type(value)(moved(each) for each in value)
    return value


def check(function, args, keywords, dtype, run_as):
    """Under autocast to `dtype` the operator runs in `run_as`, with the CPU's value for that."""
    expected = function(*mapped(args, lambda x: x.to(run_as)), **keywords)
    on_device = moved(args)
    for _ in range(2):  # the first call runs at once, the second is recorded
        with torch.autocast("shark", dtype=dtype):
            actual = function(*on_device, **keywords)
        same(actual, expected, exact=True)
    first = actual[0] if isinstance(actual, tuple) else actual
    assert first.dtype == run_as


def test_the_lists_are_those_of_cuda():
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    cuda, ours = set(registered("AutocastCUDA")), set(registered("AutocastPrivateUse1"))
    assert cuda - ours == {"aten::cudnn_convolution", "aten::cudnn_convolution_transpose"}
    # What is one operator of cuDNN there, which casts all that it is given.
    layers = ("lstm", "gru", "rnn_tanh", "rnn_relu")
    more = {f"aten::{name}.{kind}" for name in layers for kind in ("input", "data")}
    assert ours - cuda == more | {"aten::_native_multi_head_attention"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("function", "args", "keywords"),
    cases("torch_fp16", "nn_fp16", "linalg_fp16", "methods_fp16"),
)
def test_lower_precision(function, args, keywords, dtype):
    check(function, args, keywords, dtype, run_as=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("function", "args", "keywords"), cases("torch_fp32", "nn_fp32", "methods_fp32")
)
def test_float32(function, args, keywords, dtype):
    halves = mapped(args, lambda x: x.to(dtype))
    check(function, halves, keywords, dtype, run_as=torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("function", "args", "keywords"), cases("torch_need_autocast_promote"))
def test_promoted_to_the_widest(function, args, keywords, dtype):
    mixed = mapped(args, lambda x: x if x.dtype == torch.float32 else x.to(dtype))
    check(function, mixed, keywords, dtype, run_as=torch.float32)
    halves = mapped(args, lambda x: x.to(dtype))
    check(function, halves, keywords, dtype, run_as=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("function", "args", "keywords"), cases("torch_expect_builtin_promote"))
def test_others_run_as_called(function, args, keywords, dtype):
    mixed = mapped(args, lambda x: x if x.dtype == torch.float32 else x.to(dtype))
    with torch.autocast("shark", dtype=dtype):
        same(function(*moved(mixed), **keywords), function(*mixed, **keywords), exact=True)


def test_a_dtype_that_is_asked_for_is_kept():
    x = torch.arange(1.0, 5.0, dtype=torch.float16, device="shark")
    with torch.autocast("shark"):
        assert x.sum(dtype=torch.float16).dtype == torch.float16
        assert x.softmax(0, dtype=torch.float16).dtype == torch.float16
        assert x.sum().dtype == x.softmax(0).dtype == x.norm().dtype == torch.float32


def test_doubles_and_integers_are_left_alone():
    x, i = torch.ones(2, 2, dtype=torch.float64, device="shark"), torch.ones(2, 2).long().shark()
    with torch.autocast("shark"):
        assert (x @ x).dtype == torch.float64
        assert (i @ i).dtype == torch.int64
        assert x.exp().dtype == torch.float64


def test_binary_cross_entropy_is_refused():
    p = torch.full((3,), 0.5, device="shark")
    loss = torch.nn.BCELoss()
    with torch.autocast("shark"):
        with pytest.raises(
            RuntimeError, match=r"BCELoss are unsafe to autocast.*(\n.*)*LogitsLoss"
        ):
            loss(p, p)
        logits = torch.nn.functional.binary_cross_entropy_with_logits(p.half(), p.half())
        assert logits.dtype == torch.float32
        with torch.autocast("shark", enabled=False):
            assert loss(p, p).dtype == torch.float32
