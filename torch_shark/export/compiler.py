"""IREE's compiler in a process of its own: some names of architectures bring it down."""

from __future__ import annotations

import re
import signal
import subprocess

from iree.compiler.tools.binaries import find_tool

from torch_shark.lowering.compile import CompileError
from torch_shark.targets import Target

_DIAGNOSTIC = re.compile(r"\berror: |\bnote: called from$|^LLVM ERROR|^Stack dump")
_MOST_LINES = 20
_UNKNOWN = "missing GPU target"  # what it says of each kernel


def compile_for(module: bytes, target: Target) -> bytes:
    """Compile an MLIR module for a target.

    Args:
        module: the module, as MLIR text or bytecode.
        target: gives the flags.

    Returns:
        The IREE executable (vmfb).

    Raises:
        CompileError: the module does not compile, or the compiler crashed; with what it said.
    """
    command = [find_tool("iree-compile"), "-", "-o", "-", *target.flags]
    done = subprocess.run(command, input=module, capture_output=True)
    if done.returncode == 0:
        return done.stdout
    said = _summary(done.stderr.decode(errors="replace"), target)
    if done.returncode < 0:
        crash = f"It ended by {signal.Signals(-done.returncode).name}."
        said = f"{crash}\n{said}"
    raise CompileError(said)


def _summary(said: str, target: Target) -> str:
    """The errors with their places in the user's code; not the MLIR that follows each of them."""
    lines = said.strip().splitlines()
    if _UNKNOWN in said:
        architecture = target.name.partition(":")[2]
        return f"It knows no architecture {architecture!r}."
    told = list(dict.fromkeys(line for line in lines if _DIAGNOSTIC.search(line))) or lines
    more = [f"... and {len(told) - _MOST_LINES} more lines"] if len(told) > _MOST_LINES else []
    return "\n".join([*told[:_MOST_LINES], *more])
