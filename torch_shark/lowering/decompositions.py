"""How operators are written out in a region's graph.

Two mechanisms: a body replaces a recorded operator before tracing (see `bodies`), and the table
below is what tracing uses for operators that appear inside others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from torch_shark.lowering import (
    bodies_conv,
    bodies_fused,
    bodies_index,
    bodies_math,
    bodies_nn,
    bodies_pointwise,
    bodies_reduce,
    sums,
)
from torch_shark.lowering.bodies import BODIES
from torch_shark.lowering.operators import find_operator

# Importing a module of bodies registers what it holds.
_MODULES = (
    bodies_conv,
    bodies_fused,
    bodies_index,
    bodies_math,
    bodies_nn,
    bodies_pointwise,
    bodies_reduce,
)

# Replaced wherever they appear: IREE's own lowering loses NaN, or writes to an input.
_IN_GRAPH: dict[str, Callable[..., Any]] = {
    "clamp.default": bodies_pointwise.clamp,
    "clamp.Tensor": bodies_pointwise.clamp,
    "clamp_min.default": bodies_pointwise.maximum,
    "clamp_min.Tensor": bodies_pointwise.maximum,
    "clamp_max.default": bodies_pointwise.minimum,
    "clamp_max.Tensor": bodies_pointwise.minimum,
    "maximum.default": bodies_pointwise.maximum,
    "minimum.default": bodies_pointwise.minimum,
    "hardtanh.default": bodies_pointwise.hardtanh,
    "relu.default": bodies_pointwise.relu,
    "slice_scatter.default": bodies_index.slice_scatter,
    "select_scatter.default": bodies_index.select_scatter,
}


def call(name: str, args: list[Any]) -> Any:
    """Calls the body of an operator, or the operator itself where it has none."""
    written_out = BODIES.get(name)
    if written_out is not None:
        return written_out(*args)
    operator = find_operator(name)
    assert operator is not None
    return operator(*args)


@cache
def table() -> dict[Any, Callable[..., Any]]:
    """Returns the decomposition table for tracing: torch-mlir's, with our replacements."""
    # Imported here: a process that finds its regions in the store never needs torch-mlir.
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    decompositions = dict(get_decomposition_table()) | sums.replacements()
    for name, function in _IN_GRAPH.items():
        packet, _, overload_name = name.partition(".")
        decompositions[getattr(getattr(torch.ops.aten, packet), overload_name)] = function
    return decompositions
