"""`as_strided` in all its forms: views, copies, scatters, and what lies outside the storage."""

import pytest
import torch
from geometry import row, same_outcome


def settle():
    """A sync in the midst of a program; without effect on what runs on the CPU."""
    torch.shark.synchronize()


def test_as_strided_counts_from_the_storage(run_both):
    def program(d):
        x = torch.arange(10, device=d)
        first = x[2:].as_strided((2,), (1,))
        whole = x[2:].as_strided((10,), (1,), 0)
        return first, whole, first + 1, whole * 2

    run_both(program)


AS_STRIDED = {
    "of a transpose": lambda x: x.view(3, 4).t().as_strided((2, 3), (5, 1), 2),
    "of itself": lambda x: x[4:].as_strided((6,), (1,)).as_strided((3,), (2,)),
    "overlapping": lambda x: x.as_strided((4, 3), (2, 1)),
    "in place": lambda x: x[1:].as_strided_((3, 2), (3, 2), 1),
    "zero stride": lambda x: x.as_strided((3, 2), (0, 4)),
}


@pytest.mark.parametrize("view", AS_STRIDED.values(), ids=AS_STRIDED)
def test_as_strided_reads_what_the_base_holds(run_both, view):
    def program(d):
        x = torch.arange(12.0, device=d)
        early = view(x)
        x.add_(1)
        settle()
        x.mul_(2)
        return early + 1, early, x

    run_both(program)


def test_as_strided_scatter_leaves_its_input(run_both):
    def program(d):
        x = torch.zeros(6, device=d)
        y = torch.as_strided_scatter(x, torch.ones(2, 2, device=d), (2, 2), (3, 1), 1)
        return x + 1, y + 1

    run_both(program)


FORMS = {
    "of fewer dimensions": lambda t: t.view(3, 4).as_strided((3,), (4,), 1),
    "of none": lambda t: t.as_strided((), (), 5),
    "without elements": lambda t: t.as_strided((0, 20), (1, 1), 3),
    "without elements, beyond": lambda t: t.as_strided((0,), (1,), 300),
    "in place": lambda t: t.clone().as_strided_((3, 2), (3, 2), 1),
    "in place, of a view": lambda t: t.clone()[4:].as_strided_((2, 2), (2, 1)),
    "copy": lambda t: torch.as_strided_copy(t, (2, 2), (1, 3), 1),
    "scatter": lambda t: torch.as_strided_scatter(t, t.new_ones(2, 2), (2, 2), (1, 3), 1),
    "select_scatter": lambda t: torch.select_scatter(t.view(3, 4), t.new_ones(4), 0, 1),
    "slice_scatter": lambda t: torch.slice_scatter(t.view(3, 4), t.new_ones(3, 2), 1, 0, 4, 2),
    "diagonal_scatter": lambda t: torch.diagonal_scatter(t.view(3, 4), t.new_ones(3)),
    "beyond the end": lambda t: t.as_strided((20,), (1,)),
    "beyond the end by its offset": lambda t: t.as_strided((2,), (1,), 11),
    "in place beyond the end": lambda t: t.as_strided_((20,), (1,)),
    "before the start": lambda t: t.as_strided((2,), (1,), -1),
    "negative stride": lambda t: t.as_strided((2,), (-1,), 1),
    "negative size": lambda t: t.as_strided((-2,), (1,), 1),
    "too few strides": lambda t: t.as_strided((2, 2), (1,), 1),
    "scatter beyond the end": lambda t: torch.as_strided_scatter(
        t, t.new_ones(2, 2), (2, 2), (10, 3), 1
    ),
    "scatter of other sizes": lambda t: torch.as_strided_scatter(
        t, t.new_ones(2, 3), (2, 2), (1, 3), 1
    ),
    "gradient": lambda t: torch.autograd.grad(
        (x := t.detach().requires_grad_()).as_strided((3, 3), (2, 1), 1).square().sum(), x
    ),
    "gradient where it overlaps": lambda t: torch.autograd.grad(
        (x := t.detach().requires_grad_()).as_strided((4, 4), (1, 1)).square().sum(), x
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_as_strided(native, form):
    def work(d):
        t = row(d)
        return form(t), t

    same_outcome(work)


BITS = {
    "narrower": lambda t: t.view(torch.int16),
    "bytes": lambda t: t.view(torch.uint8),
    "wider": lambda t: t.view(torch.int64),
    "complex": lambda t: t.view(torch.complex64),
    "of a transpose": lambda t: t.view(3, 4).t().view(torch.int32),
    "narrower of a transpose": lambda t: t.view(3, 4).t().view(torch.int16),
    "wider of an odd offset": lambda t: t[1:].view(torch.int64),
    "wider of an odd row": lambda t: t.view(4, 3).view(torch.int64),
    "without dimensions": lambda t: t[3].view(torch.int32),
    "narrower without dimensions": lambda t: t[3].view(torch.int16),
    "without elements": lambda t: t[:0].view(0, 2).view(torch.int64),
    "written": lambda t: t.view(torch.int32).bitwise_xor_(-(2**31)),
    "sizes that do not fit": lambda t: t.view(5, -1),
    "sizes that need a copy": lambda t: t.view(3, 4).t().view(12),
}


@pytest.mark.parametrize("view", BITS.values(), ids=BITS)
def test_view_as_other_bits_or_sizes(native, view):
    def work(d):
        t = row(d)
        return view(t), t

    same_outcome(work)
