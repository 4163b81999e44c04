"""Lifted scalars: new values never compile anew, and dtypes promote as with numbers."""

from __future__ import annotations

import pytest
import torch
from checking import check
from recording import record, run_plan

from torch_shark.lowering.decompositions import BODIES
from torch_shark.lowering.operators import find_operator
from torch_shark.lowering.scalars import liftable_positions
from torch_shark.planner import Planner


def test_new_values_do_not_compile(planner: Planner) -> None:
    x, y = torch.randn(2, 4, 6)
    for value in (0.5, 1.0, -3.25, 2.0, 1e-8):
        check(
            planner,
            lambda x, y, v=value: torch.addcmul((x * v).clamp(-v, v) + 1, x, y, value=v),
            x,
            y,
        )
    assert planner.stats.compiles == 1


def test_the_value_of_the_window_at_hand_counts(planner: Planner) -> None:
    first = record(lambda x: x * 2.0, torch.ones(3))
    second = record(lambda x: x * 7.0, torch.ones(3))
    run = run_plan(planner.plan(first.record), first, second.record)
    assert run.buffers[1].bytes.view(torch.float32).tolist() == [7.0, 7.0, 7.0]


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor([1.5, 2.0]).bfloat16(),
        torch.tensor(1.3).bfloat16(),
        torch.tensor(1.3).half(),
        torch.tensor([1, 2]),
        torch.tensor([1, 2], dtype=torch.int32),
        torch.tensor(3, dtype=torch.int32),
        torch.tensor([True, False]),
        torch.tensor(1.3, dtype=torch.float64),
    ],
    ids=lambda x: f"{x.dtype}-{x.dim()}d",
)
def test_promotion(planner: Planner, x: torch.Tensor) -> None:
    check(planner, lambda x: [x * 0.5, x + 1, x > 0.75, x + 1.5], x)


def test_broadcasts_of_scalars_and_shapes(planner: Planner) -> None:
    for shape in ((2, 3), (2, 2), (4, 2)):
        check(planner, lambda x: x * 3.0 + 0.5, torch.randn(shape))
    assert planner.stats.compiles == 3


def test_optimizers_are_liftable() -> None:
    for name in ("_fused_adam_", "addcdiv_", "add_.Tensor", "lerp.Scalar"):
        assert liftable_positions("aten::" + name)
    # An exponent shapes the graph: a cube is two products.
    assert not liftable_positions("aten::pow.Tensor_Scalar")


def test_what_is_lifted_has_a_body_that_takes_it() -> None:
    lifting = set()
    for name in torch._C._dispatch_get_all_op_names():
        operator = find_operator(name) if name.startswith("aten::") else None
        if operator is not None and liftable_positions(name):
            lifting.add(operator.functional or name)
    assert len(lifting) >= 35
    assert lifting <= BODIES.keys()
