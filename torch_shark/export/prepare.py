"""The last changes to an exported program's graph: what IREE would get wrong, written otherwise.

These are those of a region. How results are read (`lowering.fusion`) is told by sizes that are
numbers, so it is looked at in a twin of the graph, where symbols have the example's sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from torch_shark.export.views import write_views_in_pieces
from torch_shark.lowering.fusion import KEEP_APART, keep_apart
from torch_shark.lowering.places import keep_places_apart
from torch_shark.lowering.trace import tidy


def prepare(program: ExportedProgram) -> None:
    """Rewrite the graph of a program in place; names of nodes may change."""
    tidy(program.graph_module)
    twin, originals = _twin(program.graph)
    keep_apart(twin)
    keep_places_apart(twin)
    _follow(twin, originals)
    write_views_in_pieces(program.graph)


def _twin(graph: Graph) -> tuple[Graph, dict[Node, Node]]:
    """Return a copy of a graph in which all sizes are numbers, and the original of each node."""
    twin = Graph()
    copies: dict[Node, Node] = {}

    def argument(node: Node) -> Any:
        value = node.meta.get("val")
        return _number(value) if isinstance(value, torch.SymInt) else copies[node]

    for node in graph.nodes:
        copy = twin.create_node(
            node.op, node.target, map_arg(node.args, argument), map_arg(node.kwargs, argument)
        )
        copy.meta["val"] = pytree.tree_map(_with_numbers, node.meta.get("val"))
        copies[node] = copy
    return twin, {copy: node for node, copy in copies.items()}


def _number(size: Any) -> int:
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


def _with_numbers(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty([_number(n) for n in value.shape], dtype=value.dtype, device="meta")


def _follow(twin: Graph, originals: dict[Node, Node]) -> None:
    """Keep apart in the original what is kept apart in the twin."""
    kept: dict[Node, tuple[Node, Node]] = {}  # in the twin, to what it keeps and to what is made
    for node in twin.nodes:
        if node not in originals:
            source = originals[node.args[0]]
            later = node.next
            while later not in originals:
                later = later.next
            with source.graph.inserting_before(originals[later]):
                made = source.graph.call_function(KEEP_APART, (source,))
            made.meta["val"] = source.meta["val"]
            originals[node] = made
            kept[node] = (source, made)
        else:
            for source, made in (kept[n] for n in node.all_input_nodes if n in kept):
                originals[node].replace_input_with(source, made)
