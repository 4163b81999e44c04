"""Memory is imported without a copy, once, and let go when it should be."""

import gc
import weakref

import numpy as np
import pytest
import torch

from torch_shark.runtime import BufferImportError
from torch_shark.runtime.device import get_device
from torch_shark.runtime.interop import ALIGNMENT, import_buffer


@pytest.fixture(scope="module")
def device():
    return get_device("local-task")


def test_one_device_for_a_driver(device):
    assert get_device("local-task") is device
    with pytest.raises(ValueError, match="no-such-driver"):
        get_device("no-such-driver")


def test_memory_is_shared(double, buffer):
    a, out = buffer(torch.ones(16)), buffer(torch.zeros(16))
    double([a], [out])
    a.tensor.fill_(3)
    double([a], [out])
    assert out.tensor.tolist() == [6.0] * 16


def test_an_import_is_made_once(double, buffer):
    a, out = buffer(torch.ones(16)), buffer(torch.zeros(16))
    double([a], [out])
    imported = a.imported, out.imported
    double([a], [out])
    assert (a.imported, out.imported) == imported


def test_an_import_holds_one_view_for_each_type(device, buffer):
    memory = buffer(torch.arange(16.0))
    imported = import_buffer(device, memory)
    assert import_buffer(device, memory) is imported
    f32, i32 = 0x21000020, 0x11000020
    view = imported.view(((16,), f32))
    assert imported.view(((16,), f32)) is view
    others = [imported.view(((4, 4), f32)), imported.view(((16,), i32)), imported.view(((3,), f32))]
    assert [other.shape for other in others] == [[4, 4], [16], [3]]
    assert view.map().asarray((16,), np.dtype("f4")).ctypes.data == memory.address


def test_an_import_lives_as_long_as_it_is_kept(double, buffer):
    a, out = buffer(torch.ones(16)), buffer(torch.zeros(16))
    double([a], [out])
    alive = weakref.ref(a.imported)
    gc.collect()
    assert alive() is not None
    a.imported = None
    assert alive() is None
    double([a], [out])
    assert a.imported is not None


def test_new_memory_needs_a_new_import(double, buffer):
    a, out = buffer(torch.ones(16)), buffer(torch.zeros(16))
    double([a], [out])
    a.imported = None
    a.tensor = torch.full((16,), 5.0)
    double([a], [out])
    assert out.tensor.tolist() == [10.0] * 16


@pytest.mark.parametrize("offset", [1, 8, 15])
def test_memory_that_is_not_aligned_is_refused(double, buffer, offset):
    whole = torch.ones(32)
    part = buffer(whole[offset : offset + 16])
    assert part.address % ALIGNMENT
    expected = rf"expected memory aligned to 64 bytes, got 64 bytes at address {part.address:#x}"
    with pytest.raises(BufferImportError, match=expected):
        double([part], [buffer(torch.zeros(16))])
    assert part.imported is None


def test_memory_that_is_too_small_is_refused(double, buffer):
    with pytest.raises(BufferImportError, match=r"memory for \[16\] of FLOAT_32, got 60 bytes"):
        double([buffer(torch.ones(15))], [buffer(torch.zeros(16))])
