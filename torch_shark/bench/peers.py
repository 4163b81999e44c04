"""The peers: who runs an entry's program, and on which device.

A compiler is imported by the peer that uses it, when it does: its memory and time are that peer's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

from torch_shark import device, metrics
from torch_shark.bench.registry import Entry, Step

if TYPE_CHECKING:
    from torch_shark.bench.whole_graph import WholeGraph


@dataclass(frozen=True)
class Compilation:
    """What a peer's compiler did so far, in this process.

    Attributes:
        compiles: how many graphs or regions were compiled.
        disk_hits: how many came from a cache on disk, where the peer tells.
        pending: how many are being compiled meanwhile.
        seconds: spent on compilation, in whichever process.
    """

    compiles: int = 0
    disk_hits: int = 0
    pending: int = 0
    seconds: float = 0.0


class Peer:
    """PyTorch's eager mode on the CPU, and what the other peers do likewise.

    Attributes:
        device: where the program's tensors are.
        cache_variable: the environment variable that names the folder of its cache on disk.
    """

    device = torch.device("cpu")
    cache_variable: str | None = None

    def takes(self, entry: Entry) -> bool:
        """Whether the peer is for programs of this kind."""
        return True

    def build(self, entry: Entry) -> Step:
        """Make the program, and return its step."""
        return entry.build(self.device, self.compiled)

    def compiled(self, function: Any) -> Any:
        """What stands in for a module or function that is worth compiling."""
        return function

    def wait(self) -> None:
        """Return when all results are there."""

    def compilation(self) -> Compilation:
        """What was compiled so far."""
        return Compilation()


class FusedEager(Peer):
    """PyTorch's own fused kernels, which a user would have to name."""

    @override
    def takes(self, entry: Entry) -> bool:
        return entry.fused is not None

    @override
    def build(self, entry: Entry) -> Step:
        assert entry.fused is not None
        return entry.fused(self.device, self.compiled)


class Shark(Peer):
    """The same eager program on the shark device."""

    device = torch.device("shark")
    cache_variable = "TORCH_SHARK_CACHE_DIR"

    @override
    def wait(self) -> None:
        device.synchronize()

    @override
    def compilation(self) -> Compilation:
        counts = metrics.metrics()
        return Compilation(
            compiles=counts.compiles,
            disk_hits=counts.disk_hits,
            pending=counts.pending,
            seconds=counts.lowering_seconds + counts.compiling_seconds,
        )


class SharkBackend(Shark):
    """``torch.compile`` with our backend, over tensors of the CPU."""

    device = torch.device("cpu")

    @override
    def compiled(self, function: Any) -> Any:
        return torch.compile(function, backend="shark")


class Inductor(Peer):
    """``torch.compile`` with its default settings."""

    cache_variable = "TORCHINDUCTOR_CACHE_DIR"

    @override
    def compiled(self, function: Any) -> Any:
        return torch.compile(function)

    @override
    def compilation(self) -> Compilation:
        from torch._dynamo.utils import calculate_time_spent, counters

        return Compilation(
            compiles=counters["stats"]["unique_graphs"],
            disk_hits=counters["inductor"]["fxgraph_cache_hit"],
            seconds=calculate_time_spent()["total_wall_time"],
        )


class FrozenInductor(Inductor):
    """``torch.compile`` with parameters taken for constants."""

    @override
    def takes(self, entry: Entry) -> bool:
        return entry.pure

    @override
    def compiled(self, function: Any) -> Any:
        from torch._inductor import config

        config.freezing = True  # for all of the process: Dynamo reads it too, and knows no options
        return super().compiled(function)


class Iree(Peer):
    """The whole graph: ``torch.export``, torch-mlir and one IREE executable."""

    def __init__(self) -> None:
        self._graphs: list[WholeGraph] = []

    @override
    def takes(self, entry: Entry) -> bool:
        return entry.pure

    @override
    def compiled(self, function: Any) -> Any:
        from torch_shark.bench.whole_graph import WholeGraph

        graph = WholeGraph(function)
        self._graphs.append(graph)
        return graph

    @override
    def compilation(self) -> Compilation:
        seconds = [graph.compile_seconds for graph in self._graphs]
        return Compilation(compiles=sum(s > 0 for s in seconds), seconds=sum(seconds))


# In the order in which a round runs them: eager first, since its results are what others must give.
PEERS: dict[str, Callable[[], Peer]] = {
    "eager": Peer,
    "eager-fused": FusedEager,
    "inductor": Inductor,
    "inductor-freezing": FrozenInductor,
    "iree": Iree,
    "shark": Shark,
    "shark-compile": SharkBackend,
}


@cache
def peer_named(name: str) -> Peer:
    """The peer of a name, one for the process."""
    return PEERS[name]()
