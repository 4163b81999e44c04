"""torch.func, torch.autograd.functional and forward mode."""

from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.autograd import functional as autograd_functional
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

pytestmark = [
    pytest.mark.parametrize(
        "policy", ["native", pytest.param("iree", marks=pytest.mark.slow)], indirect=True
    ),
    # PyTorch scripts decompositions the first time that forward mode needs them.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),  # linearize
]


def matrix(d: str, rows: int = 3, columns: int = 4) -> torch.Tensor:
    return torch.linspace(-1, 2, rows * columns).reshape(rows, columns).to(d)


def f(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() * x + x.tanh()
    y = torch.cat([y[1:], y[:1] ** 2])
    return torch.where(y > 0, y, y * 0.1)


TRANSFORMS = {
    "grad": lambda x: grad(lambda x: f(x).sum())(x),
    "grad of grad": lambda x: grad(lambda x: grad(lambda x: f(x).sum())(x).square().sum())(x),
    "grad_and_value": lambda x: grad_and_value(lambda x: (f(x).sum(), x * 2), has_aux=True)(x),
    "vjp": lambda x: vjp(f, x)[1](x.cos()),
    "jvp": lambda x: jvp(f, (x,), (x.cos(),)),
    "jacrev": lambda x: jacrev(f)(x),
    "jacrev in chunks": lambda x: jacrev(f, chunk_size=2)(x),
    "jacfwd": lambda x: jacfwd(f)(x),
    "hessian": lambda x: hessian(lambda x: f(x).sum())(x),
    "vmap": lambda x: vmap(f)(x),
    "vmap in chunks": lambda x: vmap(f, chunk_size=2)(x),
    "vmap of columns": lambda x: vmap(f, in_dims=1, out_dims=1)(x),
    "vmap of grad": lambda x: vmap(grad(lambda row: f(row).sum()))(x),
    "vmap of vmap": lambda x: vmap(vmap(lambda e: e.exp() - 1))(x),
    "jvp of vjp": lambda x: jvp(lambda x: vjp(f, x)[1](torch.ones_like(x))[0], (x,), (x,)),
    "functionalize": lambda x: functionalize(lambda x: x.clone().t().mul_(2).add_(x.t()))(x),
    "linearize": lambda x: linearize(f, x)[1](x.cos()),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms(run_both, transform):
    run_both(lambda d: transform(matrix(d)))


def test_per_sample_gradients(run_both):
    def program(d):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
        model = model.to(d)
        params = {name: p.detach() for name, p in model.named_parameters()}

        def loss(params: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            output = functional_call(model, params, (x[None],))
            return torch.nn.functional.cross_entropy(output, y[None])

        labels = torch.tensor([0, 1, 1]).to(d)
        return vmap(grad(loss), in_dims=(None, 0, 0))(params, matrix(d), labels)

    run_both(program)


def test_ensemble_of_modules(run_both):
    def program(d):
        torch.manual_seed(0)
        models = [
            torch.nn.Sequential(
                torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3, track_running_stats=False)
            ).to(d)
            for _ in range(3)
        ]
        params, buffers = stack_module_state(models)
        x = matrix(d)

        def call(params: Any, buffers: Any) -> torch.Tensor:
            return functional_call(models[0], (params, buffers), (x,))

        together = vmap(call)(params, buffers)
        apart = torch.stack([model(x) for model in models])
        torch.testing.assert_close(together, apart)
        return together.detach(), params

    run_both(program)


FUNCTIONALS = {
    "jacobian": lambda x: autograd_functional.jacobian(f, x),
    "jacobian vectorized": lambda x: autograd_functional.jacobian(f, x, vectorize=True),
    "jacobian forward": lambda x: autograd_functional.jacobian(
        f, x, vectorize=True, strategy="forward-mode"
    ),
    "hessian": lambda x: autograd_functional.hessian(lambda x: f(x).sum(), x),
    "vjp": lambda x: autograd_functional.vjp(f, x, x.cos()),
    "jvp": lambda x: autograd_functional.jvp(f, x, x.cos()),
    "vhp": lambda x: autograd_functional.vhp(lambda x: f(x).sum(), x, x.cos()),
    "hvp": lambda x: autograd_functional.hvp(lambda x: f(x).sum(), x, x.cos()),
}


@pytest.mark.parametrize("functional", FUNCTIONALS.values(), ids=FUNCTIONALS)
def test_functionals(run_both, functional):
    run_both(lambda d: functional(matrix(d, 2, 3)))


DUALS = {
    "pointwise": f,
    "view": lambda x: x.t()[1:].exp(),
    "in place": lambda x: x.clone().mul_(x).add_(1),
    "slice write": lambda x: torch.zeros_like(x).index_copy(
        0, torch.tensor([1, 0]).to(x.device), x[:2]
    ),
    "matmul": lambda x: x @ x.t(),
    "norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "softmax": lambda x: x.log_softmax(1),
    "reduction": lambda x: x.var(0),
    "foreach": lambda x: torch._foreach_mul([x, x + 1], 2.0),
}


@pytest.mark.parametrize("function", DUALS.values(), ids=DUALS)
def test_forward_mode(run_both, function):
    def program(d):
        with forward_ad.dual_level():
            x = forward_ad.make_dual(matrix(d), matrix(d).cos())
            results = function(x)
            results = [results] if isinstance(results, torch.Tensor) else results
            return [tuple(forward_ad.unpack_dual(result)) for result in results]

    run_both(program)


def test_forward_over_reverse(run_both):
    def program(d):
        x = matrix(d).requires_grad_()
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, matrix(d).cos())
            (gradient,) = torch.autograd.grad(f(dual).sum(), dual, create_graph=True)
            return tuple(part.detach() for part in forward_ad.unpack_dual(gradient))

    run_both(program)


def test_tangent_of_another_device_is_refused(same_error):
    def program(d):
        with forward_ad.dual_level():
            forward_ad.make_dual(matrix(d), matrix(d)[:2])

    same_error(program)
