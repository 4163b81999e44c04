"""One program on the CPU and on the device, compared."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from tests.exactness import is_as_near
from torch_shark import config

Program = Callable[[str], Any]
SEED = 1234


def outcome(program: Program, device: str) -> Any:
    """What the program returns, begun with the same random numbers."""
    torch.manual_seed(SEED)
    return program(device)


def compare(
    program: Program,
    policy: str,
    *,
    wide: Program | None = None,
    compiled: bool = True,
    rounded_to: torch.dtype | None = None,
) -> None:
    """Run the program on both: natively twice, for first calls run at once, then compiled.

    Natively all values are equal bit for bit and strides are equal; compiled ones are within the
    tolerances of torch.testing, or as near to what `wide`, the program in double, gives as the
    CPU's are. `compiled` says whether there is anything in it that compiles; `rounded_to` names a
    dtype in which the program computes on its way, and whose tolerances hold then.
    """
    expected = outcome(program, "cpu")
    with config.scope(policy="native"):
        for _ in range(2 if policy == "native" else 1):
            same(outcome(program, "shark"), expected, exact=True)
    if policy == "native":
        return
    with config.scope(policy=policy):
        torch.shark.synchronize()
        torch.shark.reset_metrics()
        actual = outcome(program, "shark")
        torch.shark.synchronize()
        assert (torch.shark.metrics().regions > 0) == compiled, torch.shark.explain()
        try:
            same(actual, expected, exact=False, **_TOLERANCES[rounded_to])
        except AssertionError:
            if wide is None or not _are_as_near(outcome(wide, "cpu"), expected, actual):
                raise


_TOLERANCES: dict[torch.dtype | None, dict[str, float]] = {
    None: {},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-5},  # as in torch.testing
}


def _are_as_near(exact: Any, expected: Any, actual: Any) -> bool:
    leaves = zip(tree_leaves(exact), tree_leaves(expected), tree_leaves(actual), strict=True)
    return all(
        torch.allclose(other.cpu(), one, rtol=1.3e-6, atol=1e-5, equal_nan=True)
        or is_as_near(truth, one.detach(), other.detach().cpu())
        for truth, one, other in leaves
        if isinstance(one, torch.Tensor)
    )


def same(
    actual: Any, expected: Any, *, exact: bool, where: str = "result", **tolerance: float
) -> None:
    """Assert that a structure of tensors and plain values is what the CPU gave."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor), f"{where}: {actual!r}"
        if expected.is_nested or expected.layout != torch.strided:
            raise TypeError(f"{where}: expected a strided tensor, got {expected.layout}")
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), where
        assert actual.requires_grad == expected.requires_grad, where
        assert actual.stride() == expected.stride(), where
        if exact:
            tolerance = {"rtol": 0, "atol": 0}
        torch.testing.assert_close(
            actual.detach().cpu(),
            expected.detach(),
            equal_nan=True,
            msg=lambda text: f"{where}: {text}",
            **tolerance,
        )
    elif isinstance(expected, Mapping):
        assert list(actual) == list(expected), where
        for key, value in expected.items():
            same(actual[key], value, exact=exact, where=f"{where}[{key!r}]", **tolerance)
    elif isinstance(expected, (list, tuple)):
        assert isinstance(actual, type(expected)), f"{where}: {actual!r}"
        assert len(actual) == len(expected), where
        for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
            same(one, other, exact=exact, where=f"{where}[{i}]", **tolerance)
    else:
        assert type(actual) is type(expected), f"{where}: {actual!r}, expected {expected!r}"
        assert actual == expected, where


def moved(value: Any, device: str) -> Any:
    """Arguments in tensors of their own on the device."""

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return copy.deepcopy(leaf)
        placed = leaf.detach().clone().to(device)
        return placed.requires_grad_() if leaf.requires_grad else placed

    return tree_map(move, value)


def gradients(results: list[torch.Tensor], inputs: list[torch.Tensor], **options: bool) -> Any:
    """Gradients of the inputs, for results weighted by fixed numbers."""
    results = [result for result in results if result.requires_grad]
    if not results or not inputs:
        return []
    weights = [
        torch.arange(1.0, result.numel() + 1).sin().reshape(result.shape).to(result)
        for result in results
    ]
    return torch.autograd.grad(results, inputs, weights, allow_unused=True, **options)
