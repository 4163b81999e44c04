"""IREE's compiler in a process of its own: some names of architectures bring it down."""

from __future__ import annotations

import signal
import subprocess

from iree.compiler.tools.binaries import find_tool

from torch_shark.lowering.compile import CompileError
from torch_shark.targets import Target


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
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode < 0:
        crash = f"It ended by {signal.Signals(-done.returncode).name}."
        said = f"{crash}\n{said}"
    raise CompileError(said)
