"""Values of compiled regions against the CPU, and what of each window runs compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from checking import check
from recording import alive_values, record, run_plan
from torch.nn import functional

from torch_shark.planner import Planner

aten = torch.ops.aten
NAN = math.nan


def _in_place(change: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        change(x, *rest)
        return x

    return run


def _gradients(loss: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def run(*args: torch.Tensor) -> Any:
        leaves = [a.detach().requires_grad_() if a.is_floating_point() else a for a in args]
        return torch.autograd.grad(loss(*leaves), [a for a in leaves if a.requires_grad])

    return run


def test_a_pointwise_chain_is_one_region(planner: Planner) -> None:
    run = check(
        planner, lambda x, y: functional.gelu((x + y) * 2.0).tanh() - y, *torch.randn(2, 4, 6)
    )
    assert (run.regions, run.compiled) == (1, 5)
    assert planner.stats.compiles == 1


def test_nan_survives_bounds(planner: Planner) -> None:
    x = torch.tensor([NAN, -2.0, 0.3, 9.0])
    y = torch.tensor([1.0, NAN, 0.1, 0.2])
    check(
        planner,
        lambda x, y: [
            torch.maximum(x, y)
            + torch.minimum(x, y)
            + x.clamp(-0.5, 0.5)
            + x.clamp_min(0.1)
            + x.clamp_max(0.2)
            + functional.relu6(x)
            + functional.hardtanh(x)
            + x.clamp(min=y),
            functional.hardswish(x) + functional.relu(x),
        ],
        x,
        y,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_width_values(planner: Planner, dtype: torch.dtype) -> None:
    x, y = torch.randn(2, 4, 6).to(dtype)
    check(
        planner,
        lambda x, y: [
            (x + y) * 0.1,
            torch.addcmul(x, y, y, value=0.3).sum(),
            x.mean(0) + x.sum(0),
            x.softmax(-1),
            x @ y.t(),
        ],
        x,
        y,
    )


def test_sum_of_many_half_width_values(planner: Planner) -> None:
    check(planner, lambda x: x.sum(), torch.rand(4096).bfloat16())


def test_integers_and_bools(planner: Planner) -> None:
    check(
        planner,
        lambda i, b: [
            (i + 1) * 2 - (i & 3),
            i / 2,
            i * 2.5,
            i.sum(),
            i.cumsum(0),
            b & ~b,
            b.cumsum(0)[-1] + 0,
            b.any(),
            i.int() * 3,
        ],
        torch.arange(12).reshape(3, 4),
        torch.ones(128, dtype=torch.bool),
    )


def test_float64_stays_float64(planner: Planner) -> None:
    x = torch.randn(5, 5, dtype=torch.float64)
    check(planner, lambda x: (x * 0.1 + 1 / 3).sqrt().nan_to_num() @ x, x)


def test_reductions(planner: Planner) -> None:
    check(
        planner,
        lambda x: [x.sum(0), x.mean(1, True), x.amax(1), x.var(0), x.argmax(1), x.max(1).values],
        torch.randn(4, 6),
    )


def test_along_the_dimension_that_a_scalar_does_not_have(planner: Planner) -> None:
    zero = torch.zeros((), dtype=torch.int64)
    run = check(
        planner,
        lambda x, i: [
            x.softmax(0) + x.log_softmax(-1) + x.logsumexp(0),
            x.var(0, correction=0) + x.amax(0) + x.mean(-1) + x.prod(0) + x.cumsum(0),
            x.flip(0) + x.gather(0, i) + x.index_select(0, i.reshape(1)) + (x > 9).any(0),
            torch.stack([x, x * 2]),
            aten._softmax_backward_data(x, x + 1, 0, torch.float32),
            x.clone().scatter_(0, i, 7.0),
        ],
        torch.tensor(1.5),
        zero,
    )
    assert run.regions


def test_an_in_place_transpose(planner: Planner) -> None:
    check(planner, _in_place(lambda x: x.t().mul_(2.0)), torch.randn(3, 4))


def test_in_place_on_a_non_contiguous_tensor(planner: Planner) -> None:
    x = torch.rand(2, 3).t()
    check(planner, _in_place(lambda x, y, z: x.addcdiv_(y, z)), x, *torch.rand(2, 3, 2) + 1)


def test_writes_through_views(planner: Planner) -> None:
    def write(x: torch.Tensor) -> None:
        x[1:3, ::2].copy_(torch.ones(2, 3))
        x[0].fill_(2.5)
        x.diagonal().add_(1)
        x.as_strided((2,), (2,))[0].fill_(-1.0)
        x.view(6, 4)[:, 1].mul_(3)

    check(planner, _in_place(write), torch.randn(4, 6))


def test_reads_of_views(planner: Planner) -> None:
    check(
        planner,
        lambda x: [
            x[2:].as_strided((10,), (1,), 0) * 2,
            x.expand(2, 4, 6) + 1,
            x[:, ::2] * x[:, 1::2],
            x.t().contiguous(),
        ],
        torch.randn(4, 6),
    )


def test_a_destination_is_not_baked_in(planner: Planner) -> None:
    for _ in range(3):
        check(planner, _in_place(lambda x: x.mul_(2)), torch.randn(3, 3))
    assert planner.stats.compiles == 1


def test_a_copy_does_not_follow_its_source(planner: Planner) -> None:
    def swap_halves(x: torch.Tensor) -> None:
        kept = x[:4].clone()
        x[:4] = x[4:]
        x[4:] = kept

    check(planner, _in_place(swap_halves), torch.arange(8.0))


def test_a_write_to_a_copy_leaves_the_source(planner: Planner) -> None:
    def write(x: torch.Tensor) -> Any:
        rows, columns, diagonal = x.clone(), x.clone(), x.clone()
        rows[1:3] = 2.0
        columns[:, ::2] = 3.0
        diagonal.diagonal().add_(1)
        return rows, columns, diagonal

    check(planner, write, torch.randn(4, 6))


def test_a_copy_between_overlapping_views_runs_as_on_the_cpu(planner: Planner) -> None:
    def write(x: torch.Tensor) -> None:
        x.as_strided((2, 2), (4, 2), 1).copy_(x.view(2, 4)[:, :2])

    check(planner, _in_place(write), torch.arange(8.0), native=["aten::copy_"])


def test_copies_of_views(planner: Planner) -> None:
    check(
        planner,
        lambda x: [
            torch.expand_copy(x[:1], (4, 6)),
            torch.permute_copy(x, (1, 0)),
            torch.view_copy(x, (8, 3)),
            torch.slice_copy(x, 1, 1, 5, 2),
        ],
        torch.randn(4, 6),
    )


def test_norms(planner: Planner) -> None:
    check(
        planner,
        lambda x, m, v, w, b: [
            functional.batch_norm(x, m, v, w, b, training=False),
            functional.batch_norm(x, m, v, training=False),
            functional.group_norm(x, 4, w, b),
            functional.layer_norm(x, (5,)),
            functional.instance_norm(x),
        ],
        torch.randn(4, 8, 5),
        torch.randn(8),
        torch.rand(8),
        *torch.randn(2, 8),
    )


def test_products_and_what_they_leave_out(planner: Planner) -> None:
    """With beta = 0 a product ignores what is in its first argument."""
    x, y, v = torch.randn(4, 6), torch.randn(6, 5), torch.randn(6)
    nothing = torch.full((4, 5), NAN)
    check(
        planner,
        lambda x, y, v, z: [
            torch.addmm(z, x, y, beta=0),
            torch.addmm(y[0], x, y, beta=0.5, alpha=2),
            torch.addmv(z[:, 0], x, v, beta=0),
            torch.addmv(x[:, 0], x, v, alpha=3),
            torch.baddbmm(z[None], x[None], y[None], beta=0),
            torch.addr(z, x[:, 0], y[0], beta=0),
        ],
        x,
        y,
        v,
        nothing,
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_places_of_extremes(planner: Planner, dtype: torch.dtype) -> None:
    x = torch.tensor([[3, 0, 3], [0, 0, 0], [-1, 2, 5], [7, 7, 6]]).to(dtype)
    check(planner, lambda x: [*x.max(1), *x.min(0), *x.max(0, keepdim=True)], x)
    if dtype != torch.bool:
        check(planner, lambda x: [x.argmax(), x.argmin(0), x.argmax(1, keepdim=True)], x)


def test_out_arguments(planner: Planner) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        out = torch.empty(4, 6)
        transposed = torch.empty(6, 4).t()
        torch.add(x, y, out=out)
        torch.mul(x, y, out=transposed)
        return out, transposed

    assert check(planner, run, *torch.randn(2, 4, 6)).compiled == 2


def test_slice_assignment_and_gradients(planner: Planner) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        y[:, :3] = 0
        return y.sum()

    check(planner, _gradients(loss), torch.randn(2, 4), torch.randn(4, 6))


def test_accumulating_on_repeated_indices_leaves_the_input(planner: Planner) -> None:
    check(
        planner,
        lambda x, i, v: [
            x.index_put((i,), v, accumulate=True),
            x.scatter_add(0, i, v),
            x.index_add(0, i, v),
        ],
        torch.zeros(3),
        torch.tensor([0, 0, 2]),
        torch.ones(3),
    )


def test_bools_are_added_as_bools(planner: Planner) -> None:
    names = ["aten::index_put", "aten::scatter_add", "aten::index_add"]
    x, v = torch.tensor([[False] * 3, [True] * 3])
    i = torch.tensor([0, 0, 2])
    check(
        planner,
        lambda x, i, v: [
            x.index_put((i,), v, accumulate=True),
            x.scatter_add(0, i, v),
            x.index_add(0, i, v),
            x + v,
            x.index_put((i,), v),
        ],
        x,
        i,
        v,
        native=names,
    )  # fmt: skip


def test_scatters_along_a_dimension_leave_the_input(planner: Planner) -> None:
    def run(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> Any:
        filled = x.clone()
        filled[:, i[0]] = 3.0
        return [x.scatter(1, i, v), x.scatter(-1, i, 2.5), x.scatter_add(-1, i, v), filled]

    index = torch.tensor([[0, 5], [1, 2], [3, 4], [5, 0]])
    check(planner, run, torch.randn(4, 6), index, torch.randn(4, 2))


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_and_its_logsumexp(planner: Planner, is_causal: bool) -> None:
    q, k, v = torch.randn(3, 2, 3, 8, 16)
    attention = aten._scaled_dot_product_flash_attention_for_cpu
    run = check(planner, lambda q, k, v: attention(q, k, v, 0.0, is_causal), q, k, v)
    assert run.compiled == 1


def test_attention_with_a_mask(planner: Planner) -> None:
    q, k, v = torch.randn(3, 2, 3, 8, 16)
    attention = aten._scaled_dot_product_flash_attention_for_cpu
    mask = torch.randn(2, 1, 8, 8)
    mask[:, :, :, 3] = -math.inf
    check(planner, lambda q, k, v, m: attention(q, k, v, attn_mask=m, scale=0.3), q, k, v, mask)


def test_attention_in_which_a_row_sees_nothing(planner: Planner) -> None:
    q, k, v = (torch.randn(1, 2, 4, 16) for _ in range(3))
    mask = torch.zeros(1, 1, 4, 4)
    mask[:, :, 2] = -math.inf
    attention = aten._scaled_dot_product_flash_attention_for_cpu
    check(planner, lambda q, k, v, m: attention(q, k, v, attn_mask=m), q, k, v, mask)


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_of_attention(planner: Planner, is_causal: bool) -> None:
    q, k, v, given = torch.randn(4, 2, 3, 8, 16)
    mask = None if is_causal else torch.randn(2, 1, 8, 8)
    if mask is not None:
        mask[:, :, 5] = mask[:, :, :, 3] = -math.inf  # a row that sees nothing, a key never seen
    options = {"attn_mask": mask, "scale": 0.3}
    attention = aten._scaled_dot_product_flash_attention_for_cpu
    gradients = aten._scaled_dot_product_flash_attention_for_cpu_backward
    out, logsumexp = attention(q, k, v, 0.0, is_causal, **options)

    def run(given: Any, *saved: Any) -> Any:
        return gradients(given, *saved[:5], 0.0, is_causal, scale=0.3, attn_mask=saved[5])

    planned = check(planner, run, given, q, k, v, out, logsumexp, mask)
    assert planned.compiled == 1


@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_a_transposed_convolution(planner: Planner, groups: int) -> None:
    x, weight = torch.randn(2, 4, 5, 5), torch.randn(4, 3, 3, 3)
    shape = ([2, 2], [1, 1], [1, 1], True, [1, 1], groups)
    given = torch.randn_like(aten.convolution(x, weight, None, *shape))

    def run(given: Any, x: Any, weight: Any) -> Any:
        bias = [3 * groups]
        return aten.convolution_backward(given, x, weight, bias, *shape, [True, True, True])

    assert check(planner, run, given, x, weight).compiled == 1


def test_whether_all_or_any_are_true(planner: Planner) -> None:
    def run(x: Any) -> Any:
        return [torch._is_all_true(x), torch._is_any_true(x)]

    check(planner, run, torch.tensor([True, False]))


def test_losses(planner: Planner) -> None:
    check(
        planner,
        lambda s, t, w: [
            functional.nll_loss(s, t),
            functional.nll_loss(s, t, w, reduction="sum"),
            functional.nll_loss(s, t, reduction="none"),
            functional.cross_entropy(s, t, w),
        ],
        torch.randn(4, 6),
        torch.tensor([1, 3, -100, 0]),
        torch.rand(6),
    )


def test_gradients_of_losses(planner: Planner) -> None:
    check(
        planner,
        _gradients(
            lambda s, t: (
                functional.cross_entropy(s, t) + functional.nll_loss(s, t, reduction="none").sum()
            )
        ),
        torch.randn(4, 6),
        torch.tensor([1, 3, -100, 0]),
    )


def test_gradient_of_an_embedding(planner: Planner) -> None:
    check(
        planner,
        _gradients(lambda w, i: (functional.embedding(i, w, padding_idx=1) ** 2).sum()),
        torch.randn(5, 4),
        torch.tensor([0, 1, 4, 4, 2]),
    )


@pytest.mark.parametrize("amsgrad", [False, True])
def test_fused_adam(planner: Planner, amsgrad: bool) -> None:
    step = torch.tensor(3.0)

    def run(p: Any, g: Any, m: Any, v: Any, largest: Any) -> Any:
        aten._fused_adam_(
            [p],
            [g],
            [m],
            [v],
            [largest] if amsgrad else [],
            [step],
            lr=0.1,
            beta1=0.9,
            beta2=0.99,
            weight_decay=0.01,
            eps=1e-8,
            amsgrad=amsgrad,
            maximize=amsgrad,
        )
        return p, m, v, largest

    p, g, m, v, largest = torch.randn(5, 4, 6)
    check(planner, run, p, g, m, v.abs(), largest.abs(), host=[step])


@pytest.mark.parametrize("is_first_step", [False, True])
def test_fused_sgd(planner: Planner, is_first_step: bool) -> None:
    def run(p: Any, g: Any, m: Any) -> Any:
        aten._fused_sgd_(
            [p],
            [g],
            [m],
            weight_decay=0.01,
            momentum=0.9,
            lr=0.1,
            dampening=0.0,
            nesterov=not is_first_step,
            maximize=False,
            is_first_step=is_first_step,
        )
        return p, m

    check(planner, run, *torch.randn(3, 4, 6))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_no_decay_leaves_an_infinite_parameter_infinite(planner: Planner, optimizer: str) -> None:
    step = torch.tensor(3.0)

    def run(weight_decay: float, p: Any, g: Any, m: Any, v: Any) -> Any:
        options = {"weight_decay": weight_decay, "lr": 0.1, "maximize": False}
        if optimizer == "sgd":
            aten._fused_sgd_(
                [p], [g], [m],
                momentum=0.9, dampening=0.0, nesterov=False, is_first_step=False, **options,
            )  # fmt: skip
        else:
            aten._fused_adam_(
                [p], [g], [m], [v], [], [step],
                beta1=0.9, beta2=0.99, eps=1e-8, amsgrad=False, **options,
            ) if optimizer == "adam" else aten._fused_adamw_(
                [p], [g], [m], [v], [], [step],
                beta1=0.9, beta2=0.99, eps=1e-8, amsgrad=False, **options,
            )  # fmt: skip
        return p, m, v

    p, g, m, v = torch.randn(4, 6)
    p[:2] = torch.tensor([math.inf, NAN])
    for weight_decay in (0.0, 0.01):
        copies = [t.clone() for t in (p, g, m, v.abs())]
        check(planner, lambda *args, w=weight_decay: run(w, *args), *copies, host=[step])
    assert planner.stats.compiles == 1


@pytest.mark.parametrize(
    ("shape", "kernel", "native"),
    [((2, 3, 8, 6), 2, False), ((2, 3, 9, 7), (3, 2), False), ((64, 32, 8, 8), 2, False),
     ((2, 3, 9, 9), (3, 2, 1), True)],
)  # fmt: skip
def test_gradients_of_max_pools(planner: Planner, shape: Any, kernel: Any, native: bool) -> None:
    pool = functional.max_pool2d
    arguments = kernel if native else (kernel,)
    name = "aten::max_pool2d_with_indices_backward"
    check(
        planner,
        _gradients(lambda x: (pool(x, *arguments) ** 2).sum()),
        torch.randn(shape),
        native=[name] if native else [],
    )


def test_a_list_that_names_a_tensor_twice(planner: Planner) -> None:
    def run(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        aten._fused_sgd_(
            *[[p, p], [g, g], []],
            **{"weight_decay": 0.0, "momentum": 0.0, "lr": 0.1, "dampening": 0.0},
            **{"nesterov": False, "maximize": False, "is_first_step": True},
        )
        return p

    check(planner, run, *torch.randn(2, 3), native=["aten::_fused_sgd_"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_powers_of_two(planner: Planner, dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, -1, 0.5, 9, -14.25, 15, 100, -100, 127, 128, math.inf, -math.inf, NAN])
    assert check(planner, lambda x: [x.exp2(), x[3].exp2()], x.to(dtype)).compiled == 2
    whole = torch.arange(-126, 128)
    recording = record(lambda x: x.exp2(), whole)
    ((values, expected),) = [
        pair
        for pair in alive_values(run_plan(planner.plan(recording.record), recording), recording)
        if pair[0].dtype == torch.float32
    ]
    assert torch.equal(values, expected)
    check(planner, torch.ldexp, torch.arange(-40, 40), torch.arange(80, -80, -2))
    check(planner, torch.ldexp, x.to(dtype), (x / 7).to(dtype))


@pytest.mark.parametrize("options", [{"dilation": 2}, {"stride": 2}], ids=str)
def test_gradients_of_convolutions_that_end_the_compiler_run_natively(
    planner: Planner, options: dict[str, int]
) -> None:
    x, w = torch.randn(2, 4, 6, 6), torch.randn(3, 4, 2, 3)
    run = check(
        planner,
        _gradients(lambda x, w: functional.conv2d(x, w, **options).sum()),
        x,
        w,
        native=["aten::convolution_backward"],
    )
    assert run.regions >= 1


def test_gradients_of_nearest_neighbours(planner: Planner) -> None:
    def program(scale: float) -> Callable[..., Any]:
        return _gradients(lambda x: functional.interpolate(x, scale_factor=scale).square().sum())

    x = torch.randn(1, 2, 4, 4)
    check(planner, program(2), x)
    check(planner, program(1.25), x, native=["aten::upsample_nearest2d_backward"])


def test_gradients_of_random_slopes(planner: Planner) -> None:
    check(
        planner,
        _gradients(lambda x: functional.rrelu(x).sum()),
        torch.randn(5),
        native=["aten::rrelu_with_noise", "aten::rrelu_with_noise_backward"],
    )


def test_a_choice_of_one_value(planner: Planner) -> None:
    """The compiler ended the process on the first one."""
    x = torch.tensor(5)
    check(planner, lambda x, c: torch.where(c, x, x), x, torch.eye(2, dtype=torch.bool))
    check(planner, lambda x, c: torch.where(c, x, x) * 2, x, torch.eye(2, dtype=torch.bool))
