"""Copies between the host and the device and within it: dtypes, layouts, broadcasting."""

import pytest
import torch

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
    torch.complex64, torch.complex128, torch.complex32, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def sample(dtype):
    values = torch.tensor([[0, 1, 2], [3, 4, 100]])
    return values.to(torch.float32).to(dtype)


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_as_it_went(native, dtype):
    x = sample(dtype)
    y = x.to("shark")
    assert (y.dtype, y.stride()) == (dtype, x.stride())
    assert torch.equal(bits(y.cpu()), bits(x))
    assert torch.equal(bits(y.clone().cpu()), bits(x))
    assert torch.equal(bits(y.t().cpu()), bits(x.t()))


CONVERTED = [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("target", CONVERTED, ids=str)
@pytest.mark.parametrize("source", CONVERTED, ids=str)
def test_dtypes_convert_as_on_the_cpu_wherever_the_copy_goes(native, source, target):
    x, expected = sample(source), sample(source).to(target)
    y = x.to("shark")
    assert torch.equal(x.to("shark", target).cpu(), expected)
    assert torch.equal(y.to(target).cpu(), expected)
    assert torch.equal(y.to("cpu", target), expected)
    for destination in (torch.zeros(2, 3, dtype=target), torch.zeros(2, 3, dtype=target).shark()):
        assert torch.equal(destination.copy_(x).cpu(), expected)
        assert torch.equal(destination.zero_().copy_(y).cpu(), expected)


LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.t(),
    "step": lambda x: x[:, ::2],
    "row": lambda x: x[1],
    "offset": lambda x: x[1:, 2:],
    "expanded": lambda x: x[:, :1].expand(4, 5),
    "overlapping": lambda x: x.view(-1).as_strided((4, 3), (2, 1)),
    "channels last": lambda x: x.view(1, 2, 2, 6).contiguous(memory_format=torch.channels_last),
    "scalar": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("view", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_come_back_as_on_the_cpu(native, view):
    host = torch.arange(24.0).view(4, 6)
    x = view(host)
    y = x.to("shark")
    again = x.to("cpu", copy=True)
    assert y.stride() == again.stride()
    assert torch.equal(y.cpu(), x)
    device = view(host.to("shark"))
    assert torch.equal(device.cpu(), x)
    assert device.cpu().stride() == again.stride()
    assert device.clone().stride() == x.clone().stride()
    assert torch.equal(device.contiguous().cpu(), x)


INTO = {
    "dense": lambda x: x,
    "transposed": lambda x: x.t(),
    "step": lambda x: x[:, ::2],
    "rows": lambda x: x[1:3],
}
FROM = {
    "same": lambda shape: torch.arange(1.0, 1 + shape.numel()).view(shape),
    "transposed": lambda shape: torch.arange(1.0, 1 + shape.numel()).view(shape[::-1]).t(),
    "broadcast row": lambda shape: torch.arange(float(shape[1])),
    "scalar": lambda shape: torch.tensor(7.0),
    "ints": lambda shape: torch.arange(shape.numel()).view(shape),
}


@pytest.mark.parametrize("source", FROM.values(), ids=FROM)
@pytest.mark.parametrize("target", INTO.values(), ids=INTO)
def test_copy_into_a_view_writes_it_alone(policy, target, source):
    expected = torch.full((4, 6), -1.0)
    values = source(target(expected).shape)
    target(expected).copy_(values)
    for from_host in (True, False):
        for to_host in (True, False):
            base = torch.full((4, 6), -1.0).to("cpu" if to_host else "shark")
            target(base).copy_(values if from_host else values.to("shark"))
            assert torch.equal(base.cpu(), expected), (from_host, to_host)
    assert (torch.shark.metrics().regions > 0) == (policy == "iree")


def test_host_tensor_may_change_right_after_the_copy(policy):
    host = torch.ones(4)
    fresh, old = host.to("shark", non_blocking=True), torch.zeros(4, device="shark")
    old.add_(1)
    old.copy_(host, non_blocking=True)
    host.fill_(9)
    assert (fresh + old).tolist() == [2.0] * 4


def test_device_tensor_may_change_right_after_the_copy(policy):
    x = torch.ones(4, device="shark")
    host = x.to("cpu", non_blocking=True)
    kept = x.clone()
    x.fill_(9)
    torch.shark.synchronize()
    assert host.tolist() == kept.tolist() == [1.0] * 4


def test_pinned_memory(native):
    host = torch.arange(4.0).pin_memory()
    assert host.is_pinned()
    assert host[1:].is_pinned()
    assert not torch.arange(4.0).is_pinned()
    assert not host.to("shark").is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    x = host.to("shark", non_blocking=True)
    back = torch.empty(4).pin_memory().copy_(x, non_blocking=True)
    torch.shark.synchronize()
    assert torch.equal(back, torch.arange(4.0))
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.pin_memory()


def test_copy_to_oneself_and_to_a_view_of_oneself(policy):
    x = torch.arange(4.0, device="shark")
    assert x.copy_(x) is x
    x[:2].copy_(x[2:])
    assert x.tolist() == [2.0, 3.0, 2.0, 3.0]
    assert x.to("shark") is x
    assert x.to("shark", copy=True) is not x


def test_upload_is_no_window_and_download_is_one(policy):
    torch.shark.synchronize()
    torch.shark.reset_metrics()
    x = torch.arange(6.0).view(2, 3).to("shark")
    assert torch.shark.metrics().recorded == 0
    (x + 1).cpu()
    counts = torch.shark.metrics()
    assert (counts.recorded, counts.windows, counts.flushes["sync"]) == (1, 1, 1)


def test_values_read_one_by_one(policy):
    x = torch.tensor([1.5, 0.0, -2.0], device="shark")
    assert (x[0].item(), float(x[2]), int(x[0]), bool(x[1])) == (1.5, -2.0, 1, False)
    assert x.tolist() == [1.5, 0.0, -2.0]
    assert [v.item() for v in x] == [1.5, 0.0, -2.0]
    assert 1.5 in x
    assert torch.equal(x, x.clone())
    assert torch.allclose(x, x.cpu().to("shark"))
    assert x[0] > x[1]
    assert torch.as_tensor(x, device="cpu").tolist() == x.tolist()
    assert list(range(5))[torch.tensor(2, device="shark")] == 2


def test_numpy_goes_by_way_of_the_host(native):
    array = torch.arange(3.0).numpy()
    x = torch.from_numpy(array).to("shark")
    array += 1
    assert x.tolist() == [0.0, 1.0, 2.0]
    assert (x + 1).cpu().numpy().tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (7, 1, 5)])
def test_shapes_of_every_kind_round_trip(native, shape):
    x = torch.rand(shape)
    assert torch.equal(x.to("shark").cpu(), x)
    assert torch.equal(x.to("shark").clone().add(1).cpu(), x + 1)


def test_large_upload_and_download(native):
    x = torch.rand(1 << 21)
    y = x.to("shark")
    y[::3] = 0
    x[::3] = 0
    assert torch.equal(y.cpu(), x)
