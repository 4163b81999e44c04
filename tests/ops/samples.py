"""OpInfo's sample calls on two devices, and the comparison of what came out, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves, tree_map

SAMPLES = 2
SEED = 1234


@dataclass(frozen=True)
class Arguments:
    """What an operator is called with."""

    first: Any
    others: tuple[Any, ...]
    named: dict[str, Any]

    def tree(self) -> tuple[Any, ...]:
        return self.first, self.others, self.named

    def shapes(self) -> list[torch.Size]:
        leaves = tree_leaves(self.tree())
        return [leaf.shape for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def place(self, device: str, *, requires_grad: bool = False) -> Arguments:
        """The arguments on `device`, in storages of their own, laid out as these are."""

        def place(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                placed = laid_out_alike(value.detach(), device)
                return placed.requires_grad_() if requires_grad and value.requires_grad else placed
            if value == "cpu" or value == torch.device("cpu"):
                return type(value)(device)
            return value

        return Arguments(*tree_map(place, self.tree()))


def sample_arguments(
    op: OpInfo, dtype: torch.dtype, *, requires_grad: bool = False
) -> list[Arguments]:
    """The arguments of an operator's first sample calls, on the CPU."""
    torch.manual_seed(SEED)
    # OpInfo.sample_inputs would look at the whole call stack for each.
    samples = op.sample_inputs_func(op, torch.device("cpu"), dtype, requires_grad)
    return [
        Arguments(sample.input, sample.args, sample.kwargs)
        for sample in itertools.islice(samples, SAMPLES)
    ]


def laid_out_alike(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A copy with the storage's size, the strides and the offset of `tensor`."""
    if tensor.layout != torch.strided:
        return tensor.clone().to(device)
    storage = tensor.untyped_storage()
    whole = tensor.new_empty(0).set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))
    copy = whole.clone().to(device)
    return copy.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def call(function: Callable[..., Any], arguments: Arguments) -> Any:
    """What the function gives, or the type of what it raises. Random numbers begin anew."""
    torch.manual_seed(SEED)
    try:
        return function(arguments.first, *arguments.others, **arguments.named)
    except NotImplementedError:
        raise
    except Exception as error:
        return type(error)


def difference(expected: Any, actual: Any, *, values: bool = True) -> str | None:
    """What is not equal; None if all is: geometry, and values by bits, NaNs by position."""
    wanted, given = tree_leaves(expected), tree_leaves(actual)
    if len(wanted) != len(given):
        return f"expected {len(wanted)} results, got {len(given)}"
    for one, other in zip(wanted, given, strict=True):
        if isinstance(one, torch.Tensor):
            if found := _difference_of_tensors(one.detach(), other.detach(), values=values):
                return found
        elif isinstance(one, (torch.device, str)):
            continue  # where an argument says to put the result
        elif type(one) is not type(other) or (one != other and one == one):
            return f"expected {one!r}, got {other!r}"
    return None


def _difference_of_tensors(
    expected: torch.Tensor, actual: torch.Tensor, *, values: bool
) -> str | None:
    for field in ("layout", "dtype", "shape"):
        if getattr(expected, field) != getattr(actual, field):
            return f"expected {field} {getattr(expected, field)}, got {getattr(actual, field)}"
    if expected.stride() != actual.stride():
        return f"expected strides {expected.stride()}, got {actual.stride()}"
    host = actual.cpu()
    if values and not _same_bits(expected, host):
        return f"expected {expected}, got {host}"
    return None


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_complex():
        one, other = (
            torch.view_as_real(one.resolve_conj()),
            torch.view_as_real(other.resolve_conj()),
        )
    if one.is_floating_point():
        if not torch.equal(one.isnan(), other.isnan()):
            return False
        one, other = one.masked_fill(one.isnan(), 0), other.masked_fill(other.isnan(), 0)
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)
