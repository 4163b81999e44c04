"""Pointwise operators and reductions at the edges: NaN, infinities, zeros of both signs.

Each table is compiled as few regions, since a region for each operator would take minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from recording import record, run_plan
from torch.nn import functional

from torch_shark.planner import Planner

Function = Callable[..., torch.Tensor]

_EDGES = torch.tensor(
    [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e30]
    + [0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 7.0, 89.0, -104.0, 1e4, -1e4, 0.999, 1e-6, -3.0, 20.5]
)

_ROWS = torch.tensor(
    [
        [1.0, 2.0, math.nan, 3.0],
        [math.inf, 1.0, 2.0, -1.0],
        [-math.inf, 1.0, 2.0, math.inf],
        [-math.inf] * 4,
        [0.0, -0.0, 0.0, -0.0],
        [1e4, 1e4, -1e4, 0.5],
        [5.0, 5.0, -3.0, 5.0],
        [math.nan, math.inf, -math.inf, 0.0],
    ]
)
_PART = 20
_NATIVE = {
    "aten::atan2",
    "aten::erfc",
    "aten::floor_divide",
    "aten::fmod.Tensor",
    "aten::logaddexp",
    "aten::logaddexp2",
    "aten::pow.Tensor_Scalar",
    "aten::pow.Tensor_Tensor",
    "aten::signbit",
}


def _named(module: Any, names: str) -> dict[str, Function]:
    return {name: getattr(module, name) for name in names.split()}


def _along_rows(names: str) -> dict[str, Function]:
    return {name: partial(getattr(torch, name), dim=1) for name in names.split()}


_UNARY: dict[str, Function] = {
    **_named(
        torch,
        "abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor frac "
        "isfinite isinf isnan log log1p log2 logit nan_to_num neg reciprocal relu round rsqrt "
        "sgn sigmoid sign signbit sin sinh sqrt square tan tanh trunc rad2deg",
    ),
    **_named(
        functional,
        "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish "
        "relu6 selu silu softplus softshrink softsign tanhshrink",
    ),
    # The CPU's own gelu(inf) depends on the size.
    "gelu": lambda x: functional.gelu(x.clamp(-1e9, 1e9)),
    "clamp": lambda x: x.clamp(-1.5, 2.0),
    "gelu tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "pow 2": lambda x: x**2,
    "pow 0.5": lambda x: x**0.5,
    "pow -1": lambda x: x**-1,
    "pow -7": lambda x: x**-7,
    "pow 1.5": lambda x: x**1.5,
    "pow 3": lambda x: x**3,
    "threshold": lambda x: functional.threshold(x, 0.1, 7.0),
}
_BINARY: dict[str, Function] = _named(
    torch,
    "add sub mul div maximum minimum atan2 pow eq ne lt le gt ge fmod remainder floor_divide "
    "logaddexp logaddexp2 xlogy heaviside logical_and logical_or logical_xor",
)
# What a compiler would fold if there were no NaN and no infinities.
_OF_ITSELF: dict[str, Function] = {
    "x - x": lambda x: x - x,
    "x / x": lambda x: x / x,
    "x * 0": lambda x: x * 0,
    "0 / x": lambda x: 0 / x,
    "x == x": lambda x: x == x,
    "x != x": lambda x: x != x,
    "x <= x": lambda x: x <= x,
    "x >= x": lambda x: x >= x,
    "x < x": lambda x: x < x,
    "where": lambda x: torch.where(x == x, x, 1.0),
    "maximum": lambda x: torch.maximum(x, -x),
    "x + 0": lambda x: 1 / (x + 0.0),
    "not less": lambda x: torch.logical_not(x < 1),
}
_REDUCTIONS: dict[str, Function] = {
    **_along_rows(
        "sum mean amax amin argmax argmin prod any all logsumexp cumsum nansum softmax "
        "log_softmax std var"
    ),
    "max": lambda x: x.max(1).values,
    "max index": lambda x: x.max(1).indices,
    "min": lambda x: x.min(1).values,
    "norm": lambda x: torch.linalg.vector_norm(x, 2, 1),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1, 1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, math.inf, 1),
    "aminmax": lambda x: torch.aminmax(x, dim=1).min,
}


def _tables() -> Iterator[Any]:
    """The tables in parts: a region of very many results does not compile."""
    pairs = torch.cartesian_prod(_EDGES, _EDGES).t().contiguous()
    inputs = {
        "unary": (_UNARY, (_EDGES,)),
        "itself": (_OF_ITSELF, (_EDGES,)),
        "binary": (_BINARY, (pairs[0], pairs[1])),
        "binary with a number": (_BINARY, (_EDGES, torch.tensor(2.5))),
        "rows": (_REDUCTIONS, (_ROWS,)),
        "columns": (_REDUCTIONS, (_ROWS.t(),)),
    }
    for title, (functions, args) in inputs.items():
        items = list(functions.items())
        for start in range(0, len(items), _PART):
            part = dict(items[start : start + _PART])
            yield pytest.param(part, args, id=f"{title} {start // _PART}")


def test_angles_of_any_size(planner: Planner) -> None:
    sizes = 10.0 ** torch.arange(-7, 39)
    angles = torch.cat([torch.randn(50) * size for size in sizes] + [math.pi / 2 * torch.arange(9)])
    recording = record(lambda x: [x.sin(), x.cos(), x.tan()], angles)
    run = run_plan(planner.plan(recording.record), recording)
    assert not run.native
    for ref, expected in zip(recording.refs, recording.result, strict=True):
        actual = run.buffers[ref.storage].tensor(ref)
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("functions", "args"), list(_tables()))
def test_values_at_the_edges(
    planner: Planner, functions: dict[str, Function], args: tuple[torch.Tensor, ...]
) -> None:
    def run_all(*args: torch.Tensor) -> list[torch.Tensor]:
        # All read what one operator of the window made, and so are one region.
        args = tuple(x * 1 if x.dim() else x for x in args)
        return [function(*args) for function in functions.values()]

    recording = record(run_all, *args, host=[x for x in args[1:] if not x.dim()])
    run = run_plan(planner.plan(recording.record), recording)
    assert set(run.native) <= _NATIVE
    wrong = {}
    for name, ref, expected in zip(functions, recording.refs, recording.result, strict=True):
        actual = run.buffers[ref.storage].tensor(ref)
        if not torch.allclose(actual, expected, rtol=1.3e-6, atol=1e-5, equal_nan=True):
            bad = ~torch.isclose(actual, expected, rtol=1.3e-6, atol=1e-5, equal_nan=True)
            wrong[name] = [actual[bad].tolist(), expected[bad].tolist()]
    assert not wrong
