"""MLIR to an IREE executable, with everything that the compiler says kept."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from iree.compiler._mlir_libs import _site_initialize_0
from iree.compiler.api import Invocation, Output, Session, Source, ctypes_dl

from torch_shark.lowering.in_place import is_in_order
from torch_shark.targets import Target

_DIAGNOSTIC_CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
)
_ERROR_SEVERITY = 2

# The phase in which it is known what kernel reads and writes what.
_KERNELS = b"flow"

# The Python class `Invocation` lacks these calls of the C API.
_enable_callback = ctypes_dl._dylib.ireeCompilerInvocationEnableCallbackDiagnostics
_enable_callback.argtypes = [
    ctypes.c_void_p,
    ctypes.c_int,
    _DIAGNOSTIC_CALLBACK,
    ctypes.c_void_p,
]
_enable_callback.restype = None
_set_from_phase = ctypes_dl._dylib.ireeCompilerInvocationSetCompileFromPhase
_set_to_phase = ctypes_dl._dylib.ireeCompilerInvocationSetCompileToPhase
for _set_phase in (_set_from_phase, _set_to_phase):
    _set_phase.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    _set_phase.restype = None

# A session is used by one thread only: two threads in one session end the process.
_sessions = threading.local()
_stderr_lock = threading.Lock()


def _keep_compiler() -> None:
    """Keep the compiler to the end of a fork: its shutdown waits for threads that are not in it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_site_initialize_0._global_init_hook))


os.register_at_fork(after_in_child=_keep_compiler)


class CompileError(Exception):
    """The compiler refused a module; the text is its diagnostics."""


class NotInOrderError(CompileError):
    """What a module overwrites in place, it reads in more than one kernel."""


def compile_module(bytecode: bytes, target: Target, in_place: Sequence[int] = ()) -> bytes:
    """Compiles MLIR for a target.

    Args:
        bytecode: the module, as MLIR bytecode or text.
        target: gives the flags.
        in_place: the numbers of the function's arguments that are read and overwritten.

    Returns:
        The IREE executable (vmfb).

    Raises:
        NotInOrderError: the kernels do not keep the order of reads and writes of such an argument.
        CompileError: the module does not compile.
    """
    session = _session(target)
    executable = b""
    with session.invocation() as invocation, _diagnostics(invocation) as said:
        source = Source.wrap_buffer(session, bytecode)
        done = invocation.parse_source(source)
        if done and in_place:
            _set_to_phase(invocation._inv_p, _KERNELS)
            done = invocation.execute()
            if done:
                _check_order(invocation, in_place)
            _set_to_phase(invocation._inv_p, b"end")
            _set_from_phase(invocation._inv_p, _KERNELS)
        done = done and invocation.execute()
        if done:
            executable, done = _output(invocation, said)
    if not done:
        text = "\n".join([*said.errors, said.printed.decode(errors="replace")]).strip()
        raise CompileError(text or "the compiler gave no reason")
    if said.printed:
        os.write(2, said.printed)
    return executable


def _check_order(invocation: Invocation, in_place: Sequence[int]) -> None:
    module = invocation.export_module()
    if not is_in_order(module, in_place):
        raise NotInOrderError
    invocation.import_module(module)


def _output(invocation: Invocation, said: _Said) -> tuple[bytes, bool]:
    with Output.open_membuffer() as output:
        try:
            invocation.output_vm_bytecode(output)
        except ValueError as error:
            said.errors.append(str(error))
            return b"", False
        return bytes(output.map_memory()), True


def _session(target: Target) -> Session:
    sessions: dict[Target, Session] = _sessions.__dict__.setdefault("by_target", {})
    if target not in sessions:
        session = Session()
        session.set_flags(*target.flags)
        sessions[target] = session
    return sessions[target]


@dataclass
class _Said:
    """What was said while the compiler ran: its errors, and what went to standard error."""

    errors: list[str]
    printed: bytes


@contextmanager
def _diagnostics(invocation: Invocation) -> Iterator[_Said]:
    """Collects the invocation's errors, and what the linker prints to standard error.

    The linker knows no callback, so the descriptor itself is redirected: what other threads print
    meanwhile is collected too, and the caller passes it on.
    """
    said = _Said([], b"")

    def collect(severity: int, text: bytes, size: int, _: int) -> None:
        if severity >= _ERROR_SEVERITY:
            said.errors.append(text[:size].decode(errors="replace"))

    callback = _DIAGNOSTIC_CALLBACK(collect)
    _enable_callback(invocation._inv_p, 0, callback, None)
    with _stderr_lock, tempfile.TemporaryFile() as captured:
        kept = os.dup(2)
        os.dup2(captured.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            captured.seek(0)
            said.printed = captured.read()
