"""`set_`, `resize_`, `.data =` and `swap_tensors`: tensors that change what they are over."""

import pytest
import torch
from geometry import geometry, row, same_outcome

pytestmark = pytest.mark.usefixtures("native")


def pair(d):
    return row(d), torch.full((2, 3), 7.0, device=d)


SETS = {
    "storage": lambda a, t: t.set_(a.untyped_storage()),
    "typed storage": lambda a, t: t.set_(a.storage()),
    "storage with sizes": lambda a, t: t.set_(a.untyped_storage(), 2, (2, 3)),
    "storage with strides": lambda a, t: t.set_(a.untyped_storage(), 2, (2, 3), (1, 2)),
    "storage that has to grow": lambda a, t: t.set_(a.untyped_storage(), 2, (12,)).fill_(1),
    "tensor": lambda a, t: t.set_(a),
    "view": lambda a, t: t.set_(a[2:8:2]),
    "tensor with strides": lambda a, t: t.set_(a[2:8], 1, (2,), (2,)),
    "nothing": lambda a, t: t.set_(),
    "itself": lambda a, t: a.set_(a),
    "view to view": lambda a, t: a[2:].set_(a[4:]),
    "expanded": lambda a, t: t.set_(a[:3].expand(4, 3)),
    "empty": lambda a, t: t.set_(a[:0]),
    "other dtype": lambda a, t: t.set_(a.long()),
    "other device": lambda a, t: t.set_(torch.ones(2, device="meta")),
    "negative offset": lambda a, t: t.set_(a.untyped_storage(), -1, (2,)),
    "negative stride": lambda a, t: t.set_(a.untyped_storage(), 0, (2,), (-1,)),
    "too few strides": lambda a, t: t.set_(a.untyped_storage(), 0, (2, 2), (1,)),
    "of a leaf": lambda a, t: t.requires_grad_().set_(a),
}


@pytest.mark.parametrize("change", SETS.values(), ids=SETS)
def test_set(change):
    def work(d):
        a, t = pair(d)
        return change(a, t), t, a, t.is_set_to(a)

    same_outcome(work)


def test_writes_through_a_set_tensor_reach_its_source(run_both):
    def program(d):
        a, t = pair(d)
        early = a * 2
        t.set_(a.untyped_storage(), 1, (2, 3), (3, 1))
        torch.shark.synchronize()
        t.mul_(10)
        return early, a, t, a + 1

    run_both(program)


RESIZES = {
    "to fewer": lambda t: t.resize_(3, 2),
    "to more": lambda t: t.resize_(20)[12:].fill_(1),
    "to none": lambda t: t.resize_(0),
    "to none and back": lambda t: t.resize_(0).resize_(4),
    "to the same": lambda t: t.resize_(12),
    "of a view": lambda t: t[::2].resize_(3),
    "of a view to more": lambda t: t[4:].resize_(12)[8:].fill_(1),
    "of a transpose": lambda t: t.view(3, 4).t().resize_(4, 3),
    "channels_last": lambda t: t.resize_(1, 2, 2, 3, memory_format=torch.channels_last),
    "channels_last_3d": lambda t: t.resize_(1, 2, 2, 3, 1, memory_format=torch.channels_last_3d),
    "channels_last of the same sizes": lambda t: t.resize_(1, 2, 3, 2).resize_(
        1, 2, 3, 2, memory_format=torch.channels_last
    ),
    "preserve_format": lambda t: t.resize_(3, 4, memory_format=torch.preserve_format),
    "of a leaf": lambda t: t.requires_grad_().resize_(3),
    "as another": lambda t: t.resize_as_(torch.ones(2, 2, device=t.device)),
    "as channels_last": lambda t: t.resize_as_(
        torch.ones(1, 2, 2, 2, device=t.device).to(memory_format=torch.channels_last),
        memory_format=torch.preserve_format,
    ),
    "of detached": lambda t: t.detach().resize_(3),
    "of data": lambda t: t.data.resize_(3),
}


@pytest.mark.parametrize("change", RESIZES.values(), ids=RESIZES)
@pytest.mark.parametrize("synced", [False, True], ids=["pending", "ready"])
def test_resize(change, synced):
    def work(d):
        t = row(d)
        t.add_(1)
        if synced:
            torch.shark.synchronize()
        return change(t), t

    same_outcome(work)


def test_negative_sizes_are_refused_and_change_nothing():
    t = row("shark")
    with pytest.raises(RuntimeError, match="negative dimension"):
        t.resize_(-3)
    assert t.tolist() == row("cpu").tolist()


def test_resized_memory_is_shared_with_older_views(run_both):
    def program(d):
        t = row(d)
        early = t[2:5]
        t.resize_(30)
        t.fill_(1)
        torch.shark.synchronize()
        early.add_(1)
        return t, early, early * 2

    run_both(program, compiled=False)  # over bytes, it has no base to lower it from


def test_data_is_swapped_under_a_tensor():
    def work(d):
        a, b = pair(d)
        view = a[1:]
        a.data = b
        b.add_(1)
        return a, b, view, a.data_ptr() == b.data_ptr(), a._version, b._version

    same_outcome(work)


def test_data_of_another_dtype_is_for_tensors_that_need_no_gradient():
    def plain_tensor(d):
        a = row(d)
        a.data = torch.ones(2, dtype=torch.int64, device=d)
        return a

    def leaf(d):
        a = row(d).requires_grad_()
        a.data = torch.ones(2, dtype=torch.int64, device=d)

    same_outcome(plain_tensor)
    same_outcome(leaf)


def test_swap_tensors():
    def work(d):
        a, b = pair(d)
        torch.utils.swap_tensors(a, b)
        a.mul_(2)
        return a, b

    same_outcome(work)
    same_outcome(lambda d: torch.utils.swap_tensors(row(d)[1:], row(d)[2:]))


def test_swapped_parameters_train():
    def work(d):
        m, n = (torch.nn.Linear(2, 2, bias=False).to(d) for _ in range(2))
        with torch.no_grad():
            m.weight.fill_(1)
            n.weight.fill_(2)
        torch.utils.swap_tensors(m.weight, n.weight)
        m(torch.ones(1, 2, device=d)).sum().backward()
        return m.weight, m.weight.grad, n.weight, n.weight.grad

    same_outcome(work)


def test_geometry_tells_of_a_difference():
    assert geometry(row("shark")[1:]) != geometry(row("cpu"))
