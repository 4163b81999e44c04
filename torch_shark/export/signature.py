"""What an exported program takes and returns: structure, dtypes, sizes and what they depend on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

Size = int | str
"""A size that is known, or how it depends on a symbol: "batch", "2*batch + 1"."""

Sizes = dict[str, int]
"""The values of symbols in one call."""

Ranges = dict[str, tuple[int, int | None]]
"""The lowest value of each symbol, and the highest or None."""

_AFFINE = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)(?: ([+-]) (\d+))?")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that goes in or out.

    Attributes:
        name: as in the model's forward; for an output, its position.
        dtype: as `torch.float32` is written, without "torch.".
        shape: the size of each dimension.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def accept(self, value: object, ranges: Ranges, sizes: Sizes) -> None:
        """See that a value is such a tensor.

        Args:
            value: what the program was called with.
            ranges: the lowest and highest value of each symbol.
            sizes: what the symbols are so far; those that the tensor tells are added.

        Raises:
            TypeError: it is no tensor, or of another dtype.
            ValueError: it has another shape.
        """
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"[shark] expected {self.name} to be a tensor {self}, got {value!r}")
        if value.dtype != getattr(torch, self.dtype):
            got = str(value.dtype).removeprefix("torch.")
            raise TypeError(f"[shark] expected {self.name} to have dtype {self.dtype}, got {got}")
        if value.dim() != len(self.shape):
            raise ValueError(self._unlike(value, ""))
        for size, found in zip(self.shape, value.shape, strict=True):
            if not isinstance(size, str):
                if size != found:
                    raise ValueError(self._unlike(value, ""))
                continue
            symbol, scale, offset = _affine(size)
            solved, rest = divmod(found - offset, scale)
            if rest or sizes.setdefault(symbol, solved) != solved:
                raise ValueError(self._unlike(value, _known(sizes, symbol)))
            low, high = ranges[symbol]
            if solved < low or (high is not None and solved > high):
                limits = f", {symbol} from {low} to {'any' if high is None else high}"
                raise ValueError(self._unlike(value, limits))

    def _unlike(self, value: torch.Tensor, more: str) -> str:
        expected = f"[{', '.join(map(str, self.shape))}]"
        return f"[shark] expected {self.name} to have shape {expected}{more}, got {[*value.shape]}"


@dataclass(frozen=True, slots=True)
class ConstantSpec:
    """A value that is fixed by the export: None, a number, a text; or a size that is returned.

    Attributes:
        name: as of a tensor.
        value: the value, for a size how it depends on a symbol.
        is_size: whether it is such a size.
    """

    name: str
    value: Any
    is_size: bool = False

    def accept(self, value: object) -> None:
        """See that a program is called with this very value.

        Raises:
            ValueError: it is another one.
        """
        if type(value) is not type(self.value) or value != self.value:
            raise ValueError(
                f"[shark] expected {self.name} to be {self.value!r}, as it was exported, "
                f"got {value!r}"
            )

    def result(self, sizes: Sizes) -> Any:
        """Return the value that the program returns."""
        if not self.is_size:
            return self.value
        symbol, scale, offset = _affine(self.value)
        return scale * sizes[symbol] + offset


Spec = TensorSpec | ConstantSpec


@dataclass(frozen=True, slots=True)
class Signature:
    """What a program takes and returns.

    Attributes:
        input_structure: the pytree of (args, kwargs), as torch.utils._pytree writes it.
        inputs: its leaves.
        output_structure: the pytree of the result.
        outputs: its leaves.
        ranges: for each symbol the lowest value, and the highest or None.
    """

    input_structure: str
    inputs: tuple[Spec, ...]
    output_structure: str
    outputs: tuple[Spec, ...]
    ranges: Ranges

    def flatten(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[list[torch.Tensor], Sizes]:
        """Return the tensors among the arguments of a call, and the values of symbols.

        Raises:
            TypeError: number, structure or dtypes are not those of the export.
            ValueError: shapes or fixed values are not.
        """
        expected = pytree.treespec_loads(self.input_structure)
        names = expected.child(1).context
        if set(kwargs) == set(names):
            kwargs = {name: kwargs[name] for name in names}
        leaves, structure = pytree.tree_flatten((tuple(args), kwargs))
        if structure != expected:
            told = ", ".join(f"{spec.name}: {_told(spec)}" for spec in self.inputs)
            raise TypeError(
                f"[shark] expected arguments as in the export ({told}), got "
                f"{len(args)} positional, {sorted(kwargs)} by name, {len(leaves)} leaves in all"
            )
        sizes: Sizes = {}
        tensors = []
        for spec, leaf in zip(self.inputs, leaves, strict=True):
            if isinstance(spec, TensorSpec):
                spec.accept(leaf, self.ranges, sizes)
                tensors.append(leaf)
            else:
                spec.accept(leaf)
        return tensors, sizes

    def unflatten(self, tensors: Sequence[torch.Tensor], sizes: Sizes) -> Any:
        """Return the program's result, of its tensors and the values of symbols."""
        left = iter(tensors)
        leaves = [
            next(left) if isinstance(spec, TensorSpec) else spec.result(sizes)
            for spec in self.outputs
        ]
        return pytree.tree_unflatten(leaves, pytree.treespec_loads(self.output_structure))


def is_affine(size: str) -> bool:
    """Tell whether a size is one symbol, at most multiplied and with something added."""
    return _AFFINE.fullmatch(size) is not None


def _affine(size: str) -> tuple[str, int, int]:
    """Return symbol, factor and summand of a size."""
    found = _AFFINE.fullmatch(size)
    if found is None:
        raise ValueError(f"[shark] expected a size such as '2*batch + 1', got {size!r}")
    scale, symbol, sign, offset = found.groups()
    return symbol, int(scale or 1), int(f"{sign}{offset}") if sign else 0


def _known(sizes: Sizes, symbol: str) -> str:
    return f" where {symbol} is {sizes[symbol]}" if symbol in sizes else ""


def _told(spec: Spec) -> str:
    return str(spec) if isinstance(spec, TensorSpec) else repr(spec.value)
