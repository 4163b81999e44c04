"""Regions run as the FX graphs they are traced to: all of lowering but the compiler, and quick.

Compiling a region costs a good part of a second, tracing it some milliseconds. What is left out
is IREE's own part: values within an operator.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import torch_shark.runtime.executable as executable
from tests.anew import new_planner
from torch_shark import compiler
from torch_shark.lowering.artifact import Answer, Artifact
from torch_shark.lowering.interface import BufferType, RegionInterface
from torch_shark.lowering.region import Region
from torch_shark.lowering.trace import trace_region
from torch_shark.runtime.interop import NativeBuffer
from torch_shark.targets import Target

_graphs: list[torch.fx.GraphModule] = []


@contextmanager
def interpreted_regions() -> Iterator[None]:
    """Under the policy `iree`, interpret what would have been compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "_compiling", lambda *_: _compile)
        patch.setattr(executable, "Executable", _Interpreted)
        with new_planner(policy="iree", disk_cache=False):
            yield
    _graphs.clear()


def _compile(region: Region, targets: Sequence[Target]) -> Future[Answer]:
    answer: Future[Answer] = Future()
    answer.set_result(Answer((_lower(region),) * len(targets), lasting=True))
    return answer


def _lower(region: Region) -> Artifact:
    try:
        graph = trace_region(region)
    except Exception as error:
        return Artifact.failed(f"{type(error).__name__}: {error}")
    placeholders = graph.graph.find_nodes(op="placeholder")[: len(region.inputs)]
    (results,) = graph.graph.output_node().args
    assert isinstance(results, (list, tuple))
    interface = RegionInterface(
        inputs=tuple(_buffer_type(node) for node in placeholders),
        outputs=tuple(_buffer_type(node) for node in results),
        scalars=tuple(kind for _, kind in region.scalars),
        used_inputs=tuple(range(len(placeholders))),
    )
    _graphs.append(graph)
    name = str(len(_graphs) - 1).encode()
    return Artifact(name, interface)


def _buffer_type(node: Any) -> BufferType:
    value = node.meta["val"]
    return BufferType(tuple(value.shape), str(value.dtype).removeprefix("torch."))


class _Interpreted:
    """Stands for `torch_shark.runtime.executable.Executable`."""

    def __init__(self, vmfb: bytes, interface: RegionInterface) -> None:
        self._graph = _graphs[int(vmfb)]
        self._interface = interface

    def prepare(self, *buffers: Any) -> tuple[Any, ...]:
        return self._run, buffers, lambda: None

    def _run(
        self,
        inputs: Sequence[NativeBuffer],
        outputs: Sequence[NativeBuffer],
        scalars: Sequence[float | int | bool],
    ) -> None:
        interface = self._interface
        arguments = [_tensor(*each) for each in zip(inputs, interface.inputs, strict=True)]
        for kind, dtype in (("f64", torch.float64), ("i64", torch.int64)):
            values = [
                value
                for value, other in zip(scalars, interface.scalars, strict=True)
                if other == kind
            ]
            if values:
                arguments.append(torch.tensor(values, dtype=dtype))
        with torch.no_grad():
            results = self._graph(*arguments)
        for buffer, of_type, value in zip(outputs, interface.outputs, results, strict=True):
            _tensor(buffer, of_type).copy_(value)


def _tensor(buffer: NativeBuffer, of_type: BufferType) -> torch.Tensor:
    dtype = getattr(torch, of_type.element_type)
    count = math.prod(of_type.shape)
    if not count:
        return torch.empty(of_type.shape, dtype=dtype)
    memory = (ctypes.c_char * buffer.nbytes).from_address(buffer.address)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(of_type.shape)
