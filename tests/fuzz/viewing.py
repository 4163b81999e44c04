"""Steps that look at a tensor's memory in another way."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from building import Builder, Step

View = Callable[[Builder, str, torch.Tensor], "str | None"]


def _dim(b: Builder, x: torch.Tensor) -> int:
    dim = b.choose.below(x.dim())
    return dim - x.dim() if b.choose.rarely(3) else dim


def _shape_of(b: Builder, numel: int) -> tuple[int, ...]:
    divisors = [i for i in range(1, numel + 1) if numel % i == 0] or [0]
    first = b.choose.pick(divisors)
    if numel == 0:
        return b.choose.pick([(0,), (0, 2), (3, 0)])
    return b.choose.pick([(-1,), (first, -1), (numel // first, first), (1, first, -1)])


def _slice(b: Builder, size: int) -> str:
    low, high = b.choose.below(size + 1), b.choose.between(0, size + 1)
    return b.choose.pick(
        [f"{low}:", f":{high}", f"{low}:{high}", "::2", f"{low}::2", "-2:", ":-1", f"{low}:{low}"]
    )


def select(b: Builder, n: str, x: torch.Tensor) -> str | None:
    if not x.dim() or not x.shape[0]:
        return None
    return f"{n}[{b.choose.below(2 * x.shape[0]) - x.shape[0]}]"


def slices(b: Builder, n: str, x: torch.Tensor) -> str | None:
    if not x.dim():
        return None
    dims = b.choose.between(1, min(x.dim(), 2))
    return f"{n}[{', '.join(_slice(b, x.shape[i]) for i in range(dims))}]"


def mixed(b: Builder, n: str, x: torch.Tensor) -> str | None:
    if not x.dim():
        return f"{n}[None]"
    last = f"{n}[..., {_slice(b, x.shape[-1])}]"
    return b.choose.pick([f"{n}[None]", last, f"{n}[..., None]", f"{n}[:, None]"])


def reshape(b: Builder, n: str, x: torch.Tensor) -> str | None:
    how = b.choose.pick(["view", "reshape"])
    return f"{n}.{how}({_shape_of(b, x.numel())})"


def permute(b: Builder, n: str, x: torch.Tensor) -> str | None:
    if x.dim() < 2:
        return f"{n}.t()"
    dims = list(range(x.dim()))
    rolled = tuple(dims[b.choose.below(x.dim()) :] + dims[: b.choose.below(x.dim())])
    options = [f"{n}.transpose({_dim(b, x)}, {_dim(b, x)})", f"{n}.mT"]
    if sorted(rolled) == dims:
        options.append(f"{n}.permute({rolled})")
    options.append(f"{n}.movedim({_dim(b, x)}, 0)")
    return b.choose.pick(options)


def squeeze(b: Builder, n: str, x: torch.Tensor) -> str | None:
    options = [f"{n}.squeeze()", f"{n}.unsqueeze({b.choose.below(x.dim() + 1)})"]
    if x.dim():
        options += [f"{n}.squeeze({_dim(b, x)})", f"{n}.flatten()"]
    return b.choose.pick(options)


def expand(b: Builder, n: str, x: torch.Tensor) -> str | None:
    wide = tuple(3 if size == 1 else size for size in x.shape)
    return b.choose.pick([f"{n}.expand({wide})", f"{n}.expand(2, *{n}.shape)"])


def diagonal(b: Builder, n: str, x: torch.Tensor) -> str | None:
    if x.dim() < 2:
        return None
    return f"{n}.diagonal({b.choose.pick([0, 1, -1])})"


def unfold(b: Builder, n: str, x: torch.Tensor) -> str | None:
    if not x.dim():
        return None
    dim = _dim(b, x)
    if x.shape[dim] < 2:
        return None
    return f"{n}.unfold({dim}, 2, {b.choose.between(1, 2)})"


def narrow(b: Builder, n: str, x: torch.Tensor) -> str | None:
    if not x.dim():
        return None
    dim = _dim(b, x)
    start = b.choose.below(x.shape[dim] + 1)
    return f"{n}.narrow({dim}, {start}, {b.choose.between(0, x.shape[dim] - start)})"


def parts(b: Builder, n: str, x: torch.Tensor) -> str | None:
    if not x.dim() or not x.shape[0]:
        return None
    return b.choose.pick(
        [f"{n}.unbind()[-1]", f"{n}.chunk(2)[0]", f"{n}.split(2)[-1]", f"{n}.tensor_split(2)[1]"]
    )


def as_strided(b: Builder, n: str, x: torch.Tensor) -> str | None:
    total = x.untyped_storage().nbytes() // x.element_size()
    offset = b.choose.below(min(total, 5) + 1)
    strides = b.choose.pick([(1,), (2,), (2, 1), (1, 2), (3, 1), (0, 1), (1, 1)])
    sizes = tuple(b.choose.between(1, 3) for _ in strides)
    end = offset + sum((s - 1) * t for s, t in zip(sizes, strides, strict=True))
    if end >= total:
        return None
    return f"{n}.as_strided({sizes}, {strides}, {offset})"


def other_dtype(b: Builder, n: str, x: torch.Tensor) -> str | None:
    same_size = {
        torch.float32: "int32",
        torch.int32: "float32",
        torch.int64: "float64",
        torch.float64: "int64",
        torch.bfloat16: "int16",
        torch.int16: "bfloat16",
        torch.bool: "uint8",
        torch.float16: "int16",
        torch.uint8: "int8",
        torch.int8: "uint8",
    }
    other = "int16" if b.choose.rarely(4) else same_size.get(x.dtype)
    # The bits of integers as floats are denormal, and the bits of floats as bools are none.
    if other is None or (not x.is_floating_point() and other.startswith(("float", "bfloat"))):
        return None
    return f"{n}.view(torch.{other})"


def complex_parts(b: Builder, n: str, x: torch.Tensor) -> str | None:
    if x.is_complex():
        return b.choose.pick(
            [f"{n}.real", f"{n}.imag", f"{n}.conj()", f"torch.view_as_real({n}.resolve_conj())"]
        )
    if x.dtype in (torch.float32, torch.float64):
        if x.dim() and x.shape[-1] == 2:
            return f"torch.view_as_complex({n})"
        return f"torch._neg_view({n})" if b.choose.rarely(3) else f"{n}.real"
    return None


def same(b: Builder, n: str, x: torch.Tensor) -> str | None:
    return b.choose.pick([f"{n}.detach()", f"{n}.data", f"{n}.view_as({n})", f"{n}[...]"])


VIEWS: list[View] = [
    *[select, slices, mixed, reshape, permute, squeeze, expand, diagonal, unfold, narrow, parts],
    *[as_strided, other_dtype, complex_parts, same, slices, permute],
]


def view_of(b: Builder, name: str) -> str | None:
    """An expression that views the tensor."""
    return b.choose.pick(VIEWS)(b, name, b[name])


def view(b: Builder) -> str | None:
    name = b.tensor()
    assert name is not None
    expression = view_of(b, name)
    if expression is None or math.prod(b[name].shape) > 48:
        return None
    return f"{b.fresh()} = {expression}"


STEPS: list[tuple[int, Step]] = [(20, view)]
