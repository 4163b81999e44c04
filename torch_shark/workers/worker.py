"""What a worker process does: it lowers regions, compiles them, and ends with its parent."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

import torch

from torch_shark.kernels.kernel import Kernel
from torch_shark.lowering.artifact import Artifact
from torch_shark.lowering.compile import CompileError, NotInOrderError, compile_module
from torch_shark.lowering.emit import emit_module
from torch_shark.lowering.in_place import find_in_place
from torch_shark.lowering.kernels import emit_kernel
from torch_shark.lowering.module import EmittedModule
from torch_shark.lowering.region import Region
from torch_shark.lowering.trace import trace_region
from torch_shark.targets import Target
from torch_shark.workers.protocol import Kind, receive, send


def serve(channel: socket.socket) -> None:
    """Answer requests until the parent is gone, also if it goes while the compiler runs."""
    requests: SimpleQueue[bytes] = SimpleQueue()

    def watch() -> None:
        try:
            while True:
                requests.put(receive(channel)[1])
        finally:
            os._exit(0)  # whatever the compiler is doing, nobody waits for it

    threading.Thread(target=watch, daemon=True).start()
    send(channel, Kind.READY)
    while True:
        compile_all(partial(send, channel), *pickle.loads(requests.get()))


def compile_all(
    tell: Callable[..., None],
    region: Region | Kernel,
    targets: tuple[Target, ...],
    default_dtype: torch.dtype,
) -> None:
    """Lower a region, compile it for each target, and tell what comes of each step.

    Args:
        tell: takes the kind of a frame and its payload.
        region: what to lower: a region, or a user's kernel alone.
        targets: what to compile for, in this order.
        default_dtype: torch's default dtype when the region was recorded.
    """
    torch.set_default_dtype(default_dtype)
    try:
        emit = _lowered(region)
        module = emit(True)
    except MemoryError:  # such a process is not to be trusted with another region
        os.write(2, b"out of memory\n")
        os._exit(1)
    except Exception as error:  # Decompositions and the importer raise whatever they like.
        tell(Kind.REFUSED, f"{type(error).__name__}: {error}".encode())
        return
    tell(Kind.LOWERED, module.text.encode())
    for target in targets:
        try:
            try:
                vmfb = compile_module(module.bytecode, target, module.interface.in_place_arguments)
            except NotInOrderError:
                module = emit(False)
                vmfb = compile_module(module.bytecode, target)
        except CompileError as error:
            tell(Kind.REFUSED, str(error).encode())
        else:
            tell(Kind.COMPILED, Artifact(vmfb, module.interface).to_bytes())


def _lowered(region: Region | Kernel) -> Callable[[bool], EmittedModule]:
    """Trace a region; return what emits it, with outputs in place where they may be, or without."""
    if isinstance(region, Kernel):
        return lambda _: emit_kernel(region)
    graph = trace_region(region)
    return lambda in_place: emit_module(
        graph, region, find_in_place(graph, region) if in_place else ()
    )
