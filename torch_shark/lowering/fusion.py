"""Where IREE must not fuse.

IREE puts a reduction and the pointwise operators that use it into one kernel, cut into tiles along
the reduction's result. If such an operator reads the result in two ways, as `s[:, None] + s[None]`
does, only the tiles in which both ways meet have values: the others are left unwritten. So what is
read in two ways is kept apart from those who read it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

_library: Any = torch.library.Library("torch_shark", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define("keep_apart(Tensor x) -> Tensor")
_library.impl("keep_apart", torch.clone, "CompositeExplicitAutograd")

KEEP_APART = torch.ops.torch_shark.keep_apart.default

_aten = torch.ops.aten
_VIEWS = frozenset(
    [
        *[_aten.unsqueeze.default, _aten.squeeze.default, _aten.squeeze.dim, _aten.squeeze.dims],
        *[_aten.expand.default, _aten.permute.default, _aten.transpose.int, _aten.t.default],
        *[_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default],
        *[_aten.slice.Tensor, _aten.select.int, _aten.diagonal.default, _aten.flip.default],
        *[_aten.as_strided.default],
    ]
)
_PRODUCTS = frozenset(
    [
        *[_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default],
        *[_aten.convolution.default],
    ]
)
# IREE scatters into a copy of its own, and would scatter into a constant if it were kept apart.
_SCATTERS = frozenset(
    [
        *[_aten.scatter_add.default, _aten.scatter.src, _aten.scatter.value],
        *[_aten.index_put.default, _aten._unsafe_index_put.default, _aten.index_add.default],
        *[_aten.index_copy.default, _aten.scatter_reduce.two],
    ]
)
_COPIES = frozenset([_aten.clone.default, _aten._to_copy.default, _aten.where.self])

# How a value reads another, whose elements are numbered: sizes, strides and offset over it, and
# what was done that these cannot tell.
Reading = tuple[tuple[int, ...], tuple[int, ...], int, str]


def keep_apart(graph: Graph) -> None:
    """Insert `KEEP_APART` after what is read in two ways by one pointwise operator.

    IREE makes one of what it finds to be equal, as `x.sum(1)` and `x.T.sum(0)` are. So results
    with as many elements count as one.
    """
    readings: dict[Node, dict[int, Reading]] = {}
    roots: dict[Node, int] = {}
    apart: set[int] = set()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        found = readings[node] = {}
        value = node.meta.get("val")
        for source in node.all_input_nodes:
            for root, reading in readings.get(source, {}).items():
                read = _read(reading, source, node, value)
                if read is not None and found.setdefault(root, read) != read:
                    apart.add(root)
        if isinstance(value, torch.Tensor) and _is_root(node):
            roots[node] = value.numel()
            whole = _whole(value)
            if found.setdefault(value.numel(), whole) != whole:
                apart.add(value.numel())
    for node, root in roots.items():
        if root in apart:
            _insert_after(node)


def _is_root(node: Node) -> bool:
    """Tell whether IREE makes a reduction of a node, or what it treats alike."""
    keeps = node.target in _VIEWS or node.target in _SCATTERS
    return not (keeps or _is_pointwise(node) or _is_product(node) or node.meta["val"].numel() < 2)


def _read(reading: Reading, source: Node, node: Node, value: Any) -> Reading | None:
    """How a node reads what one of its operands reads; None if it reads it to the end."""
    if not isinstance(value, torch.Tensor):
        return reading  # its results are read in their turn
    if node.target in _VIEWS:
        return _viewed(reading, node)
    if _is_pointwise(node):
        return _widened(reading, value.shape)
    if node.target in _PRODUCTS:
        return _added(reading, source, node)
    return _reduced(reading, node)


def _is_product(node: Node) -> bool:
    """Tell whether a node is a product that IREE keeps; of a vector's it makes a reduction."""
    return node.target in _PRODUCTS and 1 not in node.meta["val"].shape[1:]


def _is_pointwise(node: Node) -> bool:
    return node.target in _COPIES or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _whole(value: torch.Tensor) -> Reading:
    empty = torch.empty(value.shape, device="meta")
    return tuple(empty.shape), _told(empty), 0, ""


def _viewed(reading: Reading, node: Node) -> Reading:
    """What a view makes of a reading."""
    sizes, strides, offset, history = reading
    tensor = torch.empty(0, device="meta").as_strided(sizes, strides, offset)
    _, *args = node.args
    try:
        if node.target is _aten.flip.default or history:
            raise RuntimeError("not a matter of strides")
        view = node.target(tensor, *args, **node.kwargs)  # type: ignore[operator]
    except RuntimeError:  # the elements do not lie so that it can be told by strides
        shape = tuple(node.meta["val"].shape)
        return shape, (0,) * len(shape), 0, f"{reading} {node.target} {args} {node.kwargs}"
    return tuple(view.shape), _told(view), view.storage_offset(), ""


def _widened(reading: Reading, shape: torch.Size) -> Reading:
    """What broadcasting makes of a reading."""
    sizes, strides, offset, history = reading
    if sizes == shape:
        return reading
    missing = len(shape) - len(sizes)
    wide = [
        stride if size == whole else 0
        for size, stride, whole in zip(sizes, strides, shape[missing:], strict=True)
    ]
    kept = history and f"{history} {sizes}"
    return tuple(shape), (0,) * missing + tuple(wide), offset, kept


def _added(reading: Reading, source: Node, node: Node) -> Reading | None:
    """What a product makes of the reading of what is added to it."""
    shape = node.meta["val"].shape
    if node.target is not _aten.convolution.default:
        return _widened(reading, shape) if source is node.args[0] and len(node.args) > 2 else None
    if source is not node.args[2]:
        return None
    sizes, strides, offset, history = reading
    ones = (1,) * (len(shape) - 2)
    return _widened((sizes + ones, strides + (0,) * len(ones), offset, history), shape)


def _unlike_any(node: Node) -> Reading:
    shape = tuple(node.meta["val"].shape)
    return shape, (0,) * len(shape), 0, node.name


def _reduced(reading: Reading, node: Node) -> Reading:
    """What a reduction, or a pass over rows, makes of a reading."""
    sizes, strides, offset, history = reading
    shape = tuple(node.meta["val"].shape)
    if len(shape) < len(sizes):
        target: Any = node.target
        named = zip(target._schema.arguments, node.args, strict=False)
        dims: Any = next((value for name, value in named if name.name == "dim"), None)
        if dims is None:
            return _unlike_any(node)
        gone = {dim % len(sizes) for dim in (dims if isinstance(dims, (list, tuple)) else [dims])}
        left = [i for i in range(len(sizes)) if i not in gone]
        sizes, strides = tuple(sizes[i] for i in left), tuple(strides[i] for i in left)
    pairs = zip(shape, sizes, strict=False)
    if len(shape) != len(sizes) or any(now not in (size, 1) for now, size in pairs):
        return _unlike_any(node)
    kept = tuple(0 if n == 1 else step for n, step in zip(shape, strides, strict=True))
    return shape, kept, offset, history and f"{history} {node.target}"


def _told(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides, with 0 where there is but one element."""
    return tuple(
        0 if size == 1 else stride
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _insert_after(root: Node) -> None:
    with root.graph.inserting_after(root):
        kept = root.graph.call_function(KEEP_APART, (root,))
    kept.meta["val"] = root.meta["val"]
    root.replace_all_uses_with(kept, delete_user_cb=lambda user: user is not kept)
