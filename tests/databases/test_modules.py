"""PyTorch's own list of modules, training and not, against the CPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from against_cpu import compare, gradients, moved
from torch.testing._internal.common_modules import FunctionInput, ModuleInfo, ModuleInput, module_db
from torch.utils._pytree import tree_leaves, tree_map

# Modules warn of settings that make them slow, or that will change, on every device.
pytestmark = pytest.mark.filterwarnings("ignore")


def inputs_of(info: ModuleInfo, dtype: torch.dtype, training: bool) -> list[ModuleInput]:
    torch.manual_seed(0)
    return info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training
    )


def each(dtypes: tuple[torch.dtype, ...]) -> Any:
    return pytest.mark.parametrize(
        ("info", "dtype", "training"),
        [
            pytest.param(
                info,
                dtype,
                training,
                id=f"{info.formatted_name}-{str(dtype)[6:]}-{'train' if training else 'eval'}",
            )
            for info in module_db
            for dtype in dtypes
            if dtype in info.dtypes
            for training in ((True, False) if info.train_and_eval_differ else (True,))
        ],
    )


def second_gradients(first: list[torch.Tensor | None], inputs: list[torch.Tensor]) -> Any:
    """Gradients of gradients; the error where some operator's gradient has none."""
    try:
        return gradients([leaf for leaf in first if leaf is not None], inputs)
    except RuntimeError as error:
        return str(error)


def computed(
    info: ModuleInfo, given: ModuleInput, dtype: torch.dtype, training: bool, device: str
) -> dict[str, Any]:
    """A call of the module, its gradients, their gradients, and the state that it leaves."""
    made = moved((given.constructor_input.args, given.constructor_input.kwargs), device)
    module = info.module_cls(*made[0], **made[1]).to(device, dtype).train(training)
    args, kwargs = moved((given.forward_input.args, given.forward_input.kwargs), device)
    output = module(*args, **kwargs)
    results = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    leaves = [*tree_leaves((args, kwargs)), *module.parameters()]
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    first = gradients(results, inputs, create_graph=True)
    return {
        "output": output,
        "gradients": first,
        "second gradients": second_gradients(first, inputs),
        "arguments": (args, kwargs),
        "state": dict(module.state_dict()),
    }


def check(
    info: ModuleInfo, dtype: torch.dtype, training: bool, policy: str, given: list[ModuleInput]
) -> None:
    for one in given:
        if one.forward_input is not None:
            compare(
                lambda device, one=one: computed(info, one, dtype, training, device),
                policy,
                wide=lambda device, one=one: computed(
                    info, widened(one), torch.float64, training, device
                ),
                compiled=info.module_cls not in NEVER_COMPILED,
            )


def widened(given: ModuleInput) -> ModuleInput:
    """The input in double."""

    def widen(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        return leaf.detach().double().requires_grad_(leaf.requires_grad)

    wide = copy.copy(given)
    args, kwargs = tree_map(widen, (given.forward_input.args, given.forward_input.kwargs))
    wide.forward_input = FunctionInput(*args, **kwargs)
    return wide


FEW = 4
# What torch-mlir has no lowering for, and there is nothing else in them.
NEVER_COMPILED = (torch.nn.MultiLabelMarginLoss, torch.nn.MultiMarginLoss)


@each((torch.float32, torch.float64))
def test_module(info: ModuleInfo, dtype: torch.dtype, training: bool) -> None:
    check(info, dtype, training, "native", inputs_of(info, dtype, training)[:FEW])


@pytest.mark.slow
@each((torch.float32, torch.float64, torch.float16, torch.bfloat16))
def test_all_arguments_of_module(info: ModuleInfo, dtype: torch.dtype, training: bool) -> None:
    given = inputs_of(info, dtype, training)
    check(info, dtype, training, "native", given if dtype.itemsize == 2 else given[FEW:])


@pytest.mark.slow
@each((torch.float32,))
def test_module_compiled(info: ModuleInfo, dtype: torch.dtype, training: bool) -> None:
    check(info, dtype, training, "iree", inputs_of(info, dtype, training)[:2])
