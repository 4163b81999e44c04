"""Small executables from hand-written MLIR, and buffers over CPU tensors."""

from collections.abc import Iterator
from dataclasses import dataclass

import iree.compiler
import pytest
import torch

from torch_shark.lowering.interface import BufferType, RegionInterface
from torch_shark.runtime import Executable

FLAGS = ["--iree-input-demote-f64-to-f32=false", "--iree-llvmcpu-target-cpu=host"]


@dataclass
class TensorBuffer:
    """A NativeBuffer over a tensor's memory."""

    tensor: torch.Tensor
    imported: object = None

    @property
    def address(self) -> int:
        return self.tensor.data_ptr()

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes


def compile_functions(*functions: str) -> bytes:
    """Compile a module named "module" of functions in the torch dialect."""
    text = "module @module {\n" + "\n".join(functions) + "\n}"
    return iree.compiler.compile_str(
        text, input_type="torch", target_backends=["llvm-cpu"], extra_args=FLAGS
    )


@pytest.fixture(scope="session")
def compile_mlir():
    return compile_functions


@pytest.fixture
def buffer():
    return TensorBuffer


DOUBLE = """
func.func @main(%a: !torch.vtensor<[16],f32>, %o: !torch.tensor<[16],f32>) {
  %one = torch.constant.int 1
  %r = torch.aten.add.Tensor %a, %a, %one
    : !torch.vtensor<[16],f32>, !torch.vtensor<[16],f32>, !torch.int -> !torch.vtensor<[16],f32>
  torch.overwrite.tensor.contents %r overwrites %o
    : !torch.vtensor<[16],f32>, !torch.tensor<[16],f32>
  return
}"""


@pytest.fixture(scope="session")
def double_vmfb() -> bytes:
    """The executable of o = 2 * a over 16 elements of f32."""
    return compile_functions(DOUBLE)


@pytest.fixture(scope="session")
def double_interface() -> RegionInterface:
    vector = BufferType((16,), "FLOAT_32")
    return RegionInterface((vector,), (vector,))


@pytest.fixture
def double(double_vmfb, double_interface) -> Iterator[Executable]:
    executable = Executable(double_vmfb, double_interface)
    yield executable
    executable.close()
