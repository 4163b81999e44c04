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
_COPIES = frozenset([_aten.clone.default, _aten._to_copy.default, _aten.where.self])

# How a value reads another, whose elements are numbered: sizes, strides and offset over it, and
# what was done that these cannot tell.
Reading = tuple[tuple[int, ...], tuple[int, ...], int, str]


def keep_apart(graph: Graph) -> None:
    """Insert `KEEP_APART` after what is read in two ways by one pointwise operator.

    Equal nodes must have been made one, for IREE does so too.
    """
    readings: dict[Node, dict[int, Reading]] = {}
    numbers: dict[Node, int] = {}  # the same for what IREE makes one
    known: dict[str, int] = {}
    apart: set[int] = set()
    for node in graph.nodes:
        if node.op != "call_function" or _is_product(node):
            continue
        found = readings[node] = {}
        value = node.meta.get("val")
        for source in node.all_input_nodes:
            for root, reading in readings.get(source, {}).items():
                if not isinstance(value, torch.Tensor):
                    read: Reading | None = reading  # its results are read in their turn
                elif node.target in _VIEWS:
                    read = _viewed(reading, node)
                elif _is_pointwise(node):
                    read = _widened(reading, value.shape)
                else:
                    read = _reduced(reading, node)
                if read is not None and found.setdefault(root, read) != read:
                    apart.add(root)
        if node.target not in _VIEWS and not _is_pointwise(node):
            numbers[node] = known.setdefault(_name(node, numbers), len(known))
            if isinstance(value, torch.Tensor):
                found[numbers[node]] = _whole(value)
    for node, number in numbers.items():
        if number in apart:
            _insert_after(node)


def _name(node: Node, numbers: dict[Node, int]) -> str:
    """A name that reductions share which differ in `keepdim` only: IREE makes them one."""
    schema = getattr(node.target, "_schema", None)
    arguments = schema.arguments if schema is not None else []
    kept = [i for i, argument in enumerate(arguments) if argument.name == "keepdim"]
    args = [
        f"#{numbers[value]}" if isinstance(value, Node) and value in numbers else value
        for i, value in enumerate(node.args)
        if i not in kept
    ]
    return f"{node.target} {args} {node.kwargs}"


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


def _reduced(reading: Reading, node: Node) -> Reading | None:
    """What a reduction, or a pass over rows, makes of a reading; None if it is something else."""
    sizes, strides, offset, history = reading
    shape = tuple(node.meta["val"].shape)
    if len(shape) < len(sizes):
        target: Any = node.target
        named = zip(target._schema.arguments, node.args, strict=False)
        dims: Any = next((value for name, value in named if name.name == "dim"), None)
        if dims is None:
            return None
        gone = {dim % len(sizes) for dim in (dims if isinstance(dims, (list, tuple)) else [dims])}
        left = [i for i in range(len(sizes)) if i not in gone]
        sizes, strides = tuple(sizes[i] for i in left), tuple(strides[i] for i in left)
    pairs = zip(shape, sizes, strict=False)
    if len(shape) != len(sizes) or any(now not in (size, 1) for now, size in pairs):
        return None
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
