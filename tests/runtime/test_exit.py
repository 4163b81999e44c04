"""A process that used IREE ends without a word on stderr."""

import subprocess
import sys

import pytest

USE = """
import sys, torch
from dataclasses import dataclass
from torch_shark.lowering.interface import BufferType, RegionInterface
from torch_shark.runtime import Executable

@dataclass
class Buffer:
    tensor: torch.Tensor
    imported: object = None
    address = property(lambda self: self.tensor.data_ptr())
    nbytes = property(lambda self: self.tensor.nbytes)

vector = BufferType((16,), "FLOAT_32")
executable = Executable(open(sys.argv[1], "rb").read(), RegionInterface((vector,), (vector,)))
a, out = Buffer(torch.ones(16)), Buffer(torch.zeros(16))
executable([a], [out])
print(out.tensor.sum().item())
"""

# References that Python itself never drops, as those of a C++ extension's statics.
LEAK = """
import ctypes
for kept in (executable, a, out):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(getattr(kept, "imported", None)))
"""

CYCLE = """
executable.itself = executable
a.imported_by = [executable, a, out]
executable.interface = a
"""


def run(vmfb, tmp_path, ending):
    (tmp_path / "a.vmfb").write_bytes(vmfb)
    return subprocess.run(
        [sys.executable, "-c", USE + ending, str(tmp_path / "a.vmfb")],
        capture_output=True,
        text=True,
        timeout=120,
    )


BUSY = """
import threading, time
def work():
    try:
        while True:
            a.imported = out.imported = None
            executable([a], [out])
    except (RuntimeError, ValueError):
        pass  # the executable, or the import that it was about to use, was closed
threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
"""


@pytest.mark.parametrize(
    "ending", ["", LEAK, CYCLE, BUSY], ids=["plain", "leak", "cycle", "busy thread"]
)
def test_nothing_is_said_at_exit(double_vmfb, tmp_path, ending):
    done = run(double_vmfb, tmp_path, ending)
    assert (done.returncode, done.stdout, done.stderr) == (0, "32.0\n", "")


def test_no_object_of_the_bindings_is_left(double_vmfb, tmp_path):
    checked = """
from torch_shark.runtime import device
device.disable_leak_checker = lambda: None
"""
    assert run(double_vmfb, tmp_path, checked).stderr == ""
    done = run(double_vmfb, tmp_path, checked + LEAK)
    left = [line.split()[-1] for line in done.stderr.splitlines() if "leaked instance" in line]
    assert left == []


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        ("raise KeyError('mine')", "KeyError: 'mine'"),
        ("executable([a], [])", "ValueError: zip()"),
        ("executable([Buffer(torch.ones(17)[1:])], [out])", "BufferImportError: [shark] expected"),
        (
            "executable._output_types = []\nexecutable([a], [])",
            "ExecutableRunError: [shark] IREE's runtime failed",
        ),
    ],
    ids=["mine", "count", "alignment", "call"],
)
def test_only_the_traceback_is_said_after_an_exception(double_vmfb, tmp_path, ending, error):
    done = run(double_vmfb, tmp_path, LEAK + ending)
    assert (done.returncode, done.stdout) == (1, "32.0\n")
    assert done.stderr.startswith("Traceback")
    assert error in done.stderr
    assert "nanobind" not in done.stderr


FORK = """
import os
child = os.fork()
if child == 0:
    for use in (lambda: executable([a], [out]), lambda: Executable(b"", executable.interface)):
        try:
            use()
        except RuntimeError as error:
            print(type(error).__name__, flush=True)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
executable([a], [out])
"""


def test_a_fork_gets_an_error_and_ends(double_vmfb, tmp_path):
    done = run(double_vmfb, tmp_path, "sys.stdout.flush()" + FORK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["32.0", "ForkedProcessError", "ForkedProcessError", "3"]
