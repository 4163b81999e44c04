"""Functions of one's own: contexts, marks, gradients that lie in memory in odd ways."""

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

pytestmark = pytest.mark.parametrize(
    "policy", ["native", pytest.param("iree", marks=pytest.mark.slow)], indirect=True
)


def leaf(d: str, *shape: int) -> torch.Tensor:
    return torch.linspace(-1, 2, torch.Size(shape).numel()).reshape(shape).to(d).requires_grad_()


class Cubed(Function):
    """Takes its context apart from its computation, and can be differentiated twice."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale):
        return x**3 * scale, x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, gradient, _):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2 * ctx.scale, None

    @staticmethod
    def jvp(ctx, tangent, _):
        (x,) = ctx.saved_tensors
        return tangent * 3 * x**2 * ctx.scale, None


def test_context_is_set_up_apart(run_both):
    def program(d):
        x = leaf(d, 3, 2)
        y, other = Cubed.apply(x, 2.0)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return y, other, first, second

    run_both(program)


# PyTorch scripts decompositions the first time that it needs them.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_function_is_transformed(run_both):
    def program(d):
        x = leaf(d, 4).detach()
        function = lambda x: Cubed.apply(x, 3.0)[0]  # noqa: E731
        return (
            torch.func.vmap(torch.func.grad(function))(x),
            torch.func.jacrev(function)(x),
            torch.func.jvp(function, (x,), (x.cos(),)),
        )

    run_both(program)


class AddedInPlace(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.add_(y.exp())

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient * 2


@pytest.mark.parametrize("view", [False, True], ids=["whole", "view"])
def test_function_writes_in_place(run_both, view):
    def program(d):
        x, y = leaf(d, 3, 2), leaf(d, 2 if view else 3, 3 if view else 2)
        z = x * 1
        version = z._version
        target = z.t() if view else z
        written = AddedInPlace.apply(target, y)
        assert written is target
        assert z._version > version
        (z * z).sum().backward()
        return z, x.grad, y.grad

    run_both(program)


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos()


def test_function_of_one_derivative(run_both, same_error):
    def program(d):
        x = leaf(d, 3)
        (first,) = torch.autograd.grad(Once.apply(x).sum(), x)
        return first

    run_both(program)

    def twice(d):
        x = leaf(d, 3)
        (first,) = torch.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
        first.sum().backward()

    same_error(twice)


class OddGradient(Function):
    """Its gradients are expanded, transposed, or not there."""

    @staticmethod
    def forward(ctx, x, y, z):
        return x.sum() + y.sum() + z.sum()

    @staticmethod
    def backward(ctx, gradient):
        transposed = (torch.arange(6.0, device=gradient.device).reshape(2, 3) * gradient).t()
        return gradient.expand(3, 2), transposed, None


def test_gradients_that_are_not_contiguous(run_both):
    def program(d):
        x, y, z = leaf(d, 3, 2), leaf(d, 3, 2), leaf(d, 3, 2)
        for _ in range(2):  # the second is added to the first
            OddGradient.apply(x * 1, y, z).backward()
        return x.grad, y.grad, z.grad

    run_both(program)


class GradientOfAnotherKind(Function):
    @staticmethod
    def forward(ctx, x, wrong):
        ctx.wrong = wrong
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        if ctx.wrong == "shape":
            return gradient[:1].expand(2, 5), None
        return (gradient, None, gradient) if ctx.wrong == "count" else ("text", None)


@pytest.mark.parametrize("wrong", ["shape", "count", "type"])
def test_wrong_gradient_raises(same_error, wrong):
    same_error(lambda d: GradientOfAnotherKind.apply(leaf(d, 3), wrong).sum().backward())


def test_gradient_takes_the_dtype_of_its_input(run_both):
    class Halved(Function):
        @staticmethod
        def forward(ctx, x):
            return x.half()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    def program(d):
        x = leaf(d, 4)
        (Halved.apply(x) * 2).sum().backward()
        return x.grad

    run_both(program, compiled=False)


class Fails(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raise KeyError("mine")


def test_exception_in_a_backward_comes_through(same_error, run_both):
    def fail(d):
        x = leaf(d, 3)
        (Fails.apply(x) * x).sum().backward()

    same_error(fail)

    def go_on(d):
        x = leaf(d, 3)
        return torch.autograd.grad(x.exp().sum(), x)

    run_both(go_on)
