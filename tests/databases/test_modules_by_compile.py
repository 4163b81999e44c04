"""PyTorch's own list of modules by torch.compile(backend="shark"), forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from against_cpu import gradients, moved, outcome, same
from test_modules import each, inputs_of
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput
from torch.utils._pytree import tree_leaves

from torch_shark import config

# Modules warn of settings that make them slow, or that will change, on every device.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    with config.scope(policy="native"):
        yield
        torch._dynamo.reset()


def computed(
    info: ModuleInfo, given: ModuleInput, dtype: torch.dtype, training: bool, device: str, by: Any
) -> dict[str, Any]:
    """A call of the module, its gradients, and the state that it leaves."""
    made = moved((given.constructor_input.args, given.constructor_input.kwargs), device)
    module = info.module_cls(*made[0], **made[1]).to(device, dtype).train(training)
    args, kwargs = moved((given.forward_input.args, given.forward_input.kwargs), device)
    output = by(module)(*args, **kwargs)
    results = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    leaves = [*tree_leaves((args, kwargs)), *module.parameters()]
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    return {
        "output": output,
        "gradients": gradients(results, inputs),
        "arguments": (args, kwargs),
        "state": dict(module.state_dict()),
    }


# Their code branches on values: Dynamo breaks their graphs, whatever the backend.
BROKEN = (torch.nn.CTCLoss, torch.nn.GaussianNLLLoss)


def check(
    info: ModuleInfo, dtype: torch.dtype, training: bool, given: list[ModuleInput], device: str
) -> None:
    """Compare with the backend that runs what AOTAutograd makes of the module, eagerly."""

    def by(backend: str, at: str) -> Any:
        def compiled(module: torch.nn.Module) -> Any:
            return torch.compile(module, backend=backend, fullgraph=info.module_cls not in BROKEN)

        torch._dynamo.reset()
        return outcome(partial(computed, info, one, dtype, training, by=compiled), at)

    with torch._dynamo.config.patch(allow_rnn=True):
        for one in given:
            if one.forward_input is not None:
                same(by("shark", device), by("aot_eager", "cpu"), exact=True)


@each((torch.float32,))
def test_module_on_the_cpu(info: ModuleInfo, dtype: torch.dtype, training: bool) -> None:
    check(info, dtype, training, inputs_of(info, dtype, training)[:1], "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "shark"])
@each((torch.float32, torch.float64))
def test_all_arguments(info: ModuleInfo, dtype: torch.dtype, training: bool, device: str) -> None:
    check(info, dtype, training, inputs_of(info, dtype, training), device)
