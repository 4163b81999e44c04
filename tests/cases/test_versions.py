"""Version counters: each way of writing counts as often as on the CPU."""

import pytest
import torch
from geometry import row, same_outcome
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("native")


def at(t, *indices):
    return torch.tensor(indices, device=t.device)


WRITES = {
    "add_": lambda t: t.add_(1),
    "through a view": lambda t: t[1:].mul_(2),
    "through views of views": lambda t: t.view(3, 4).t().zero_(),
    "copy_": lambda t: t.copy_(t.clone()),
    "copy_ from the host": lambda t: t.copy_(torch.ones(12)),
    "copy_ to the host": lambda t: torch.ones(12).copy_(t),
    "setitem": lambda t: t.__setitem__(0, 1),
    "setitem of a mask": lambda t: t.__setitem__(t > 3, 1),
    "setitem of a slice": lambda t: t.__setitem__(slice(1, 4), t[:3].clone()),
    "setitem of indices": lambda t: t.__setitem__(at(t, 0, 2), 1),
    "out": lambda t: torch.add(t, 1, out=t),
    "out of a scan": lambda t: torch.cumsum(t.clone(), 0, out=t),
    "out of a selection": lambda t: torch.index_select(t.clone(), 0, at(t, 1), out=t[:1]),
    "out of two": lambda t: torch.sort(t.clone(), out=(t, t.new_zeros(12).long())),
    "out of a factory": lambda t: torch.zeros(12, out=t),
    "out of a random factory": lambda t: torch.rand(12, out=t),
    "out of arange": lambda t: torch.arange(12.0, out=t),
    "out of cat": lambda t: torch.cat([t.clone()], out=t),
    "out of stack": lambda t: torch.stack([t.clone()], out=t.view(1, 12)),
    "unsqueeze_": lambda t: t.unsqueeze_(0),
    "t_": lambda t: t.t_(),
    "squeeze_": lambda t: t.squeeze_(),
    "swapaxes_": lambda t: t.swapaxes_(0, 0),
    "as_strided_": lambda t: t.as_strided_((2,), (1,)),
    "resize_": lambda t: t.resize_(3),
    "resize_ to the same": lambda t: t.resize_(12),
    "set_": lambda t: t.set_(t.clone()),
    "requires_grad_": lambda t: t.requires_grad_(),
    "detach_": lambda t: t.detach_(),
    "data": lambda t: t.data.add_(1),
    "storage": lambda t: t.untyped_storage().fill_(0),
    "view of bits": lambda t: t.view(torch.int32).bitwise_and_(3),
    "normal_": lambda t: t.normal_(),
    "uniform_": lambda t: t.uniform_(),
    "bernoulli_": lambda t: t.bernoulli_(),
    "random_": lambda t: t.random_(),
    "exponential_": lambda t: t.exponential_(),
    "geometric_": lambda t: t.geometric_(0.5),
    "index_put_": lambda t: t.index_put_((at(t, 0),), t[0].clone()),
    "index_add_": lambda t: t.index_add_(0, at(t, 0), t[:1].clone()),
    "index_copy_": lambda t: t.index_copy_(0, at(t, 0), t[:1].clone()),
    "index_fill_": lambda t: t.index_fill_(0, at(t, 0), 2.0),
    "index_reduce_": lambda t: t.index_reduce_(0, at(t, 0), t[:1].clone(), "amax"),
    "scatter_": lambda t: t.scatter_(0, at(t, 0), 1.0),
    "scatter_add_": lambda t: t.scatter_add_(0, at(t, 0), t[:1].clone()),
    "scatter_reduce_": lambda t: t.scatter_reduce_(0, at(t, 0), t[:1].clone(), "amax"),
    "masked_fill_": lambda t: t.masked_fill_(t > 0, 1),
    "masked_scatter_": lambda t: t.masked_scatter_(t > 2, t.clone()),
    "put_": lambda t: t.put_(at(t, 1), t[:1].clone()),
    "foreach add": lambda t: torch._foreach_add_([t], 1),
    "foreach add twice": lambda t: torch._foreach_add_([t, t], 1),
    "foreach addcmul": lambda t: torch._foreach_addcmul_([t], [t.clone()], [t.clone()]),
    "foreach zero": lambda t: torch._foreach_zero_([t]),
    "foreach copy": lambda t: torch._foreach_copy_([t], [t.clone()]),
    "foreach lerp": lambda t: torch._foreach_lerp_([t], [t.clone()], 0.5),
    "foreach norm": lambda t: torch._foreach_norm([t]),
    "unscale": lambda t: torch._amp_foreach_non_finite_check_and_unscale_(
        [t], t.new_zeros(1), t.new_ones(1)
    ),
    "clamp_": lambda t: t.clamp_(0, 1),
    "relu_": lambda t: t.relu_(),
    "relu in place": lambda t: functional.relu(t, inplace=True),
    "silu in place": lambda t: functional.silu(t, inplace=True),
    "leaky_relu_": lambda t: functional.leaky_relu_(t),
    "rrelu_": lambda t: functional.rrelu_(t, training=True),
    "threshold_": lambda t: functional.threshold_(t, 1, 2),
    "dropout in place": lambda t: functional.dropout(t, 0.5, True, True),
    "alpha_dropout in place": lambda t: functional.alpha_dropout(t, 0.5, True, True),
    "embedding_renorm_": lambda t: torch.embedding_renorm_(t.view(3, 4), at(t, 0, 1), 1.0, 2.0),
    "init": lambda t: torch.nn.init.normal_(t),
    "lerp_": lambda t: t.lerp_(t.clone(), 0.5),
    "addcmul_": lambda t: t.addcmul_(t, t),
    "addmm_": lambda t: t[:9].view(3, 3).addmm_(t[:9].view(3, 3).clone(), t[:9].view(3, 3).clone()),
    "cumsum_": lambda t: t.cumsum_(0),
    "pow_": lambda t: t.pow_(2),
    "floor_divide_": lambda t: t.floor_divide_(2),
    "nan_to_num_": lambda t: t.nan_to_num_(),
    "fill_diagonal_": lambda t: t.view(3, 4).fill_diagonal_(1),
    "with itself": lambda t: t.sub_(t),
    "read only": lambda t: (t + 1, t.sum(), t.view(3, 4).t().contiguous(), t.clone()),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_versions_are_counted_as_on_the_cpu(write):
    def work(d):
        torch.manual_seed(0)
        t = row(d)
        view = t[2:]
        write(t)
        return t._version, view._version, tuple(t.shape), t.detach()

    same_outcome(work)


def test_versions_are_shared_by_views_and_not_by_copies():
    def work(d):
        t = row(d)
        view, detached, copy = t[1:], t.detach(), t.clone()
        view.add_(1)
        detached.add_(1)
        copy.add_(1)
        return [each._version for each in (t, view, detached, copy)]

    same_outcome(work)
