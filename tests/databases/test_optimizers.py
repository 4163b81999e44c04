"""PyTorch's own list of optimizers, in every form, against the CPU."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_cpu import compare
from torch.testing._internal.common_optimizers import OptimizerInfo, OptimizerInput, optim_db

from torch_shark import config

STEPS = 3
FORMS = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
# SparseAdam takes sparse gradients only, which the device does not have.
OPTIMIZERS = [info for info in optim_db if not info.only_supports_sparse_grads]


@pytest.fixture(autouse=True)
def capturable_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU judge `capturable` as well, which it computes but is not let to."""
    for info in OPTIMIZERS:
        module = sys.modules[info.optim_cls.__module__]
        if hasattr(module, "_get_capturable_supported_devices"):
            monkeypatch.setattr(
                module, "_get_capturable_supported_devices", lambda *_, **__: ["cpu", "shark"]
            )


def arguments_of(info: OptimizerInfo) -> list[OptimizerInput]:
    """PyTorch's arguments for the optimizer, and those for devices with `capturable`."""
    return info.optim_inputs_func(device="cuda")


def each(keep: Callable[[OptimizerInfo, str, int, OptimizerInput], bool]) -> Any:
    return pytest.mark.parametrize(
        ("info", "form", "arguments"),
        [
            pytest.param(info, form, call, id=f"{info.optim_cls.__name__}-{form}-{i}-{call.desc}")
            for info in OPTIMIZERS
            for form in ("for-loop", *info.supported_impls)
            for i, call in enumerate(arguments_of(info))
            if keep(info, form, i, call)
        ],
    )


def parameters(info: OptimizerInfo, form: str, device: str) -> list[torch.Tensor]:
    """Parameters of several shapes and layouts, of complex numbers where they may be."""
    torch.manual_seed(0)
    made = [torch.randn(4, 3)]
    if info.optim_cls is not torch.optim.LBFGS:  # it views them as vectors
        made.append(torch.randn(5, 4).t())
    if info.optim_cls is not torch.optim.Muon:  # it takes matrices
        made += [torch.randn(()), torch.randn(2, 3, 1)]
        if info.supports_complex and form in ("for-loop", "foreach"):
            made.append(torch.randn(3, dtype=torch.complex64))
    return [tensor.to(device).requires_grad_() for tensor in made]


def optimizer_over(
    params: list[torch.Tensor], info: OptimizerInfo, form: str, arguments: OptimizerInput
) -> torch.optim.Optimizer:
    chosen = FORMS[form] if info.supported_impls else {}
    return info.optim_cls(params, **copy.deepcopy(arguments.kwargs), **chosen)


def train(
    optimizer: torch.optim.Optimizer, params: list[torch.Tensor], steps: int
) -> list[torch.Tensor]:
    """Take steps; return the losses that the optimizer saw."""

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        losses = [(i + 1) * (p.abs() ** 2).sum() + p.abs().sum() for i, p in enumerate(params)]
        loss = torch.stack(losses).sum()
        loss.backward()
        return loss

    return [optimizer.step(closure).detach() for _ in range(steps)]


def trained(
    info: OptimizerInfo, form: str, arguments: OptimizerInput, device: str
) -> tuple[Any, ...]:
    """Parameters, losses and state after some steps, and again from a copy of the state."""
    params = parameters(info, form, device)
    optimizer = optimizer_over(params, info, form, arguments)
    losses = train(optimizer, params, STEPS)
    resumed_params = [p.detach().clone().requires_grad_() for p in params]
    resumed = optimizer_over(resumed_params, info, form, arguments)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    losses += train(optimizer, params, 1) + train(resumed, resumed_params, 1)
    return params, resumed_params, losses, optimizer.state_dict()["state"]


@each(lambda info, form, i, call: form in FORMS)
def test_optimizer(info: OptimizerInfo, form: str, arguments: OptimizerInput) -> None:
    compare(lambda device: trained(info, form, arguments, device), "native")


QUICK = {("Adam", "foreach"), ("SGD", "for-loop")}
ROUNDED_TO = {torch.optim.Muon: torch.bfloat16}  # it makes matrices orthogonal in that dtype


def is_smooth(info: OptimizerInfo) -> bool:
    """Whether small differences of a step stay small; a search along lines makes them large."""
    return info.optim_cls is not torch.optim.LBFGS


@pytest.mark.slow
@each(
    lambda info, form, i, call: (
        form in FORMS and is_smooth(info) and (info.optim_cls.__name__, form) not in QUICK
    )
)
def test_optimizer_compiled(info: OptimizerInfo, form: str, arguments: OptimizerInput) -> None:
    compare(
        lambda device: trained(info, form, arguments, device),
        "iree",
        rounded_to=ROUNDED_TO.get(info.optim_cls),
    )


@pytest.mark.slow
@each(lambda info, form, i, call: not is_smooth(info))
def test_search_compiled(info: OptimizerInfo, form: str, arguments: OptimizerInput) -> None:
    """It goes down a bowl as on the CPU; what it knows of the bottom itself is all rounding."""
    torch.manual_seed(0)
    lowest = torch.randn(4, 3)

    def found(device: str) -> torch.Tensor:
        place, goal = torch.zeros(4, 3, device=device, requires_grad=True), lowest.to(device)
        optimizer = optimizer_over([place], info, form, arguments)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = ((place - goal) ** 2 * goal.abs().add(1)).sum()
            loss.backward()
            return loss

        for _ in range(30):
            optimizer.step(closure)
        return place.detach()

    with config.scope(policy="iree"):
        torch.shark.reset_metrics()
        actual = found("shark").cpu()
        assert torch.shark.metrics().regions > 0
    torch.testing.assert_close(actual, found("cpu"), rtol=1e-3, atol=1e-3)


@each(lambda info, form, i, call: i == 0 and (info.optim_cls.__name__, form) in QUICK)
def test_common_optimizer_compiled(
    info: OptimizerInfo, form: str, arguments: OptimizerInput
) -> None:
    compare(lambda device: trained(info, form, arguments, device), "iree")


def stepped(info: OptimizerInfo, arguments: OptimizerInput, device: str) -> tuple[Any, ...]:
    """Parameters after a differentiable step, and gradients through the step."""
    leaves = parameters(info, "differentiable", device)
    slopes = [p.detach().cos().requires_grad_() for p in leaves]
    params = [p.clone() for p in leaves]
    for p, slope in zip(params, slopes, strict=True):
        p.grad = slope.clone()
    options = copy.deepcopy(arguments.kwargs)
    # SGD would take foreach otherwise, as it does on all devices but the CPU.
    optimizer = info.optim_cls(params, **options, differentiable=True, foreach=False)
    optimizer.step()
    results = [p for p in params if p.requires_grad]
    gradients = torch.autograd.grad(
        [(p * p).sum() for p in results], leaves + slopes, allow_unused=True
    )
    return params, gradients, optimizer.state_dict()["state"]


# The capturable step of ASGD changes what its own gradient needs, on every device.
@each(
    lambda info, form, i, call: (
        form == "differentiable"
        and not (info.optim_cls is torch.optim.ASGD and call.kwargs.get("capturable"))
    )
)
def test_differentiable_step(info: OptimizerInfo, form: str, arguments: OptimizerInput) -> None:
    compare(lambda device: stepped(info, arguments, device), "native")
