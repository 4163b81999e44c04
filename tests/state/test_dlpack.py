"""DLPack, without copies: what one side writes the other reads, once the device is synchronized."""

import gc

import numpy as np
import pytest
import torch
from torch.utils import dlpack

from tests.conftest import error_of


def aligned(values, offset):
    """A numpy array whose address is `offset` past a multiple of 64 bytes."""
    room = np.zeros(values.nbytes + 128, dtype=np.uint8)
    start = -room.ctypes.data % 64 + offset
    array = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array


def test_numpy_sees_what_the_device_writes(policy):
    x = torch.arange(6.0, device="shark").view(2, 3) * 2
    array = np.from_dlpack(x)
    assert array.tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    for step in range(1, 4):
        x.mul_(2).add_(1)
        torch.shark.synchronize()
        assert array.tolist() == x.tolist(), step
    assert (torch.shark.metrics().regions > 0) == (policy == "iree")


def test_device_sees_what_numpy_writes(policy):
    x = torch.empty(4, device="shark")
    array = np.from_dlpack(x)
    array[:] = [1.0, 2.0, 3.0, 4.0]
    assert (x * 2 + 1).tolist() == [3.0, 5.0, 7.0, 9.0]
    array += 1
    assert (x * 2 + 1).tolist() == [5.0, 7.0, 9.0, 11.0]


@pytest.mark.parametrize("offset", [0, 16])
def test_array_becomes_a_tensor(policy, offset):
    array = aligned(np.arange(6, dtype=np.float32).reshape(2, 3), offset)
    x = torch.from_dlpack(array, device="shark")
    assert (x.device, x.dtype, x.stride()) == (torch.device("shark:0"), torch.float32, (3, 1))
    for _ in range(3):
        before = array.copy()
        x.mul_(2).add_(1)
        torch.shark.synchronize()
        assert np.array_equal(array, before * 2 + 1)
    array[0, 0] = 100
    assert (x[0] + 1).tolist()[0] == 101.0
    assert (torch.shark.metrics().regions > 0) == (policy == "iree")


@pytest.mark.filterwarnings("error")
def test_array_that_is_not_aligned_is_read_by_regions_without_a_word(policy):
    array = aligned(np.ones(8, dtype=np.float32), 4)
    x = torch.from_dlpack(array, device="shark")
    assert (x + 1).tolist() == [2.0] * 8


def test_strided_array(policy):
    array = np.arange(12, dtype=np.int64).reshape(3, 4)
    x = torch.from_dlpack(array[1:, ::2], device="shark")
    assert x.stride() == (4, 2)
    assert (x + 1).tolist() == (array[1:, ::2] + 1).tolist()
    x.zero_()
    torch.shark.synchronize()
    assert array.tolist() == [[0, 1, 2, 3], [0, 5, 0, 7], [0, 9, 0, 11]]


def test_memory_outlives_whoever_lent_it(native):
    array = np.from_dlpack(torch.arange(1000.0, device="shark") + 1)
    gc.collect()
    again = torch.arange(1000.0, device="shark") * 5  # would take the memory if it were free
    again.cpu()
    assert np.array_equal(array, np.arange(1000, dtype=np.float32) + 1)
    x = torch.from_dlpack(np.arange(1000, dtype=np.float32), device="shark")
    gc.collect()
    assert torch.equal(x.cpu(), torch.arange(1000.0))


def test_write_is_done_although_the_tensor_is_gone(policy):
    x = torch.arange(4.0, device="shark") + 1
    lent = np.from_dlpack(x)
    x.mul_(2).add_(1)
    del x
    torch.shark.synchronize()
    assert lent.tolist() == [3.0, 5.0, 7.0, 9.0]
    array = aligned(np.arange(4, dtype=np.float32), 0)
    torch.from_dlpack(array, device="shark").mul_(2).add_(1)
    torch.shark.synchronize()
    assert array.tolist() == [1.0, 3.0, 5.0, 7.0]


def alternate(x, y):
    """Write either in turn, and read the other one between: every order gives other values."""
    results = []
    for step in range(1, 4):
        x.add_(step)
        results.append(y * 2)
        y.mul_(3)
        results.append(x - 10)
    return [result.tolist() for result in results]


# Two parts of an array of 64.
PARTS = {
    "the same": (slice(0, 64), slice(0, 64)),
    "one in the other": (slice(0, 64), slice(16, 48)),
    "the other in one": (slice(16, 48), slice(0, 64)),
    "each in part": (slice(0, 32), slice(16, 48)),
    "side by side": (slice(0, 32), slice(32, 64)),
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_tensors_over_the_same_memory_see_each_other(policy, parts):
    array = aligned(np.arange(64, dtype=np.float32), 0)
    reference = torch.from_numpy(array.copy())
    expected = alternate(*(reference[part] for part in parts))
    x, y = (torch.from_dlpack(array[part], device="shark") for part in parts)
    assert alternate(x, y) == expected
    assert array.tolist() == reference.tolist()
    apart = parts == PARTS["side by side"]
    assert (torch.shark.metrics().regions > 0) == (policy == "iree" and apart)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_result_that_shrinks_a_tensor_leaves_it_over_its_memory(policy):
    def work(array, load):
        x, y = load(array), load(array)
        torch.nonzero(torch.tensor([0, 1, 1, 0, 1]).to(x.device), out=x)
        return x.shape, alternate(x, y)

    array = np.zeros(16, dtype=np.int64)
    expected = np.zeros(16, dtype=np.int64)
    assert work(array, lambda a: torch.from_dlpack(a, device="shark")) == work(
        expected, torch.from_numpy
    )
    assert array.tolist() == expected.tolist()


def test_tensor_that_comes_back_sees_what_it_was_lent_from(policy):
    t = torch.arange(256.0, device="shark").view(16, 16)
    reference = t.cpu()
    expected = alternate(reference, reference)
    torch.shark.reset_metrics()
    again = torch.from_dlpack(np.from_dlpack(t), device="shark")
    assert alternate(t, again) == expected
    assert t.tolist() == again.tolist() == reference.tolist()
    assert torch.shark.metrics().regions == 0
    del again
    gc.collect()
    assert alternate(t, t) == alternate(reference, reference)
    assert (torch.shark.metrics().regions > 0) == (policy == "iree")


def test_view_exports_its_part(native):
    x = torch.arange(12.0, device="shark").view(3, 4)
    array = np.from_dlpack(x[1:, ::2])
    assert array.tolist() == [[4.0, 6.0], [8.0, 10.0]]
    array[0, 0] = -1
    assert x[1, 0].item() == -1.0


DTYPES = [torch.float64, torch.float16, torch.int8, torch.uint8, torch.int64, torch.bool,
          torch.complex64]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(native, dtype):
    x = torch.tensor([0, 1, 3]).to(dtype)
    array = np.from_dlpack(x.to("shark"))
    assert torch.equal(torch.from_numpy(array.copy()), x)
    assert torch.equal(torch.from_dlpack(x.numpy(), device="shark").cpu(), x)


SHAPES = [(), (0,), (0, 3), (1,), (2, 1, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(native, shape):
    x = torch.rand(shape)
    array = np.from_dlpack(x.to("shark"))
    assert array.shape == shape
    assert torch.equal(torch.from_numpy(array.copy()), x)
    y = torch.from_dlpack(x.numpy(), device="shark")
    assert torch.equal((y + 1).cpu(), x + 1)


def test_dtype_that_numpy_lacks(native):
    x = torch.arange(3.0, device="shark").bfloat16()
    host = torch.from_dlpack(x, device="cpu")
    assert host.dtype == torch.bfloat16
    host.add_(1)
    assert x.tolist() == [1.0, 2.0, 3.0]
    assert torch.from_dlpack(host, device="shark").dtype == torch.bfloat16


def test_tensor_of_the_device_stays_there(native):
    x = torch.arange(4.0, device="shark")
    y = torch.from_dlpack(x)
    assert y.is_shark
    assert y.data_ptr() == x.data_ptr()
    y.add_(1)
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert torch.from_dlpack(x, device="shark:0").data_ptr() == x.data_ptr()
    copied = torch.from_dlpack(x, copy=True)
    assert copied.is_shark
    assert copied.data_ptr() != x.data_ptr()


def test_subclasses_are_exported_as_plain_tensors(native):
    class Named(torch.Tensor):
        pass

    x = torch.arange(3.0, device="shark").as_subclass(Named)
    assert np.from_dlpack(x).tolist() == [0.0, 1.0, 2.0]
    y = torch.from_dlpack(x)
    assert type(y) is torch.Tensor
    assert y.data_ptr() == x.data_ptr()
    parameter = torch.nn.Parameter(torch.ones(2, device="shark"), requires_grad=False)
    assert np.from_dlpack(parameter).tolist() == [1.0, 1.0]


def test_to_the_cpu_and_back(native):
    x = torch.arange(4.0, device="shark")
    host = torch.from_dlpack(x, device="cpu")
    assert host.device.type == "cpu"
    host[0] = 7
    assert x[0].item() == 7.0
    again = torch.from_dlpack(host, device="shark")
    again.add_(1)
    torch.shark.synchronize()
    assert host.tolist() == x.tolist() == [8.0, 2.0, 3.0, 4.0]
    apart = torch.from_dlpack(x, device="cpu", copy=True)
    apart.zero_()
    assert x[0].item() == 8.0


def test_capsules(native):
    x = torch.arange(4.0, device="shark") + 1
    for capsule in (dlpack.to_dlpack(x), torch.to_dlpack(x), x.__dlpack__()):
        assert "dltensor" in repr(capsule)
        host = torch.from_dlpack(capsule)
        host.mul_(2)
    assert x.tolist() == [8.0, 16.0, 24.0, 32.0]
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 0)))


def test_device_of_the_memory_is_the_cpu(native):
    x = torch.ones(2, device="shark")
    assert x.__dlpack_device__() == (dlpack.DLDeviceType.kDLCPU, 0)
    assert torch.from_dlpack(x.__dlpack__(dl_device=(1, 0), copy=True)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("stream", [None, -1, 0, 1, 2])
def test_every_stream_of_a_consumer_is_taken(native, stream):
    x = torch.ones(2, device="shark") + 1
    assert torch.from_dlpack(x.__dlpack__(stream=stream)).tolist() == [2.0, 2.0]


WRONG = {
    "requires grad": lambda d: np.from_dlpack(torch.ones(2, device=d, requires_grad=True)),
    "conjugate": lambda d: torch.ones(2, dtype=torch.complex64, device=d).conj().__dlpack__(),
    "stream": lambda d: torch.ones(2, device=d).__dlpack__(stream="no"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_cannot_be_exported_is_refused_as_on_the_cpu(native, wrong):
    assert error_of(lambda: wrong("shark")) == error_of(lambda: wrong("cpu"))


def test_failed_tensor_is_not_exported(native):
    table = torch.ones(2, 2, device="shark")
    for i in (0, 1):
        torch.nn.functional.embedding(torch.tensor([i]).to("shark"), table).cpu()
    bad = torch.nn.functional.embedding(torch.tensor([5]).to("shark"), table)
    with pytest.raises(IndexError):
        np.from_dlpack(bad)
    with pytest.raises(RuntimeError, match="expected a tensor with a value"):
        np.from_dlpack(bad)


def test_gradients_flow_through_a_borrowed_tensor(native):
    array = np.ones((2, 2), dtype=np.float32)
    x = torch.from_dlpack(array, device="shark").requires_grad_()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [[3.0, 3.0]] * 2


NUMPY = {
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "array": np.array,
    "__array__": lambda x: x.__array__(),
    "ufunc": lambda x: np.add(np.ones(3), x),
    "from_numpy op": lambda x: x + np.ones(3),
}


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")
@pytest.mark.parametrize("convert", NUMPY.values(), ids=NUMPY)
def test_implicit_conversions_are_refused_in_cudas_words(native, convert):
    with pytest.raises(
        TypeError,
        match=r"can't convert shark:0 device type tensor to numpy. Use Tensor.cpu\(\) to copy",
    ):
        convert(torch.ones(3, device="shark"))


def test_forced_conversion_copies(native):
    x = torch.ones(3, device="shark", requires_grad=True)
    array = x.numpy(force=True)
    array[0] = 5
    assert x.tolist() == [1.0, 1.0, 1.0]
