"""What IREE must not put into one place.

A concatenation is a chain of updates of memory of its own, and IREE makes one of the beginnings
that two chains have in common. It then takes that memory to be as small as the first piece, and
the two results overlap: of `cat([x, y]), cat([x, z])` one has parts of the other. The same happens
to a value of which two updated versions are made. So each but the first starts from a value that
is kept apart.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from torch_shark.lowering.fusion import KEEP_APART

_aten = torch.ops.aten
_CONCATENATIONS = frozenset([_aten.cat.default, _aten.stack.default])
# The first argument is the value of which an updated version is made.
_UPDATES = frozenset(
    [
        *[_aten.constant_pad_nd.default, _aten.slice_scatter.default],
        *[_aten.select_scatter.default, _aten.diagonal_scatter.default],
        *[_aten.as_strided_scatter.default],
    ]
)


def keep_places_apart(graph: Graph) -> None:
    """Insert `KEEP_APART` where a second chain of updates may begin as an earlier one does.

    IREE moves transposes about and finds values to be equal that differ here, so a beginning is
    known by its size.
    """
    begun: set[tuple[int, torch.dtype, int]] = set()
    for node in list(graph.nodes):
        if node.target in _CONCATENATIONS:
            first = node.args[0][0]
        elif node.target in _UPDATES:
            first = node.args[0]
        else:
            continue
        value = first.meta["val"]
        beginning = (value.numel(), value.dtype, node.meta["val"].numel())
        if beginning in begun:
            _keep_apart(first, node)
        begun.add(beginning)


def _keep_apart(value: Node, user: Node) -> None:
    with user.graph.inserting_before(user):
        kept = user.graph.call_function(KEEP_APART, (value,))
    kept.meta["val"] = value.meta["val"]
    start, *others = user.args
    user.args = ([kept, *start[1:]] if isinstance(start, list) else kept, *others)
