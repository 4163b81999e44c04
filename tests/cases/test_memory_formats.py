"""Strides of results are the CPU's, also where inputs are channels_last or expanded."""

import pytest
import torch
from geometry import same_outcome
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("native")

LAST, LAST_3D = torch.channels_last, torch.channels_last_3d


def images(d):
    return torch.arange(24.0, device=d).view(1, 2, 3, 4)


def kernel(x, *shape):
    return torch.ones(shape, device=x.device)


# Each takes images in channels_last and in the plain format.
OPERATORS = {
    "clone": lambda x, y: x.clone(),
    "clone to contiguous": lambda x, y: x.clone(memory_format=torch.contiguous_format),
    "contiguous": lambda x, y: x.contiguous(),
    "contiguous as it is": lambda x, y: x.contiguous(memory_format=LAST),
    "add a number": lambda x, y: x + 1,
    "add": lambda x, y: x + y,
    "add to the plain": lambda x, y: y + x,
    "add a row": lambda x, y: x + y[..., :1],
    "relu": lambda x, y: x.relu(),
    "in place": lambda x, y: x.mul_(y),
    "double": lambda x, y: x.double(),
    "double and contiguous": lambda x, y: x.to(
        torch.float64, memory_format=torch.contiguous_format
    ),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "zeros_like": lambda x, y: torch.zeros_like(x),
    "full_like": lambda x, y: torch.full_like(y, 1, memory_format=LAST),
    "rand_like": lambda x, y: torch.rand_like(x),
    "cat": lambda x, y: torch.cat([x, x], 1),
    "cat mixed": lambda x, y: torch.cat([y, x], 1),
    "stack": lambda x, y: torch.stack([x, x]),
    "pad": lambda x, y: functional.pad(x, (1, 1)),
    "sum": lambda x, y: x.sum(1, keepdim=True),
    "mean": lambda x, y: x.mean((2, 3)),
    "softmax": lambda x, y: x.softmax(1),
    "cumsum": lambda x, y: x.cumsum(1),
    "sort": lambda x, y: x.sort(1).values,
    "flip": lambda x, y: x.flip(1),
    "roll": lambda x, y: x.roll(1, 1),
    "index": lambda x, y: x[:, [1, 0]],
    "dropout": lambda x, y: functional.dropout(x, 0.5),
    "conv2d": lambda x, y: functional.conv2d(x, kernel(x, 2, 2, 1, 1)),
    "conv2d by weight": lambda x, y: functional.conv2d(
        y, kernel(x, 2, 2, 1, 1).to(memory_format=LAST)
    ),
    "conv_transpose2d": lambda x, y: functional.conv_transpose2d(x, kernel(x, 2, 2, 1, 1)),
    "max_pool2d": lambda x, y: functional.max_pool2d(x, 2),
    "avg_pool2d": lambda x, y: functional.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x, y: functional.adaptive_avg_pool2d(x, 2),
    "interpolate": lambda x, y: functional.interpolate(x, scale_factor=2),
    "interpolate bilinear": lambda x, y: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "batch_norm": lambda x, y: functional.batch_norm(x, None, None, training=True),
    "group_norm": lambda x, y: functional.group_norm(x, 1),
    "pixel_shuffle": lambda x, y: functional.pixel_shuffle(
        y.view(1, 4, 2, 3).to(memory_format=LAST), 2
    ),
    "unfold": lambda x, y: functional.unfold(x, 2),
    "linear": lambda x, y: functional.linear(x.permute(0, 2, 3, 1), kernel(x, 5, 2)),
    "matmul": lambda x, y: x.transpose(2, 3) @ y,
    "bmm": lambda x, y: torch.bmm(y[0].transpose(1, 2), x[0]),
    "einsum": lambda x, y: torch.einsum("bchw,bchw->bc", x, y),
    "permuted": lambda x, y: y.permute(3, 2, 1, 0) + 1,
    "permuted double": lambda x, y: y.permute(0, 2, 3, 1).double(),
    "permuted like": lambda x, y: torch.zeros_like(y.transpose(1, 3)),
    "steps like": lambda x, y: torch.zeros_like(y[..., ::2]),
    "expanded": lambda x, y: y.expand(3, 2, 3, 4) + 1,
    "expanded like": lambda x, y: torch.zeros_like(y.expand(3, 2, 3, 4)),
    "overlapping like": lambda x, y: torch.ones_like(y.as_strided((2, 2), (1, 1))),
    "reshape that copies": lambda x, y: x.reshape(2, 12),
    "flatten that copies": lambda x, y: x.flatten(),
    "one channel": lambda x, y: kernel(x, 2, 1, 3, 3).to(memory_format=LAST) + 1,
    "3d": lambda x, y: y[None].to(memory_format=LAST_3D) * 2,
    "3d clone": lambda x, y: y[None].clone(memory_format=LAST_3D),
    "3d convolution": lambda x, y: functional.conv3d(
        y[None].to(memory_format=LAST_3D), kernel(x, 1, 1, 1, 1, 1)
    ),
    "3d pool": lambda x, y: functional.max_pool3d(y[None].to(memory_format=LAST_3D), (1, 2, 2)),
    "empty": lambda x, y: torch.empty(1, 2, 3, 4, memory_format=LAST, device=x.device).fill_(1),
    "refused for three dimensions": lambda x, y: y[0].to(memory_format=LAST),
    "refused for four dimensions": lambda x, y: y.clone(memory_format=LAST_3D),
    "empty refused": lambda x, y: torch.empty(2, 3, memory_format=LAST, device=x.device),
    "empty has nothing to preserve": lambda x, y: torch.empty(
        2, 3, memory_format=torch.preserve_format, device=x.device
    ),
    "gradient": lambda x, y: torch.autograd.grad(
        (z := x.detach().requires_grad_()).relu().square().sum(), z
    ),
    "gradient of conv2d": lambda x, y: torch.autograd.grad(
        functional.conv2d((z := x.detach().requires_grad_()), kernel(x, 2, 2, 1, 1)).sum(), z
    ),
}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_strides_are_those_of_the_cpu(operator):
    def work(d):
        torch.manual_seed(0)
        y = images(d)
        x = y.to(memory_format=LAST)
        result = operator(x, y)
        return result, x, y

    same_outcome(work)


EMPTY = {
    "add": lambda t: t + 1,
    "sum": lambda t: t.sum(1),
    "clone of a transpose": lambda t: t.transpose(0, 2).clone(),
    "view": lambda t: t.view(0),
    "cat": lambda t: torch.cat([t, t], 1),
    "matmul": lambda t: t.mT @ t,
    "select": lambda t: t[:, :, 1],
    "slice": lambda t: t[:, 1:1],
    "permute": lambda t: t.permute(2, 0, 1) * 2,
    "max": lambda t: t.max(),
    "max along nothing": lambda t: t.max(1),
    "softmax": lambda t: t.softmax(1),
}
WITHOUT_DIMENSIONS = {
    "add": lambda t: t + 1,
    "sum": lambda t: t.sum(),
    "new dimension": lambda t: t[None],
    "expand": lambda t: t.expand(3) + 1,
    "view": lambda t: t.view(1, 1),
    "transpose": lambda t: t.t(),
    "as_strided": lambda t: t.as_strided((), ()),
    "ellipsis": lambda t: t[...],
    "set": lambda t: t.__setitem__(..., 3),
    "index": lambda t: t[0],
    "view of bits": lambda t: t.view(torch.int16),
    "cat": lambda t: torch.cat([t, t]),
}


@pytest.mark.parametrize("operator", EMPTY.values(), ids=EMPTY)
def test_tensors_without_elements(operator):
    same_outcome(lambda d: operator(torch.ones(2, 0, 3, device=d)))


@pytest.mark.parametrize("operator", WITHOUT_DIMENSIONS.values(), ids=WITHOUT_DIMENSIONS)
def test_tensors_without_dimensions(operator):
    def work(d):
        t = torch.tensor(2.0, device=d)
        return operator(t), t

    same_outcome(work)
