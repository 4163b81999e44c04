"""Steps that compute a new tensor."""

from __future__ import annotations

import math

import torch
from building import Builder, Step
from making import NUMBERS, spell
from viewing import view_of

_BINARY = ["+", "-", "*", "<", "==", ">=", "!=", "/", "&", "|", "^", "//", "%", "**"]
_BINARY_CALLS = ["maximum", "minimum", "logical_and", "logical_xor", "eq", "mul", "fmod", "hypot"]
_UNARY = [
    *["neg", "abs", "relu", "square", "sign", "floor", "logical_not", "isnan", "exp", "tanh"],
    *["sigmoid", "sqrt", "round", "cos", "sin", "reciprocal", "rsqrt", "log1p", "trunc", "erf"],
    *["bitwise_not", "isfinite", "frac", "expm1", "clone", "contiguous", "positive"],
]
_REDUCTIONS = ["sum", "mean", "amax", "amin", "prod", "any", "all", "var", "std", "norm", "argmax"]
_REDUCTIONS += ["argmin", "count_nonzero", "logsumexp", "cumsum", "cumprod", "softmax", "max"]
_REDUCTIONS += ["median", "sort", "cummax", "nansum", "flip", "log_softmax"]
_PAIRS = ("max", "median", "sort", "cummax")
_KEEPING = ("sum", "mean", "amax", "amin", "any", "all", "var", "argmax", "logsumexp")
_SCANS = ("cumsum", "cumprod", "softmax", "sort", "cummax", "flip", "log_softmax")


def fits(small: torch.Tensor, large: torch.Tensor) -> bool:
    """Whether `small` can be broadcast to the shape of `large`."""
    pairs = zip(reversed(small.shape), reversed(large.shape), strict=False)
    return small.dim() <= large.dim() and all(a in (1, b) for a, b in pairs)


def partner(b: Builder, name: str) -> str:
    """An operand for arithmetic with the tensor: a number, or a tensor that mostly fits."""
    x = b[name]
    fitting = [other for other in b.tensors() if fits(b[other], x)]
    return b.choose.pick([*fitting, *NUMBERS[:5]])


def integral(x: torch.Tensor) -> bool:
    """Whether division by zero raises, when the data is known."""
    return not x.is_floating_point() and not x.is_complex()


def _divisor(b: Builder, name: str, operator: str, other: str) -> str:
    if operator in ("//", "%", "fmod") and integral(b[name]):
        return "2"
    # An integer to a negative power raises, or depends on how the number is made.
    return b.choose.pick(["2", "3", "1"]) if operator == "**" else other


def binary(b: Builder) -> str | None:
    name = b.tensor()
    assert name is not None
    other = partner(b, name)
    if b.choose.rarely(3):
        call = b.choose.pick(_BINARY_CALLS)
        if other in NUMBERS and call not in ("eq", "mul", "fmod"):
            return None
        return f"{b.fresh()} = torch.{call}({name}, {_divisor(b, name, call, other)})"
    operator = b.choose.pick(_BINARY)
    other = _divisor(b, name, operator, other)
    if other in NUMBERS and operator in ("+", "-", "*", "/") and b.choose.rarely(3):
        return f"{b.fresh()} = {other} {operator} {name}"
    return f"{b.fresh()} = {name} {operator} {other}"


def unary(b: Builder) -> str | None:
    return f"{b.fresh()} = {b.tensor()}.{b.choose.pick(_UNARY)}()"


def ternary(b: Builder) -> str | None:
    name = b.tensor()
    assert name is not None
    other, third = partner(b, name), partner(b, name)
    mask = b.tensor(lambda x: x.dtype == torch.bool)
    options = [f"torch.lerp({name}, {name}, 0.5)", f"{name}.clamp(-1, {b.choose.between(1, 3)})"]
    options.append(f"torch.where({mask or name + ' > 0'}, {name}, {other})")
    if other not in NUMBERS and third not in NUMBERS:
        options += [f"torch.addcmul({name}, {other}, {third}, value=2)"]
        options += [f"torch.addcdiv({name}, {other}, {third})"]
        options += [f"torch.add({name}, {other}, alpha=2)", f"torch.rsub({name}, {other})"]
    return f"{b.fresh()} = {b.choose.pick(options)}"


def reduction(b: Builder) -> str | None:
    name = b.tensor()
    assert name is not None
    x, kind = b[name], b.choose.pick(_REDUCTIONS)
    whole = kind not in _SCANS and kind != "logsumexp" and (not x.dim() or b.choose.rarely(3))
    if whole:
        return f"{b.fresh()} = {name}.{kind}()"
    dim = b.choose.below(max(x.dim(), 1))
    keep = ", keepdim=True" if kind in _KEEPING and b.choose.rarely(3) else ""
    dims = f"dim={dim}" if kind != "flip" else f"({dim},)"
    pair = b.choose.pick([".values", ".indices"]) if kind in _PAIRS else ""
    return f"{b.fresh()} = {name}.{kind}({dims}{keep}){pair}"


def matmul(b: Builder) -> str | None:
    name = b.tensor(lambda x: x.dim() in (1, 2, 3))
    if name is None:
        return None
    x = b[name]
    right = b.tensor(
        lambda y: y.dtype == x.dtype and y.dim() in (1, 2) and y.shape[0] == x.shape[-1]
    )
    options = [f"{name} @ {name}.mT"] if x.dim() > 1 else [f"torch.outer({name}, {name})"]
    if right is not None:
        options += [f"{name} @ {right}", f"torch.matmul({name}, {right})"]
        if x.dim() == b[right].dim() == 2:
            options += [f"torch.mm({name}, {right})"]
            options += [f"torch.addmm({name}[:, :1], {name}, {right}, beta=2)"]
    return f"{b.fresh()} = {b.choose.pick(options)}"


def indices(b: Builder, size: int, count: int) -> str:
    """A literal of `count` indices in [0, size), or negative ones, which mean the same."""
    picked = [b.choose.below(size) for _ in range(count)]
    return f"torch.tensor({picked}).to(d)"


def indexed(b: Builder) -> str | None:
    name = b.tensor(lambda x: x.dim() > 0 and x.shape[0] > 0)
    if name is None:
        return None
    x = b[name]
    dim = b.choose.below(x.dim())
    if not x.shape[dim]:
        return None
    index = indices(b, x.shape[dim], b.choose.between(1, 3))
    rows = indices(b, x.shape[0], 2)
    gathered = f"torch.zeros_like({name}, dtype=torch.int64)"
    options = [
        f"{name}.index_select({dim}, {index})",
        f"{name}[{rows}]",
        f"{name}.gather({dim}, {gathered})",
        f"{name}[{name} > 0]",
        f"{name}.masked_select({name} != 1)",
        f"torch.nonzero({name})",
        f"{name}.take({rows})",
    ]
    if x.dim() > 1 and x.shape[1]:
        columns = indices(b, x.shape[1], 2)
        options += [f"{name}[{rows}, {columns}]", f"{name}[:, {columns}]", f"{name}[0, {columns}]"]
        options += [f"{name}[{rows}[:, None], {columns}]", f"{name}[{name}[:, 0] >= 0]"]
    return f"{b.fresh()} = {b.choose.pick(options)}"


def rearranged(b: Builder) -> str | None:
    name = b.tensor()
    assert name is not None
    x = b[name]
    matching = b.tensor(lambda y: y.shape == x.shape)
    options = [f"torch.stack([{name}, {matching}])", f"{name}.tril()", f"{name}.triu(1)"]
    if x.dim():
        dim = b.choose.below(x.dim())
        options += [f"torch.cat([{name}, {matching}], {dim})", f"{name}.roll(1, {dim})"]
        options += [f"{name}.flip({dim})", f"{name}.repeat_interleave(2, {dim})"]
        options += [f"{name}.topk(1, {dim}).values", f"{name}.diag_embed()"]
        options += [f"torch.cat([{name}, {name}[..., :1]], -1)"]
    options += [f"{name}.repeat(2, *{name}.shape)" if x.dim() < 2 else f"{name}.rot90()"]
    if b.choose.rarely(2):
        source = view_of(b, name)
        if source is not None:
            options = [f"{source}.clone()", f"{source}.contiguous()", f"{source} * 2"]
    if x.dim() == 4:
        options += [f"{name}.contiguous(memory_format=torch.channels_last)"]
        options += [f"torch.nn.functional.max_pool2d({name}.float(), 2)"]
    picked = b.choose.pick(options)
    return None if math.prod(x.shape) > 32 else f"{b.fresh()} = {picked}"


def converted(b: Builder) -> str | None:
    name = b.tensor()
    assert name is not None
    dtype = b.choose.pick(b.dialect.dtypes)
    x = b[name].detach().resolve_conj().resolve_neg()
    narrow = not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    if narrow and (x.is_floating_point() or x.is_complex()) and x.numel():
        # What a number becomes that the dtype cannot hold is not defined.
        real = torch.view_as_real(x) if x.is_complex() else x
        low = 0 if dtype == torch.uint8 else -100
        if not bool(((real >= low) & (real <= 100)).all()):
            return None
    return f"{b.fresh()} = {name}.to({spell(dtype)})"


def layer(b: Builder) -> str | None:
    name = b.tensor(lambda x: x.dtype == torch.float32 and x.dim() in (2, 3) and x.numel() > 0)
    if name is None:
        return None
    width = b[name].shape[-1]
    options = [
        f"torch.nn.functional.layer_norm({name}, ({width},))",
        f"torch.nn.functional.linear({name}, torch.full((2, {width}), 0.5, device=d))",
        f"torch.nn.functional.gelu({name})",
        f"torch.nn.functional.silu({name})",
        f"torch.nn.functional.leaky_relu({name}, 0.5)",
        f"torch.nn.functional.pad({name}, (1, 0), value=2.0)",
        f"torch.nn.functional.conv1d({name}, torch.ones(1, {b[name].shape[-2]}, 1, device=d))",
        f"torch.nn.functional.avg_pool1d({name}, 2)",
        f"torch.einsum('...i,...i->...', {name}, {name})",
        f"torch._foreach_mul([{name}, {name}.mT], 2)[1]",
    ]
    return f"{b.fresh()} = {b.choose.pick(options)}"


STEPS: list[tuple[int, Step]] = [
    *[
        (4, layer),
        (14, binary),
        (8, unary),
        (4, ternary),
        (8, reduction),
        (4, matmul),
        (7, indexed),
    ],
    *[(6, rearranged), (4, converted)],
]
