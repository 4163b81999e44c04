"""What is known of a user's kernel, and which operators have one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_shark.errors import SharkError
from torch_shark.lowering.elements import ELEMENTS
from torch_shark.record import TensorRef


class KernelError(SharkError, ValueError):
    """An operator can't have the MLIR that it was given.

    Args:
        operator: its name.
        reason: what stands in the way; of the MLIR, with the line.
    """

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(operator, reason)

    def __str__(self) -> str:
        operator, reason = self.args
        return f"[shark] {operator} can't have this kernel: {reason}"


@dataclass(frozen=True, slots=True)
class TensorType:
    """A builtin tensor type of MLIR: its sizes, None for any, and the name of its element."""

    sizes: tuple[int | None, ...]
    element: str

    def __str__(self) -> str:
        sizes = "".join(f"{'?' if size is None else size}x" for size in self.sizes)
        return f"tensor<{sizes}{self.element}>"

    def takes(self, sizes: Sequence[Any], dtype: torch.dtype) -> bool:
        """Tell whether a tensor is of this type."""
        return (
            ELEMENTS.get(dtype) == self.element
            and len(sizes) == len(self.sizes)
            and all(mine in (None, size) for mine, size in zip(self.sizes, sizes, strict=True))
        )


# Of an argument that is a number: the builtin type by which the body takes it.
NumberType = str


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operator's body in MLIR.

    Attributes:
        operator: the recorded name, "mylib::swiglu".
        schema: what PyTorch knows it by.
        mlir: the module's text; it has one public function, `function`.
        arguments: the types of the function's arguments, which are the operator's.
        results: those of its results.
        digest: names the operator's schema and its body, in all processes.
    """

    operator: str
    schema: str
    mlir: str
    function: str
    arguments: tuple[TensorType | NumberType, ...]
    results: tuple[TensorType, ...]
    digest: str

    def operators(self) -> str:
        """Return the operator's name, for messages."""
        return f"the kernel of {self.operator}"

    def refuses(self, arguments: Sequence[Any], results: Sequence[TensorRef | None]) -> str | None:
        """Return why the body is not for a call, or None if it is.

        Args:
            arguments: tensors, or references to some, and numbers.
            results: references to the results, where they are known.
        """
        for value, wanted in zip(arguments, self.arguments, strict=True):
            if isinstance(wanted, TensorType) and not _is_of(value, wanted):
                return f"its kernel takes {wanted}, not {_told(value)}"
        for ref, given in zip(results, self.results, strict=False):
            if not _is_of(ref, given):
                return f"its kernel gives {given}, not {_told(ref)}"
        return None


def _is_of(value: Any, wanted: TensorType) -> bool:
    if isinstance(value, torch.Tensor):
        return wanted.takes(value.shape, value.dtype)
    return isinstance(value, TensorRef) and wanted.takes(value.sizes, value.dtype)


def _told(value: Any) -> str:
    if isinstance(value, torch.Tensor | TensorRef):
        sizes = value.shape if isinstance(value, torch.Tensor) else value.sizes
        return str(TensorType(tuple(sizes), ELEMENTS.get(value.dtype, str(value.dtype))))
    return str(value)


_kernels: dict[str, Kernel] = {}


def set_kernel(kernel: Kernel) -> None:
    """Give an operator its kernel, in place of one that it had."""
    _kernels[kernel.operator] = kernel


def find_kernel(operator: str) -> Kernel | None:
    """Return the kernel of an operator, by the recorded name, or None."""
    return _kernels.get(operator)


def registered_kernels() -> tuple[Kernel, ...]:
    """Return all kernels."""
    return tuple(_kernels.values())


_libraries: list[Any] = []  # what they define goes when they do


def library_of(namespace: str) -> Any:
    """Return a library that defines operators of a namespace, for as long as the process lives."""
    library: Any = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    return library
