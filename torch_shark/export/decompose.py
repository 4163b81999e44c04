"""An exported program with its operators written out, as regions have them.

The table of `lowering.decompositions` is for what appears inside other operators; the bodies of
`lowering.bodies` replace whole operators. Most of both are written for sizes that are numbers, and
choose by them. Where a size is a symbol they would choose by the example's, and be wrong for
others: there torch-mlir's own decomposition is taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph
from torch.utils import _pytree as pytree

from torch_shark.export import indices
from torch_shark.export.attention import attention
from torch_shark.lowering import decompositions
from torch_shark.lowering.bodies import BODIES
from torch_shark.lowering.operators import find_operator
from torch_shark.lowering.support import ATTENTION


def decompose(program: ExportedProgram, for_cpu: bool = True) -> ExportedProgram:
    """Return the program in operators that IREE has a lowering for.

    Args:
        program: what torch.export gave; it is used up.
        for_cpu: whether CPUs alone will run it (see `attention`).
    """
    _let_views_copy(program.graph)
    with warnings.catch_warnings():
        # PyTorch copies pytree specs by way of a class that it deprecates itself.
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
        decomposed: ExportedProgram = program.run_decompositions(_table(for_cpu))
    return decomposed


def _let_views_copy(graph: Graph) -> None:
    """Make views reshapes, where nothing is written through them.

    Attention written out has results of other strides, over which a view may not be possible.
    """
    if any(
        getattr(node.target, "_schema", None) and node.target._schema.is_mutable
        for node in graph.nodes
    ):
        return
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default


def _table(for_cpu: bool) -> dict[Any, Callable[..., Any]]:
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    theirs = get_decomposition_table()
    table = dict(theirs)
    for operator, function in decompositions.table().items():
        if function is not theirs.get(operator):
            table[operator] = _for_known_sizes(operator, function, theirs.get(operator))
    bodies = _Bodies()
    written = BODIES if for_cpu else {**BODIES, ATTENTION: attention}
    for name in dict.fromkeys([*written, *indices.NAMES]):
        found = find_operator(name)
        if found is None or found.written or _is_copy(name):
            continue
        operator, body = found.overload, written.get(name, found)
        inside = table.get(operator)
        if name in indices.NAMES:  # their bodies look at no size
            table[operator] = bodies.of(operator, indices.bounded(name, body), inside)
        else:
            written_out = bodies.of(operator, body, inside)
            table[operator] = _for_known_sizes(operator, written_out, inside)
    return table


def _is_copy(name: str) -> bool:
    """Tell whether an operator copies; its body does not, and a later view may need its strides."""
    packet = name.removeprefix("aten::").partition(".")[0]
    copies = packet.endswith("_copy") and packet != "index_copy"
    return copies or packet in ("clone", "copy", "lift_fresh")


_FOR_ALL_SIZES = (
    torch.ops.aten.cumsum.default,
    torch.ops.aten.var.correction,
    torch.ops.aten.var_mean.correction,
)


def _for_known_sizes(
    operator: Any, function: Callable[..., Any], otherwise: Callable[..., Any] | None
) -> Callable[..., Any]:
    """Return a decomposition that is another one where a size is a symbol.

    Pointwise operators, running sums and variances don't choose by sizes.
    """
    if torch.Tag.pointwise in operator.tags or operator in _FOR_ALL_SIZES:
        return function

    def chosen(*args: Any, **kwargs: Any) -> Any:
        if not _has_symbols((args, kwargs)):
            return function(*args, **kwargs)
        return NotImplemented if otherwise is None else otherwise(*args, **kwargs)

    return chosen


def _has_symbols(arguments: Any) -> bool:
    return any(
        isinstance(leaf, torch.SymInt)
        or (isinstance(leaf, torch.Tensor) and any(isinstance(n, torch.SymInt) for n in leaf.shape))
        for leaf in pytree.tree_leaves(arguments)
    )


class _Bodies:
    """Bodies as decompositions: one may call the operator that it is the body of."""

    def __init__(self) -> None:
        self._is_inside = False

    def of(
        self, operator: Any, body: Callable[..., Any], inside: Callable[..., Any] | None
    ) -> Callable[..., Any]:
        """Return the decomposition of an operator; inside of a body it is what it was before."""

        def decomposition(*args: Any, **kwargs: Any) -> Any:
            if self._is_inside:
                return NotImplemented if inside is None else inside(*args, **kwargs)
            rest = operator._schema.arguments[len(args) :]
            self._is_inside = True
            try:
                return body(*args, *(kwargs.get(a.name, a.default_value) for a in rest))
            finally:
                self._is_inside = False

        return decomposition
