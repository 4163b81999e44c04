"""The time that a step cannot beat: its matrix products and its bytes at this machine's rates.

``python -m torch_shark.bench.limits`` measures the rates and prints them as one line of JSON.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import (
    FlopCounterMode,
    conv_flop_count,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from torch_shark.bench.registry import Step

aten = torch.ops.aten
MATRIX_SIDE = 2048
COPIED_MIB = (1, 8, 64, 512)  # in the caches of a core, in those of all, and beyond

# They write their first argument without reading it.
_OVERWRITES = {aten.copy_, aten.fill_, aten.zero_}


@dataclass(frozen=True)
class Work:
    """What a step, or several, has to do, however that is done.

    Attributes:
        flops: floating-point operations of matrix products, convolutions and attention.
        read: bytes of the tensors from before the step that it reads, each counted once.
        written: bytes of those that it changes, and of its results.
    """

    flops: int
    read: int
    written: int


@dataclass(frozen=True)
class Rates:
    """What this machine does at best, as measured.

    Attributes:
        flops: floating-point operations per second in a large float32 matrix product.
        bytes: bytes read and written per second by a copy, by the size of what is copied, MiB.
    """

    flops: float
    bytes: dict[int, float]

    def seconds(self, work: Work, steps: int, passes: int) -> float:
        """The least time: all products, then all bytes, at the rate of a copy of a step's size.

        Args:
            work: what is done.
            steps: how many steps that is.
            passes: how often each has to read its inputs.
        """
        size = (work.read + work.written) / steps
        fits = [mib for mib in sorted(self.bytes) if 2 * mib << 20 >= size]
        bandwidth = self.bytes[fits[0] if fits else max(self.bytes)]
        return work.flops / self.flops + (passes * work.read + work.written) / bandwidth


def measure_rates() -> Rates:
    """Time a large matrix product, and copies of several sizes; the best of a few."""
    a, b = torch.randn(2, MATRIX_SIDE, MATRIX_SIDE)
    product = torch.empty_like(a)
    flops = 2 * MATRIX_SIDE**3 / _best(lambda: torch.mm(a, b, out=product))
    copies = {}
    for mib in COPIED_MIB:
        source, target = torch.ones(2, mib << 18)
        copies[mib] = 2 * source.nbytes / _best(partial(target.copy_, source))
    return Rates(flops, copies)


def _best(call: Callable[[], object]) -> float:
    """The shortest of at least five calls in half a second."""
    call()
    times: list[float] = []
    while len(times) < 5 or sum(times) < 0.5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


class _Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which tensors that were there before are read and written, by storage."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: dict[int, int] = defaultdict(int)
        self.written: dict[int, int] = defaultdict(int)
        self._born: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        results = func(*args, **(kwargs or {}))
        named = dict(zip((a.name for a in func._schema.arguments), args, strict=False))
        given = {name: _tensors(value) for name, value in (named | (kwargs or {})).items()}
        if not func.is_view:
            self._note(func, given, results)
        known = {_storage(tensor) for tensors in given.values() for tensor in tensors}
        self._born |= {_storage(tensor) for tensor in _tensors(results)} - known
        return results

    def _note(self, func: Any, given: dict[str, list[torch.Tensor]], results: Any) -> None:
        writes_only = func._overloadpacket in _OVERWRITES
        for argument in func._schema.arguments:
            # Fused optimizers are said to write gradients, and do only when they unscale them.
            writes = argument.is_write and argument.name != "grads"
            for tensor in given.get(argument.name, []):
                size = _size(tensor)
                if func is aten.embedding.default and argument.name == "weight":
                    size = _size(results)  # only the rows that are looked up
                if writes:
                    self._count(self.written, tensor, size)
                if not (writes and (writes_only or argument.is_out)):
                    self._count(self.read, tensor, size)

    def _count(self, sizes: dict[int, int], tensor: torch.Tensor, size: int) -> None:
        key = _storage(tensor)
        if key not in self._born:
            sizes[key] = max(sizes[key], size)

    def results(self, results: Sequence[torch.Tensor]) -> int:
        """Bytes of the results that are not tensors from before."""
        return sum(_size(tensor) for tensor in results if _storage(tensor) in self._born)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _size(tensor: torch.Tensor) -> int:
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())


def _convolution_backward(grad: Any, x: Any, weight: Any, *rest: Any, **_: Any) -> int:
    """As much as the forward for each gradient; PyTorch's own formula forgets the groups."""
    transposed, output_mask = rest[4], rest[7]
    return int(sum(output_mask[:2]) * conv_flop_count(x, weight, grad, transposed))


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    count = sdpa_backward_flop_count(grad, query, key, value)  # type: ignore[no-untyped-call]
    return int(count)


def _lstm(x: Any, weight: Any, recurrent: Any, *_: Any, **__: Any) -> int:
    length, batch, _width = x
    return int(2 * length * batch * (weight.numel() + recurrent.numel()))


_FORMULAS = {
    aten.convolution_backward: _convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten.mkldnn_rnn_layer: _lstm,
}


def count_work(step: Step, steps: int = 1) -> Work:
    """Run a program on the CPU, counting what each of its steps has to do, in all."""
    works = [_count_step(step) for _ in range(steps)]
    return Work(*(sum(counts) for counts in zip(*map(astuple, works), strict=True)))


def _count_step(step: Step) -> Work:
    with _Traffic() as traffic, FlopCounterMode(display=False, custom_mapping=_FORMULAS) as ops:
        results = step()
    return Work(
        flops=int(ops.get_total_flops()),
        read=sum(traffic.read.values()),
        written=sum(traffic.written.values()) + traffic.results(results),
    )


if __name__ == "__main__":
    print(json.dumps(asdict(measure_rates())))
