"""``torch.compile(backend="shark")``: Dynamo's graphs, through the device's own windows.

Tensors may be on the device or on the CPU. A graph of CPU tensors runs on the device over their own
memory (see `compiled_on_cpu`), and its results are there when the call returns. In a graph of both,
each operator runs where it would in eager code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.utils import _pytree as pytree

from torch_shark import _C, compiler
from torch_shark.compiled_on_cpu import OnCpu
from torch_shark.config import Config, config
from torch_shark.errors import CompileOptionError
from torch_shark.integrations import cache_artifacts

# Knobs that speak of single windows: the others are the process's.
OPTIONS = ("policy", "verify", "target", "compile_flags", "cache_dir", "dump_dir")
MODES = ("default", "reduce-overhead", "max-autotune")  # see docs/compile.md
# A window is planned when it has come twice.
_FIRST_CALLS = 3

Graph = Callable[..., Any]


def shark(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[..., Any]:
    """Compile a graph and its backward for the shark device.

    Dynamo wraps what is raised here in its own ``BackendCompilerFailed``.

    Args:
        graph: what Dynamo captured.
        example_inputs: its inputs: fake tensors and symbolic integers.
        mode: one of `MODES`.
        options: values for the knobs in `OPTIONS`, for the windows of this graph alone.

    Returns:
        A function of the graph's inputs that gives the graph's results.

    Raises:
        CompileOptionError: an option or a mode is not known, or an option's value is wrong.
    """
    mode, knobs = mode or "default", dict(options or {})
    _check(mode, knobs)
    cache_artifacts.begin()
    compile_graph = partial(_as_windows, mode=mode, knobs=knobs)
    backend = aot_autograd(fw_compiler=compile_graph, bw_compiler=compile_graph)
    return backend(graph, example_inputs)


def _check(mode: str, options: Mapping[str, object]) -> None:
    if mode not in MODES:
        raise CompileOptionError("mode", mode, MODES)
    for name in options:
        if name not in OPTIONS:
            raise CompileOptionError("option", name, OPTIONS)
    checked = Config()
    for name, value in options.items():
        setattr(checked, name, value)


def _is_of_cpu(graph: torch.fx.GraphModule) -> bool:
    """Whether a graph has no tensor on the device."""
    values = pytree.tree_leaves([node.meta.get("val") for node in graph.graph.nodes])
    return not any(isinstance(x, torch.Tensor) and x.device.type == "shark" for x in values)


def _as_windows(
    graph: torch.fx.GraphModule,
    _: Sequence[Any],
    *,
    mode: str,
    knobs: Mapping[str, object],
) -> Graph:
    """Record the graph's operators as a window of their own each time it is called.

    A window that began or went on outside of the graph would be another one, and compile anew,
    wherever the graph is called from.
    """

    def run(*inputs: Any) -> Any:
        _C.flush_graph()
        results = graph(*inputs)
        _C.flush_graph()
        return results

    call: Graph = OnCpu(graph) if _is_of_cpu(graph) else run
    if mode == "max-autotune":
        call = _waiting(call)
    return make_boxed_func(_scoped(call, knobs) if knobs else call)


def _waiting(call: Graph) -> Graph:
    """Wait after the first calls until all that is worth it is compiled."""
    calls = 0

    def run(*inputs: Any) -> Any:
        nonlocal calls
        results = call(*inputs)
        if calls < _FIRST_CALLS:
            calls += 1
            _C.synchronize()
            compiler.finish()
        return results

    return run


def _scoped(call: Graph, knobs: Mapping[str, object]) -> Graph:
    """Run a graph under knobs of its own: windows before it and after it are under the others."""

    def run(*inputs: Any) -> Any:
        with _settled(), config.scope(**knobs), _settled():
            return call(*inputs)

    return run


@contextmanager
def _settled() -> Iterator[None]:
    """Let nothing of one side of a border run on the other."""
    _C.synchronize()
    yield
    _C.synchronize()
