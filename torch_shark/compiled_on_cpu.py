"""Graphs of CPU tensors, run on the device over the tensors' own memory.

The device's memory is the CPU's: an input is seen as a tensor of the device without a copy, and a
result as one of the CPU. AOTAutograd has made the graph functional, so it writes no input: what the
program writes in place is copied into its tensor afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_shark import _C
from torch_shark.device import get_rng_state, set_rng_state

_CPU, _DEVICE = torch.device("cpu"), torch.device("shark")


class OnCpu:
    """A graph that takes and returns tensors of the CPU.

    The results are there when a call returns, and random numbers are the CPU generator's. It
    changes the graph: what was made on the CPU is made on the device.

    Args:
        graph: a functional graph of aten operators, all of whose tensors are on the CPU.
    """

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        self._graph = graph
        nodes = graph.graph.nodes
        self._draws = any(
            torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in nodes
        )
        placeholders = graph.graph.find_nodes(op="placeholder")
        (results,) = graph.graph.output_node().args
        assert isinstance(results, (list, tuple))
        # What goes through as it is.
        self._passed = {
            i: placeholders.index(node) for i, node in enumerate(results) if node in placeholders
        }
        self._inputs = [_Input() for _ in placeholders]
        _move_to_device(graph)

    def __call__(self, *inputs: Any) -> list[Any]:
        """Run the graph.

        Args:
            inputs: tensors of the CPU, and numbers.

        Returns:
            The results: tensors of the CPU.
        """
        _C.flush_graph()
        storages = Counter(value.untyped_storage()._cdata for value in inputs if _is_shared(value))
        whole: dict[int, torch.Tensor] = {}
        on_device = []
        for value, known in zip(inputs, self._inputs, strict=True):
            if not _is_shared(value):
                on_device.append(value)
            elif storages[value.untyped_storage()._cdata] > 1:
                on_device.append(_view_of_whole(value, whole))
            else:
                on_device.append(known.on_device(value))
        results = self._drawing(on_device) if self._draws else self._graph(*on_device)
        _C.flush_graph()
        return [self._on_cpu(i, result, inputs) for i, result in enumerate(results)]

    def _on_cpu(self, number: int, result: Any, inputs: Sequence[Any]) -> Any:
        if number in self._passed:
            return inputs[self._passed[number]]
        if not isinstance(result, torch.Tensor):
            return result
        return _C.lend_to_native(result)

    def _drawing(self, inputs: list[Any]) -> Any:
        """Run the graph with the state of the CPU's generator, which goes on from there."""
        own = get_rng_state()
        set_rng_state(torch.get_rng_state())
        try:
            results = self._graph(*inputs)
            _C.synchronize()
            torch.set_rng_state(get_rng_state())
        finally:
            set_rng_state(own)
        return results


@dataclass(slots=True)
class _Input:
    """An input of the graph; one that comes again, as a parameter does, is taken over once."""

    last: tuple[Any, ...] | None = None
    taken: torch.Tensor | None = None

    def on_device(self, value: torch.Tensor) -> torch.Tensor:
        geometry = (
            *(value.untyped_storage()._cdata, value.data_ptr(), value.dtype),
            *(value.shape, value.stride()),
        )
        if geometry != self.last:
            self.last, self.taken = geometry, None
            return _taken(value)
        if self.taken is None:
            self.taken = _taken(value)
        return self.taken


def _is_shared(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device == _CPU


def _taken(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the device over the memory of one of the CPU."""
    plain = value.detach().resolve_conj().resolve_neg()
    return _C.borrow_from_native(plain) if plain.dim() or plain.numel() else plain


def _view_of_whole(value: torch.Tensor, whole: dict[int, torch.Tensor]) -> torch.Tensor:
    """One of several inputs over one memory: the device takes that once, and each is a view."""
    if value.is_conj() or value.is_neg() or not value.numel():
        return _taken(value)
    memory = value.untyped_storage()
    if memory._cdata not in whole:
        count = memory.nbytes() // value.itemsize
        flat = torch.empty(0, dtype=value.dtype).set_(memory, 0, (count,), (1,))
        whole[memory._cdata] = _C.borrow_from_native(flat)
    base = whole[memory._cdata]
    if base.dtype != value.dtype:
        return _taken(value)
    return base.as_strided(value.shape, value.stride(), value.storage_offset())


def _move_to_device(graph: torch.fx.GraphModule) -> None:
    """Have the graph make on the device what it made on the CPU, its constants too."""
    for node in graph.graph.nodes:
        if node.kwargs.get("device") == _CPU:
            node.kwargs = {**node.kwargs, "device": _DEVICE}
        if node.op == "get_attr":
            constant = getattr(graph, node.target)
            if _is_shared(constant) and constant.dim():
                setattr(graph, node.target, _taken(constant))
    graph.recompile()
