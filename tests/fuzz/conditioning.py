"""Whether a program's values stand the rounding that another compiler does in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Rounding(TorchDispatchMode):
    """Shake the last bits of each floating-point result that has many.

    Numbers with few bits, such as 0.5, are left alone: arithmetic on them is exact everywhere. A
    program whose values move by more than the tolerance is ill-conditioned, or steps across a jump.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._noise = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and torch.Tag.nondeterministic_seeded not in func.tags:
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                    self._shake(leaf)
        return result

    def _shake(self, tensor: torch.Tensor) -> None:
        epsilon = torch.finfo(tensor.dtype).eps
        mantissa, _ = torch.frexp(tensor)
        few = mantissa * (1 / epsilon) ** 0.5
        noise = torch.rand(tensor.shape, generator=self._noise) - 0.5
        shaken = tensor * (1 + 8 * epsilon * noise.to(tensor.dtype))
        exact = (few == few.round()) | ~tensor.isfinite()
        tensor.copy_(torch.where(exact, tensor, shaken))


def is_well_conditioned(
    run: Callable[[], dict[str, torch.Tensor]],
    expected: dict[str, torch.Tensor],
    same: Callable[[torch.Tensor, torch.Tensor], bool],
) -> bool:
    """Whether `run` on the CPU gives the same values although each operator rounds otherwise."""
    for seed in range(2):
        with Rounding(seed):
            values = run()
        if values.keys() != expected.keys():
            return False
        for name, value in values.items():
            if value.shape != expected[name].shape or not same(value, expected[name]):
                return False
    return True
