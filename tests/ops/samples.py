"""OpInfo's sample calls: the arguments, and how they are placed on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

SEED = 1234


@dataclass(frozen=True)
class Arguments:
    """What an operator is called with."""

    first: Any
    others: tuple[Any, ...]
    named: dict[str, Any]
    # What a sample does to results that are right in several forms, before gradients are taken.
    settle: Callable[[Any], Any] = lambda result: result

    def tree(self) -> tuple[Any, ...]:
        return self.first, self.others, self.named

    def shapes(self) -> list[torch.Size]:
        return [leaf.shape for leaf in tree_leaves(self.tree()) if isinstance(leaf, torch.Tensor)]

    def map(self, function: Callable[[Any], Any]) -> Arguments:
        return Arguments(*tree_map(function, self.tree()), self.settle)

    def noncontiguous(self) -> Arguments:
        """The arguments with every second element of their memory unused."""

        def spread(value: Any) -> Any:
            strided = isinstance(value, torch.Tensor) and value.layout == torch.strided
            return noncontiguous_like(value) if strided else value

        with torch.no_grad():
            return self.map(spread)

    def place(self, device: str, *, requires_grad: bool = False) -> Arguments:
        """The arguments on `device`, in storages of their own, laid out as these are."""

        def place(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                placed = laid_out_alike(value.detach(), device)
                return placed.requires_grad_() if requires_grad and value.requires_grad else placed
            if value == "cpu" or value == torch.device("cpu"):
                return type(value)(device)
            return value

        return self.map(place)


def sample_arguments(
    op: OpInfo, dtype: torch.dtype, *, requires_grad: bool = False
) -> Iterator[Arguments]:
    """The arguments of an operator's sample calls, on the CPU."""
    torch.default_generator.manual_seed(SEED)
    # OpInfo.sample_inputs would look at the whole call stack for each.
    for sample in op.sample_inputs_func(op, torch.device("cpu"), dtype, requires_grad):
        yield arguments_of(sample)


def arguments_of(sample: SampleInput) -> Arguments:
    return Arguments(sample.input, sample.args, sample.kwargs, sample.output_process_fn_grad)


def laid_out_alike(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A copy with the storage's size, the strides, the offset and the lazy bits of `tensor`."""
    if tensor.layout != torch.strided:
        return tensor.clone().to(device)
    storage = tensor.untyped_storage()
    whole = tensor.new_empty(0).set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))
    copy = whole.clone().to(device)
    copy = copy.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    torch._C._set_conj(copy, tensor.is_conj())
    torch._C._set_neg(copy, tensor.is_neg())
    return copy
