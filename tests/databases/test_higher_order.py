"""PyTorch's own list of higher-order operators, called eagerly, against the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from against_cpu import compare, gradients
from functorch.experimental import control_flow
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.testing._internal.hop_db import hop_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves

# They compile by Dynamo, which warns of its own parts, on every device.
pytestmark = pytest.mark.filterwarnings("ignore")

# Written in a graphics processor's assembler, or in need of a cluster.
OPERATORS = [op for op in hop_db if op.name not in ("inline_asm_elementwise", "local_map_hop")]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.name}-{op.variant_test_name}")
def test_listed_operator(op: OpInfo) -> None:
    # The CPU has no backward of flex_attention.
    grad = op.supports_autograd and not op.name.startswith("flex_attention")

    def program(device: str) -> Any:
        torch._dynamo.reset()
        torch.manual_seed(0)
        samples = op.sample_inputs_func(op, torch.device(device), torch.float32, grad)
        results = []
        for sample in samples:
            args = (sample.input, *sample.args)
            output = op.op(*args, **sample.kwargs)
            tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
            inputs = [
                leaf
                for leaf in tree_leaves((args, sample.kwargs))
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad
            ]
            results.append((tensors, gradients(tensors, inputs)))
        return results

    compare(program, "native")


def branches(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() - 1, (x,))


def loop(x: torch.Tensor) -> Any:
    return while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x * 1.5), (x.new_zeros((), dtype=torch.int64), x)
    )


def mapped(x: torch.Tensor) -> Any:
    return control_flow.map(lambda row, y: (row * y).cos(), x, x[0].clone())


def scanned(x: torch.Tensor) -> Any:
    return scan(lambda carry, row: (carry * 0.5 + row, carry + row), x[0].clone(), x)


def associative(x: torch.Tensor) -> Any:
    return associative_scan(lambda a, b: a * b + a, x, dim=0, combine_mode="generic")


def attention(x: torch.Tensor) -> Any:
    query = x.reshape(1, 1, 4, 5).expand(2, 2, 4, 5).repeat(1, 1, 4, 1)
    mask = create_block_mask(
        lambda b, h, q, k: q >= k, B=None, H=None, Q_LEN=16, KV_LEN=16, device=x.device
    )
    return flex_attention(query, query * 2, query + 1, block_mask=mask)


PROGRAMS = {
    "cond": branches,
    "while_loop": loop,
    "map": mapped,
    "scan": scanned,
    "associative_scan": associative,
    "flex_attention": attention,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("policy_name", ["native", pytest.param("iree", marks=pytest.mark.slow)])
def test_control_flow(program: Any, policy_name: str) -> None:
    def run(device: str) -> Any:
        torch._dynamo.reset()
        x = torch.linspace(-1, 1.5, 20).reshape(4, 5).to(device)
        return program(x), program(-x)

    compare(run, policy_name)


@pytest.mark.parametrize("name", ["cond", "map", "scan"])
def test_gradient_of_control_flow(name: str) -> None:
    def run(device: str) -> Any:
        torch._dynamo.reset()
        x = torch.linspace(-1, 1.5, 20).reshape(4, 5).to(device).requires_grad_()
        tensors = [leaf for leaf in tree_leaves(PROGRAMS[name](x)) if leaf.requires_grad]
        return gradients(tensors, [x])

    compare(run, "native")


def test_gradient_of_attention() -> None:
    """The CPU has none, so the same attention written out is the judge."""

    def gradient(attend: Any) -> torch.Tensor:
        x = torch.linspace(-1, 1.5, 20).reshape(4, 5).to("shark").requires_grad_()
        (result,) = torch.autograd.grad(attend(x).square().sum(), x)
        return result

    def written_out(x: torch.Tensor) -> torch.Tensor:
        query = x.reshape(1, 1, 4, 5).expand(2, 2, 4, 5).repeat(1, 1, 4, 1)
        return torch.nn.functional.scaled_dot_product_attention(
            query, query * 2, query + 1, is_causal=True
        )

    torch._dynamo.reset()
    torch.testing.assert_close(gradient(attention), gradient(written_out))
