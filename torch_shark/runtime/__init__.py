"""IREE's runtime: devices, imported memory and loaded executables."""

from torch_shark.runtime.executable import Executable, ExecutableRunError
from torch_shark.runtime.interop import BufferImportError, NativeBuffer

__all__ = ["BufferImportError", "Executable", "ExecutableRunError", "NativeBuffer"]
