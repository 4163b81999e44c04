"""A call on a device, and the comparison of what came out of two, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from samples import SEED, Arguments
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class Raised:
    """An error that a call raised."""

    type: type[Exception]
    text: str

    @staticmethod
    def from_error(error: Exception) -> Raised:
        # The device's name is the one word that may differ.
        text = str(error).split("\nException raised from")[0]
        text = text.replace(", device='shark:0'", "")
        return Raised(type(error), text.replace("shark:0", "cpu").replace("shark", "cpu"))


def call(function: Callable[..., Any], arguments: Arguments, device: str = "cpu") -> Any:
    """What the function gives, or raises, with the random numbers of `device` from the beginning.

    Those of the other device are others: who takes them is found out.
    """
    # torch.manual_seed would also note the call stack, for CUDA.
    torch.default_generator.manual_seed(SEED if device == "cpu" else SEED + 1)
    torch.shark.manual_seed(SEED)
    return result_of(lambda: function(arguments.first, *arguments.others, **arguments.named))


def result_of(work: Callable[[], Any]) -> Any:
    """What `work` gives, or raises."""
    try:
        return work()
    except Exception as error:
        return Raised.from_error(error)


class Values(Enum):
    """How far the values of two results have to agree."""

    BITS = "bit for bit, NaNs by position"
    CLOSE = "within the tolerances of torch.testing"
    ANY = "not at all: nobody has set them"


def difference(expected: Any, actual: Any, values: Values = Values.BITS) -> str | None:
    """What is not equal of geometry, lazy bits and values; None if all is."""
    wanted, given = tree_leaves(expected), tree_leaves(actual)
    if len(wanted) != len(given):
        return f"expected {len(wanted)} results, got {len(given)}: {given}"
    for one, other in zip(wanted, given, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if found := _difference_of_tensors(one.detach(), other.detach(), values):
                return found
        elif isinstance(one, (torch.device, str)):
            continue  # where an argument says to put the result
        elif type(one) is not type(other) or (one != other and one == one):
            return f"expected {one!r}, got {other!r}"
    return None


FIELDS: tuple[tuple[str, Callable[[torch.Tensor], object]], ...] = (
    ("layout", lambda tensor: tensor.layout),
    ("dtype", lambda tensor: tensor.dtype),
    ("shape", lambda tensor: tensor.shape),
    ("conj bit", lambda tensor: tensor.is_conj()),
    ("neg bit", lambda tensor: tensor.is_neg()),
    ("strides", lambda tensor: tensor.stride() if tensor.layout == torch.strided else None),
)


def _difference_of_tensors(
    expected: torch.Tensor, actual: torch.Tensor, values: Values
) -> str | None:
    for name, field in FIELDS:
        if field(expected) != field(actual):
            return f"expected {name} {field(expected)}, got {field(actual)}"
    if values is Values.ANY:
        return None
    host = actual.cpu()
    agree = _close if values is Values.CLOSE else _same_bits
    return None if agree(expected, host) else f"expected {expected}, got {host}"


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return not isinstance(result_of(lambda: assert_close(one, other, equal_nan=True)), Raised)


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if torch.equal(_bytes(one), _bytes(other)):
        return True
    if one.is_complex():
        one, other = (
            torch.view_as_real(one.resolve_conj()),
            torch.view_as_real(other.resolve_conj()),
        )
    if not one.is_floating_point() or not torch.equal(nans := one.isnan(), other.isnan()):
        return False
    if one.itemsize == 1:  # eight bits, for which PyTorch has no masked_fill
        one, other = one.float(), other.float()
    return torch.equal(_bytes(one.masked_fill(nans, 0)), _bytes(other.masked_fill(nans, 0)))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.resolve_conj().resolve_neg()
    return tensor.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)
