"""Case 13: conjugate and negative bits, and complex numbers seen as pairs."""

import pytest
import torch
from geometry import row, same_outcome


def settle():
    """A sync in the midst of a program; without effect on what runs on the CPU."""
    torch.shark.synchronize()


def complex_pair(d):
    x = torch.tensor([1 + 2j, -3 - 0.5j, 0.25j], device=d)
    return x, x.conj()


def test_conjugate_is_lazy_and_right(run_both):
    def program(d):
        x, c = complex_pair(d)
        y = torch.zeros(3, dtype=torch.complex64, device=d)
        y.copy_(c)
        assert c.is_conj()
        assert c.imag.is_neg()
        assert not c.clone().is_conj() or d == "cpu"
        return c.imag, c.real, c.clone(), c.cpu(), y, c * 2, c + x, c.resolve_conj()

    run_both(program, compiled=False)


def test_write_through_a_conjugate_reaches_the_base(run_both):
    def program(d):
        x, c = complex_pair(d)
        c.mul_(1j)
        settle()
        c.imag.add_(1)
        c[0] = 5 + 1j
        return x, c, c.is_conj(), x.imag

    run_both(program, compiled=False)


def test_negative_bit_is_lazy_and_right(run_both):
    def program(d):
        n = torch._neg_view(torch.arange(4.0, device=d))
        y = torch.zeros(4, device=d)
        y.copy_(n)
        n[1:].add_(3)
        return n, n.clone(), n.cpu(), y, n.resolve_neg(), n * 2, n.is_neg(), n.sum()

    run_both(program, compiled=False)


def test_matrix_product_of_conjugates(run_both):
    def program(d):
        x = torch.arange(4.0).add(1j).view(2, 2).to(d)
        return x.mH @ x, x.conj() @ x.t(), torch.view_as_real(x.mH.resolve_conj())

    run_both(program, compiled=False)


LAZY = {
    "conj": lambda c: c.conj(),
    "conj twice": lambda c: c.conj().conj(),
    "mH": lambda c: c.mH,
    "adjoint": lambda c: c.adjoint(),
    "H": lambda c: c.H,
    "imag of conj": lambda c: c.conj().imag,
    "real of conj": lambda c: c.conj().real,
    "resolve_conj": lambda c: c.conj().resolve_conj(),
    "clone": lambda c: c.conj().clone(),
    "contiguous": lambda c: c.conj().contiguous(),
    "contiguous of mH": lambda c: c.mH.contiguous(),
    "conj_physical": lambda c: torch.conj_physical(c),
    "select": lambda c: c.conj()[0],
    "times": lambda c: c.conj() * 2,
    "negative": lambda c: -c.conj(),
    "abs": lambda c: c.conj().abs(),
    "reshape": lambda c: c.conj().reshape(4),
    "reshape of mH": lambda c: c.mH.reshape(4),
    "to another dtype": lambda c: c.conj().to(torch.complex128),
    "detach": lambda c: c.conj().detach(),
    "_neg_view": lambda c: torch._neg_view(c),
    "zeros_like": lambda c: torch.zeros_like(c.conj()),
    "cat": lambda c: torch.cat([c.conj(), c.conj()]),
    "stack": lambda c: torch.stack([c.conj(), c]),
    "where": lambda c: torch.where(c.abs() > 1, c.conj(), c),
    "expand": lambda c: c.conj().expand(2, 2, 2),
    "sum": lambda c: c.conj().sum(0),
    "index": lambda c: c.conj()[torch.tensor([1, 0], device=c.device)],
    "index_put_": lambda c: c.conj().index_put_((torch.tensor([1], device=c.device),), c[0].conj()),
    "masked_fill_": lambda c: c.conj().masked_fill_(c.real > 0, 1j),
    "out": lambda c: torch.mul(c.clone(), 1j, out=c.conj()),
    "matmul": lambda c: c.conj() @ c.mH,
    "view_as_real": lambda c: torch.view_as_real(c),
    "view_as_real of conj": lambda c: torch.view_as_real(c.conj()),
    "view of conj as pairs": lambda c: c.conj().view(torch.float32),
    "write through real": lambda c: c.conj().real.add_(1),
    "write through imag": lambda c: c.conj().imag.mul_(2),
    "write through view_as_real": lambda c: torch.view_as_real(c)[..., 1].zero_(),
    "gradient": lambda c: torch.autograd.grad(
        (x := c.detach().requires_grad_()).conj().abs().square().sum(), x
    ),
}


@pytest.mark.parametrize("use", LAZY.values(), ids=LAZY)
def test_complex_tensor(native, use):
    def work(d):
        c = torch.tensor([[1 + 2j, -3 - 0.5j], [0.25j, 2 + 0j]], device=d)
        return use(c), c

    same_outcome(work)


PAIRS = {
    "of pairs": lambda t: torch.view_as_complex(t.view(6, 2)),
    "written": lambda t: torch.view_as_complex(t.view(6, 2)).mul_(1j),
    "of a row": lambda t: torch.view_as_complex(t),
    "of steps": lambda t: torch.view_as_complex(t.view(2, 6).t()),
}


@pytest.mark.parametrize("view", PAIRS.values(), ids=PAIRS)
def test_view_as_complex(native, view):
    def work(d):
        t = row(d)
        return view(t), t

    same_outcome(work)
