"""What is a view of what, who may be written to, and how often it was: autograd's book-keeping."""

import pytest
import torch
from geometry import outcome, row, same_outcome

pytestmark = pytest.mark.usefixtures("native")


def book(tensor):
    """What autograd knows of a tensor."""
    return (
        tensor._is_view(),
        tensor._base is not None,
        tensor.is_leaf,
        tensor.requires_grad,
        tensor._version,
        tensor.is_inference(),
    )


VIEWS = {
    "base": lambda t: t,
    "slice": lambda t: t[1:],
    "view of a view": lambda t: t[1:][1:],
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
    "alias": lambda t: torch.ops.aten.alias(t),
    "transpose": lambda t: t.t(),
    "reshape": lambda t: t.reshape(3, 4),
    "reshape that copies": lambda t: t.view(3, 4).t().reshape(12),
    "contiguous": lambda t: t.contiguous(),
    "expand": lambda t: t.expand(2, 12),
    "real": lambda t: t.real,
    "split": lambda t: t.split(2)[1],
    "to": lambda t: t.to(torch.float32),
    "to another dtype": lambda t: t.to(torch.float64),
    "flatten": lambda t: t.view(3, 4).flatten(),
    "unsqueeze_": lambda t: t.clone().unsqueeze_(0),
    "set_": lambda t: t.detach()[1:].set_(t.detach()),
    "view of bits": lambda t: t.view(torch.int32),
    "_neg_view": lambda t: torch._neg_view(t),
    "diagonal": lambda t: t.view(3, 4).diagonal(),
    "unfold": lambda t: t.unfold(0, 3, 3),
    "as_strided": lambda t: t.as_strided((2,), (3,)),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("tracked", [False, True], ids=["plain", "tracked"])
def test_view(view, tracked):
    def work(d):
        t = row(d).requires_grad_(tracked)
        v = view(t * 1 if tracked else t)
        return book(v), v._base is t, v

    same_outcome(work)


WRITES = {
    "leaf": lambda t: t.requires_grad_().add_(1),
    "view of a leaf": lambda t: t.requires_grad_()[1:].add_(1),
    "one of several views": lambda t: (t.requires_grad_() * 1).split(2)[0].add_(1),
    "one of several views without gradients": lambda t: t.chunk(2)[0].add_(1),
    "detached leaf": lambda t: t.requires_grad_().detach().add_(1),
    "data of a leaf": lambda t: t.requires_grad_().data.add_(1),
    "detach_ of a view": lambda t: (t.requires_grad_() * 1)[1:].detach_(),
    "detach_": lambda t: book((t.requires_grad_() * 2).detach_()),
    "saved for backward": lambda t: (
        (x := t.requires_grad_() * 1),
        (y := x.square()),
        x.add_(1),
        y.sum().backward(),
    ),
    "saved, then changed through a view": lambda t: (
        (x := t.requires_grad_() * 1),
        (y := x.exp()),
        y[1:].mul_(2),
        y.sum().backward(),
    ),
    "view changed after its base": lambda t: (
        (x := t.requires_grad_() * 1),
        (v := x[2:5]),
        x.mul_(3),
        v.square().sum().backward(),
        t.grad,
    ),
    "base changed through a view": lambda t: (
        (x := t.requires_grad_() * 1),
        x[2:5].mul_(3),
        x.square().sum().backward(),
        t.grad,
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_write(write):
    def work(d):
        t = row(d)
        return write(t), t, t.grad

    same_outcome(work)


def test_no_grad_may_write_to_a_view_of_a_leaf():
    def work(d):
        t = row(d).requires_grad_()
        with torch.no_grad():
            v = t[1:]
            v.add_(1)
        return t, book(t), book(v)

    same_outcome(work)


INFERENCE = {
    "made inside": lambda t: (book(s := t + 1), book(s[1:]), book(s.add_(1))),
    "view of a tensor from outside": lambda t: (book(t[1:]), book(t.t())),
    "write to a tensor from outside": lambda t: book(t.add_(1)),
    "write through a view": lambda t: (book(t[1:].add_(1)), book(t)),
}


@pytest.mark.parametrize("use", INFERENCE.values(), ids=INFERENCE)
def test_inference_mode(use):
    def inside(d):
        t = row(d)
        with torch.inference_mode():
            # Tensors of inference keep no version counter.
            made = [t + 1, t[1:]]
            flags = [each.is_inference() for each in made]
        return flags, t

    def then_outside(d):
        with torch.inference_mode():
            t = row(d)
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            t.add_(1)
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            torch.ones(12, device=d, requires_grad=True) * t
        return t.clone(), t.is_inference()

    def used(d):
        t = row(d)
        with torch.inference_mode():
            return outcome(lambda _: use(t), d)

    for work in (inside, then_outside, used):
        same_outcome(work)
