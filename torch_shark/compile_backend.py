"""``torch.compile(backend="shark")``: Dynamo's graphs, through the device's own windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

from torch_shark import _C


def _compile_graph(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[[list[Any]], Any]:
    """Record the graph's operators as one window each time it is called.

    Raises:
        NotImplementedError: an input is a tensor of another device.
    """
    for value in example_inputs:
        if isinstance(value, torch.Tensor) and value.device.type != "shark":
            raise NotImplementedError(
                f'[shark] expected inputs on the device "shark", got one on {value.device}: move '
                'the model and its inputs with .to("shark")'
            )

    def run(*inputs: Any) -> Any:
        _C.flush_graph()
        results = graph(*inputs)
        _C.flush_graph()
        return results

    return make_boxed_func(run)


def shark(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **unknown: Any
) -> Callable[..., Any]:
    """Compile a graph and its backward for the shark device.

    Args:
        graph: what Dynamo captured.
        example_inputs: its inputs, fake tensors among them.
        unknown: options and mode; there are none yet.

    Raises:
        TypeError: an option was given.
        NotImplementedError: an input is a tensor of another device.
    """
    if unknown:
        raise TypeError(f"[shark] expected no options, got {', '.join(sorted(unknown))}")
    backend = aot_autograd(fw_compiler=_compile_graph, bw_compiler=_compile_graph)
    return backend(graph, example_inputs)  # type: ignore[no-any-return]
