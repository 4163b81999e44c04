"""gradcheck, anomaly mode, modes without gradients, and what counts the versions of tensors."""

import warnings

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

pytestmark = pytest.mark.parametrize("policy", ["native"], indirect=True)


def leaf(d: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = torch.linspace(-1, 2, torch.Size(shape).numel(), dtype=dtype)
    return values.reshape(shape).to(d).requires_grad_()


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.01 * ctx.saved_tensors[0].exp()


@pytest.mark.parametrize("fast", [False, True])
def test_gradcheck(policy, fast):
    x, w = (leaf("shark", 3, n, dtype=torch.float64) for n in (2, 3))

    def function(x, w):
        return torch.tanh(w @ x).t() * x.t().sigmoid()

    options = {"fast_mode": fast, "check_forward_ad": True, "check_batched_grad": True}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".torch.jit.script. is deprecated", DeprecationWarning)
        assert gradcheck(function, (x, w), **options)
        assert gradgradcheck(function, (x, w), fast_mode=fast)
    with pytest.raises(GradcheckError, match="Jacobian"):
        gradcheck(Wrong.apply, (x,), fast_mode=fast)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_anomaly_mode_names_the_line_of_the_forward(policy):
    def fail(d):
        x = leaf(d, 4)
        with torch.autograd.detect_anomaly(check_nan=True):
            y = (x - x).sqrt() * 0  # the line to be named
            y.sum().backward()

    messages = []
    for d in ("cpu", "shark"):
        with pytest.warns(UserWarning, match="the line to be named"):  # noqa: SIM117
            with pytest.raises(RuntimeError) as caught:
                fail(d)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "returned nan values" in messages[0]


def test_anomaly_mode_lets_what_is_right_pass(policy):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")
        with torch.autograd.detect_anomaly():
            x = leaf("shark", 4)
            x.exp().sum().backward()
            assert torch.equal(x.grad, x.detach().exp())
            with torch.autograd.set_detect_anomaly(True, check_nan=False):
                y = leaf("shark", 4)
                ((y - y).sqrt() * 0).sum().backward()
                assert y.grad.isnan().all()


def test_inference_mode(run_both, same_error):
    def program(d):
        x = leaf(d, 3)
        with torch.inference_mode():
            y = x * 2
            y.add_(1)
            view = y[1:]
            assert y.is_inference()
            assert not y.requires_grad
        assert view.is_inference()
        plain = y.clone()
        return y.cpu().clone(), plain, (plain * x).sum()

    run_both(program, compiled=False)
    with torch.inference_mode():
        pass

    def saved(d):
        x = leaf(d, 3)
        with torch.inference_mode():
            y = x * 2
        (y * x).sum()

    def written(d):
        with torch.inference_mode():
            y = torch.ones(3, device=d)
        y.add_(1)

    def counted(d):
        with torch.inference_mode():
            y = torch.ones(3, device=d)
        return y._version

    for wrong in (saved, written, counted):
        same_error(wrong)


def test_decorators(run_both):
    @torch.no_grad()
    def without(x):
        with torch.enable_grad():
            inner = x * 3
        return x * 2, inner

    @torch.inference_mode()
    def inferred(x):
        return x + 1

    @torch.set_grad_enabled(False)
    def disabled(x):
        return x + 2

    def program(d):
        x = leaf(d, 3)
        outer, inner = without(x)
        assert inferred(x).is_inference()
        assert not disabled(x).requires_grad
        inner.sum().backward()
        return outer, inner, x.grad

    run_both(program, compiled=False)


def change_saved(d, change):
    x = leaf(d, 3, 2)
    y = x * 1
    z = y.exp()
    change(y, z)
    z.sum().backward()


CHANGES = {
    "result of exp": lambda y, z: z.mul_(2),
    "view of a result": lambda y, z: z.t()[0].zero_(),
    "detached": lambda y, z: z.detach().add_(1),
    "copied over": lambda y, z: z.copy_(y),
    "not what was saved": lambda y, z: y.add_(1),
}


def plainly(text: str) -> str:
    return text.replace("torch.FloatTensor", "Tensor").replace("sharkFloatType", "Tensor")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_of_what_was_saved(policy, change):
    texts = []
    for d in ("cpu", "shark"):
        try:
            change_saved(d, change)
            texts.append(None)
        except RuntimeError as error:
            texts.append(plainly(str(error)))
    assert texts[0] == texts[1]
    assert (texts[0] is None) == (change is CHANGES["not what was saved"])


def test_versions_are_kept_and_unsafely_preserved(run_both):
    def program(d):
        x = leaf(d, 3).detach()
        counts = [x._version]
        x.add_(1)
        x[0] = 5
        counts.append(x._version)
        with torch.autograd._unsafe_preserve_version_counter(x):
            x.mul_(2)
        counts += [x._version, x.view(3)._version, x.detach()._version, x.data._version]
        return x, counts

    run_both(program, compiled=False)


def test_saved_tensors_may_be_changed_where_that_is_allowed(run_both):
    def program(d):
        x = leaf(d, 3)
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            y = x * 1
            z = y.sin()
            y.zero_()
            z.sum().backward()
        return x.grad, y

    run_both(program, compiled=False)


def test_edges_of_the_graph(policy):
    x = leaf("shark", 3)
    y = x * 2
    edge = torch.autograd.graph.get_gradient_edge(y)
    (gradient,) = torch.autograd.grad(y.exp().sum(), edge)
    assert torch.equal(gradient, y.detach().exp())
    assert torch.autograd.graph.increment_version(y) is None
    assert y.grad_fn.name() == "MulBackward0"
    assert y.grad_fn.metadata == {}
