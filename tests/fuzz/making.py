"""Steps that make tensors out of nothing."""

from __future__ import annotations

import math

import torch
from building import Builder, Step

NUMBERS = ["1", "0", "-2", "3", "0.5", "True", "-1.5"]
_VALUES = [0, 1, -1, 2, 3, -2, 5, -3]


def spell(dtype: torch.dtype) -> str:
    """The dtype as a program writes it."""
    return str(dtype)


def _values(b: Builder, count: int, dtype: torch.dtype) -> str:
    picked = [_VALUES[b.choose.below(len(_VALUES))] for _ in range(min(count, 4))]
    drawn = [picked[i % len(picked)] + i // 4 for i in range(count)]
    if dtype == torch.bool:
        return str([bool(value % 2) for value in drawn])
    if dtype == torch.uint8:
        return str([abs(value) for value in drawn])
    if dtype.is_complex:
        return str([complex(value, 1 - value) for value in drawn])
    return str([value / 2 for value in drawn] if dtype.is_floating_point else drawn)


def literal(b: Builder) -> str:
    shape = b.choose.pick(b.dialect.shapes)
    dtype = b.choose.pick(b.dialect.dtypes)
    line = f"torch.tensor({_values(b, math.prod(shape), dtype)}, dtype={spell(dtype)})"
    if len(shape) != 1:
        line += f".view({shape})" if shape else ".view(())" if math.prod(shape) else ""
    layout = b.choose.below(4)
    if layout == 1 and len(shape) == 4:
        line += ".to(memory_format=torch.channels_last)"
    elif layout == 2 and len(shape) > 1:
        line += ".transpose(0, 1)"
    line += ".to(d, copy=True)"
    if dtype.is_floating_point and b.choose.rarely(4):
        line += ".requires_grad_()"
    return f"{b.fresh()} = {line}"


def filled(b: Builder) -> str:
    shape = b.choose.pick(b.dialect.shapes)
    dtype = spell(b.choose.pick(b.dialect.dtypes))
    name = b.fresh()
    like = b.tensor()
    options = [
        f"torch.zeros({shape}, dtype={dtype}, device=d)",
        f"torch.ones({shape}, dtype={dtype}, device=d)",
        f"torch.full({shape}, {b.choose.pick(NUMBERS)}, dtype={dtype}, device=d)",
        f"torch.empty({shape}, dtype={dtype}, device=d).fill_({b.choose.pick(NUMBERS)})",
        f"torch.arange({b.choose.below(7)}, dtype={dtype}, device=d)",
        f"torch.eye({b.choose.between(1, 3)}, dtype={dtype}, device=d)",
        "torch.linspace(-1, 1, 5, device=d)",
    ]
    if like is not None:
        options += [
            f"torch.zeros_like({like})",
            f"torch.full_like({like}, {b.choose.pick(NUMBERS)})",
            f"torch.ones_like({like}, dtype={dtype}, memory_format=torch.contiguous_format)",
            f"{like}.new_zeros({shape})",
            f"torch.empty_like({like}).copy_({like})",
        ]
    return f"{name} = {b.choose.pick(options)}"


def random(b: Builder) -> str:
    shape = b.choose.pick(b.dialect.shapes)
    name = b.fresh()
    like = b.tensor(lambda x: x.is_floating_point() and not x.requires_grad)
    options = [
        f"torch.rand({shape}, device=d)",
        f"torch.randn({shape}, device=d)",
        f"torch.randint(0, 9, {shape}, device=d)",
        "torch.randperm(6, device=d)",
        f"torch.bernoulli(torch.full({shape}, 0.5, device=d))",
        "torch.multinomial(torch.tensor([1.0, 2.0, 3.0]).to(d), 2)",
    ]
    if like is not None:
        options += [
            f"torch.rand_like({like})",
            f"torch.nn.functional.dropout({like}, 0.5)",
        ]
    return f"{name} = {b.choose.pick(options)}"


STEPS: list[tuple[int, Step]] = [(10, literal), (5, filled), (3, random)]
