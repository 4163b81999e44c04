"""Index safety: which arguments are indices, and the bounds that keep them inside.

IREE does not check indices. Each one is bounded in the graph, so that nothing outside a buffer is
ever read, and checked before the region, so that a bad one raises as it does on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from torch_shark.lowering.operators import Operator
from torch_shark.record import Entry, TensorRef


@dataclass(frozen=True, slots=True)
class IndexLimit:
    """The bound of one index argument: `low <= index < high`.

    Attributes:
        ref: the index tensor.
        arg: its position among the arguments.
        item: its position in the argument, where that is a list.
        low: the lowest valid index; -high where negative ones count from the end, else 0.
        high: one past the highest valid index.
        ignored: a value that is valid without being an index.
    """

    ref: TensorRef
    arg: int
    item: int | None
    low: int
    high: int
    ignored: int | None = None

    def bound(self, index: torch.Tensor) -> torch.Tensor:
        """Returns the index moved into [0, high); those that ignore a value do it themselves."""
        if self.ignored is not None:
            return index
        if self.low < 0:
            index = torch.where(index < 0, index + self.high, index)
        return torch.clamp(index, 0, self.high - 1)


def index_limits(operator: Operator, entry: Entry) -> list[IndexLimit]:
    """Returns the limits of an entry's index arguments; none for operators that take no index."""
    rule = _RULES.get(operator.functional or operator.name)
    return rule(entry) if rule is not None else []


def _along_dim(index_arg: int, entry: Entry) -> list[IndexLimit]:
    source, dim, index = entry.args[0], entry.args[1], entry.args[index_arg]
    high = source.sizes[dim] if source.sizes else 1
    return [IndexLimit(index, index_arg, None, 0, high)]


def _rows(entry: Entry) -> list[IndexLimit]:
    return [IndexLimit(entry.args[1], 1, None, 0, entry.args[0].sizes[0])]


def _embedding_backward(entry: Entry) -> list[IndexLimit]:
    return [IndexLimit(entry.args[1], 1, None, 0, entry.args[2])]


def _each_dim(entry: Entry) -> list[IndexLimit]:
    sizes = entry.args[0].sizes
    return [
        IndexLimit(index, 1, i, -sizes[i], sizes[i])
        for i, index in enumerate(entry.args[1])
        if isinstance(index, TensorRef)
    ]


def _classes(scores_arg: int, target_arg: int, ignore_arg: int, entry: Entry) -> list[IndexLimit]:
    high = entry.args[scores_arg].sizes[-1]
    target, ignored = entry.args[target_arg], entry.args[ignore_arg]
    return [IndexLimit(target, target_arg, None, 0, high, ignored=ignored)]


_RULES: dict[str, Callable[[Entry], list[IndexLimit]]] = {
    "aten::embedding": _rows,
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::index_select": partial(_along_dim, 2),
    "aten::gather": partial(_along_dim, 2),
    "aten::index_add": partial(_along_dim, 2),
    "aten::index_copy": partial(_along_dim, 2),
    "aten::scatter.src": partial(_along_dim, 2),
    "aten::scatter.value": partial(_along_dim, 2),
    "aten::scatter.reduce": partial(_along_dim, 2),
    "aten::scatter.value_reduce": partial(_along_dim, 2),
    "aten::scatter_add": partial(_along_dim, 2),
    "aten::scatter_reduce.two": partial(_along_dim, 2),
    "aten::index.Tensor": _each_dim,
    "aten::_unsafe_index.Tensor": _each_dim,
    "aten::index_put": _each_dim,
    "aten::_unsafe_index_put": _each_dim,
    "aten::nll_loss_forward": partial(_classes, 0, 1, 4),
    "aten::nll_loss_backward": partial(_classes, 1, 2, 5),
}
