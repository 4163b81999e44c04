"""``torch.compile(backend="shark")``: Dynamo's graphs, through the device's own windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

from torch_shark import _C


def shark(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """Compile a graph and its backward for the shark device.

    Dynamo wraps what is raised here in its own ``BackendCompilerFailed``.

    Args:
        graph: what Dynamo captured.
        example_inputs: its inputs: fake tensors and symbolic integers.
        options: the options and the mode given to ``torch.compile``; there are none yet.

    Returns:
        A function of the graph's inputs that gives the graph's results.

    Raises:
        TypeError: an option or a mode was given.
        ValueError: an input is a tensor of another device.
    """
    if options:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise TypeError(f"[shark] expected no options, got {given}")
    for value in example_inputs:
        # As in eager code, a 0-d tensor of the CPU is a number.
        if isinstance(value, torch.Tensor) and value.device.type != "shark" and value.dim():
            raise ValueError(
                f'[shark] expected inputs on the device "shark", got one on "{value.device}": '
                'move the model and its inputs with .to("shark")'
            )
    backend = aot_autograd(fw_compiler=_as_windows, bw_compiler=_as_windows)
    return backend(graph, example_inputs)


def _as_windows(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """Record the graph's operators as a window of their own each time it is called.

    A window that began or went on outside of the graph would be another one, and compile anew,
    wherever the graph is called from.
    """

    def run(*inputs: Any) -> Any:
        _C.flush_graph()
        results = graph(*inputs)
        _C.flush_graph()
        return results

    return make_boxed_func(run)
