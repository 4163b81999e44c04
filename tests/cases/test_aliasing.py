"""Cases 1-6: views, strides and writes through them, before and after a sync."""

import pytest
import torch

VIEWS = {
    "view": lambda x: x.view(6, 4),
    "select": lambda x: x.view(6, 4)[2],
    "slice": lambda x: x[3:20],
    "step": lambda x: x[1::3],
    "transpose": lambda x: x.view(4, 6).t(),
    "permute": lambda x: x.view(2, 3, 4).permute(2, 0, 1),
    "diagonal": lambda x: x[:16].view(4, 4).diagonal(),
    "unfold": lambda x: x.unfold(0, 3, 4),
    "narrow of transpose": lambda x: x.view(4, 6).t().narrow(0, 2, 3),
}


def settle():
    """A sync in the midst of a program; without effect on what runs on the CPU."""
    torch.shark.synchronize()


def test_view_made_before_a_sync_writes_to_its_base(run_both):
    def program(d):
        a = torch.zeros(10, device=d)
        v = a.view(5, 2)
        settle()
        v[0][0] = 1
        return a, a[0] == 1

    counts = run_both(program)
    assert counts.windows == 2


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_view_and_base_are_one_storage_whatever_is_between(run_both, view):
    def program(d):
        a = torch.arange(24.0, device=d)
        early = view(a)
        early.add_(1)
        settle()
        early.mul_(2)
        a.sub_(3)
        late = view(a)
        late.mul_(early)
        a.add_(1)
        return a, early, late

    run_both(program)


@pytest.mark.parametrize("synced", [False, True], ids=["one window", "sync between"])
def test_expanded_view_sees_the_write_to_its_base(run_both, synced):
    def program(d):
        a = torch.arange(3.0, device=d).view(3, 1)
        wide = a.expand(3, 4)
        if synced:
            settle()
        a.mul_(2)
        return wide + 1, wide, a

    run_both(program)


def test_view_of_another_dtype_sees_the_bits(run_both):
    def program(d):
        a = torch.tensor([1.0, -2.0, 0.5], device=d)
        bits = a.view(torch.int32)
        a.mul_(2)
        settle()
        a.neg_()
        return bits, bits + 1

    run_both(program)


def test_views_swap_halves_of_one_storage(run_both):
    def program(d):
        a = torch.arange(8.0, device=d)
        kept = a[:4].clone()
        a[:4] = a[4:]
        a[4:] = kept
        a[1:] = a[:-1].clone()
        return a

    run_both(program)


def test_detached_and_data_are_the_same_storage(run_both):
    def program(d):
        a = torch.ones(4, device=d, requires_grad=True)
        a.detach().mul_(3)
        settle()
        a.data[1] = 7
        with torch.no_grad():
            a[2:].zero_()
        return a

    run_both(program)


WRITES = {
    "element": lambda t: t.as_strided((2,), (2,))[0].fill_(-1),
    "setitem": lambda t: t.as_strided((2,), (2,)).__setitem__(0, -1),
    "square": lambda t: t.as_strided((2, 2), (1, 4), 1).mul_(5),
    "odd": lambda t: t.view(2, 4).as_strided((2, 2), (4, 2), 1).copy_(t.view(2, 4)[:, :2]),
    "flip": lambda t: t.copy_(t.flip(0)),
    "row from column": lambda t: t[:4].view(2, 2)[0].copy_(t[:4].view(2, 2)[:, 1].clone()),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("synced", [False, True], ids=["one window", "sync between"])
def test_write_through_a_strided_view_changes_its_base(run_both, write, synced):
    def program(d):
        t = torch.arange(1.0, 9.0, device=d)
        if synced:
            settle()
        write(t)
        return t, t.sum()

    run_both(program)


TRANSPOSED = {
    "mul_": lambda y: y.mul_(2),
    "add_ row": lambda y: y.add_(torch.arange(3.0, device=y.device)),
    "relu_": lambda y: y.relu_(),
    "zero_": lambda y: y.zero_(),
    "copy_": lambda y: y.copy_(torch.arange(6.0, device=y.device).view(2, 3)),
    "addmm_": lambda y: y.addmm_(torch.ones(2, 2, device=y.device), y.clone()),
    "t_": lambda y: y.t_().mul_(2),
    "unsqueeze_": lambda y: y.unsqueeze_(1).add_(1),
}


@pytest.mark.parametrize("change", TRANSPOSED.values(), ids=TRANSPOSED)
def test_in_place_on_a_transpose_keeps_both_layouts(run_both, change):
    def program(d):
        x = torch.arange(-3.0, 3.0, device=d).view(3, 2)
        y = x.t()
        change(y)
        return x, y, y.stride(), x.stride(), y.is_contiguous(), x * 2

    run_both(program)


NONCONTIGUOUS = {
    "addcdiv_": lambda x, y, z: x.addcdiv_(y, z),
    "addcmul_": lambda x, y, z: x.addcmul_(y, z, value=2),
    "masked_fill_": lambda x, y, z: x.masked_fill_(y > 0.5, 7),
    "index_fill_": lambda x, y, z: x.index_fill_(0, torch.tensor([1], device=x.device), 7),
    "cumsum_": lambda x, y, z: x.cumsum_(0),
    "where": lambda x, y, z: torch.where(y > 0.5, x, z),
    "out": lambda x, y, z: torch.add(y, z, out=x),
    "out of mm": lambda x, y, z: torch.mm(y, torch.ones(2, 2, device=x.device), out=x),
}


@pytest.mark.parametrize("change", NONCONTIGUOUS.values(), ids=NONCONTIGUOUS)
def test_in_place_on_what_is_not_contiguous(run_both, change):
    def program(d):
        x = torch.rand(2, 3).t().to(d)
        y, z = torch.rand(3, 2).to(d), torch.rand(3, 2).add(0.5).to(d)
        assert not x.is_contiguous()
        return change(x, y, z), x, x.t() + 1

    run_both(program)


@pytest.mark.parametrize("name", ["normal_", "uniform_", "exponential_", "bernoulli_", "random_"])
def test_random_fill_of_a_transpose_fills_all(run_both, name):
    def program(d):
        return getattr(torch.full((3, 2), -5.0, device=d).t(), name)()

    run_both(program, compiled=False)


DESTINATIONS = {
    "mul_": lambda x: x.mul_(2),
    "add_ itself": lambda x: x.add_(x),
    "out": lambda x: torch.mul(x, 2, out=x),
    "setitem": lambda x: x.__setitem__(slice(1, 3), 0.0),
    "foreach": lambda x: torch._foreach_mul_([x], 2),
}


@pytest.mark.parametrize("change", DESTINATIONS.values(), ids=DESTINATIONS)
@pytest.mark.parametrize("synced", [False, True], ids=["one window", "sync between"])
def test_destination_is_not_baked_in(run_both, change, synced):
    def program(d):
        kept = []
        for i in range(4):
            x = torch.arange(6.0).add(i).to(d)
            change(x)
            if synced:
                settle()
            kept.append(x)
        return kept

    counts = run_both(program)
    if synced:
        assert counts.windows == 4
        assert counts.plans <= 1  # the four windows have one signature
        assert counts.compiles + counts.disk_hits + counts.memory_hits == counts.plans


def test_buffer_freed_and_reused_keeps_no_old_import(run_both):
    def program(d):
        results = []
        for i in range(6):
            x = torch.full((64,), float(i), device=d)
            results.append((x * 2).sum())
            settle()
            del x
        return results

    run_both(program)
