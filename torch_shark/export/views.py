"""Views of tensors whose sizes are symbols, written so that IREE can't take them for others.

IREE learns of a view only that some sizes are unknown. Of [length, batch, 4, 8] seen as
[length * batch, 32] it takes the two first sizes to be the same one. So a view becomes pieces, each
of which merges neighbours into one dimension or splits one.
"""

from __future__ import annotations

import operator
from functools import partial, reduce
from math import prod
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

_aten = torch.ops.aten
_VIEWS = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)

Group = tuple[int, int, int, int]
"""Dimensions that hold the same elements: first and end before the view, first and end after it."""


def write_views_in_pieces(graph: Graph) -> None:
    """Replace views, where a size is a symbol, by merging and splitting dimensions."""
    for overload in _VIEWS:
        for node in graph.find_nodes(op="call_function", target=overload):
            groups = _groups(_sizes(node.args[0].meta["val"]), _sizes(node.meta["val"]))
            if groups is not None:
                _replace(node, groups)


def _sizes(value: Any) -> list[Any]:
    """Return sizes as numbers and sympy's expressions."""
    return [size.node.expr if isinstance(size, torch.SymInt) else size for size in value.shape]


def _groups(before: list[Any], after: list[Any]) -> list[Group] | None:
    """Return the smallest groups of neighbours; None if no size is a symbol, or none are found."""
    if all(isinstance(size, int) for size in before):
        return None
    groups: list[Group] = []
    i = k = 0
    while i < len(before) and k < len(after):
        ends = [(j, m) for j in range(i + 1, len(before) + 1) for m in range(k + 1, len(after) + 1)]
        ends.sort(key=sum)
        found = next(((j, m) for j, m in ends if _same(before[i:j], after[k:m])), None)
        if found is None:
            return None
        groups.append((i, found[0], k, found[1]))
        i, k = found
    if not groups or prod(before[i:]) != 1 or prod(after[k:]) != 1:
        return None
    first, _, first_after, _ = groups[-1]
    groups[-1] = (first, len(before), first_after, len(after))
    return groups


def _same(one: list[Any], other: list[Any]) -> bool:
    difference = prod(one) - prod(other)
    return bool(difference == 0 or (not isinstance(difference, int) and difference.expand() == 0))


def _replace(view: Node, groups: list[Group]) -> None:
    """Write a view anew, the last dimensions first, so that the numbers of others stay."""
    source, sizes = view.args[0], view.args[1]
    assert isinstance(source, Node)
    assert isinstance(sizes, (list, tuple))
    value = source
    after = view.meta["val"].shape
    for first, end, first_after, end_after in reversed(groups):
        if end - first > 1:
            value = _call(view, _aten.flatten.using_ints, value, first, end - 1)
        if end_after - first_after > 1:
            part = [
                known if size == -1 and isinstance(known, int) else size
                for size, known in zip(sizes, after, strict=True)
            ][first_after:end_after]
            if -1 in part:
                part[part.index(-1)] = _rest(view, source, range(first, end), part)
            value = _call(view, _aten.unflatten.int, value, first, part)
    view.replace_all_uses_with(value)
    view.graph.erase_node(view)


def _rest(view: Node, source: Node, dims: range, part: list[Any]) -> Any:
    """Return the size that is given as -1: IREE would divide by sizes that it does not know."""
    shape = source.meta["val"].shape
    sizes = [
        _call(view, _aten.sym_size.int, source, dim)
        if isinstance(shape[dim], torch.SymInt)
        else shape[dim]
        for dim in dims
    ]
    whole = reduce(partial(_call, view, operator.mul), sizes)
    others = (size for size in part if size != -1)
    return reduce(partial(_call, view, operator.floordiv), others, whole)


def _call(view: Node, function: Any, *args: Any) -> Any:
    """Return a new node before the view; what is known of numbers alone is no node."""
    known = map_arg(args, lambda node: _as_contiguous(node.meta["val"]))
    value = function(*known)
    if isinstance(value, int):
        return value
    with view.graph.inserting_before(view):
        made = view.graph.call_function(function, args)
    made.meta = {key: view.meta[key] for key in ("stack_trace",) if key in view.meta}
    made.meta["val"] = value
    return made


def _as_contiguous(value: Any) -> Any:
    """Return a fake tensor whose dimensions can be merged."""
    return value.contiguous() if isinstance(value, torch.Tensor) else value
