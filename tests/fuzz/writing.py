"""Steps that write in place, change geometry or swap memory."""

from __future__ import annotations

import torch
from building import Builder, Step
from computing import indices, integral, partner
from making import NUMBERS
from viewing import view_of

_BINARY = ["add_", "mul_", "sub_", "copy_", "div_", "maximum", "lerp_", "logical_and_", "eq_"]
_UNARY = ["neg_", "abs_", "zero_", "relu_", "sigmoid_", "exp_", "floor_", "logical_not_", "square_"]
_UNARY += ["sqrt_", "tanh_", "round_", "tril_", "resolve_conj"]
_RANDOM = ["normal_()", "uniform_()", "random_(0, 9)", "bernoulli_(0.5)", "exponential_()"]


def _target(b: Builder) -> tuple[str, str]:
    """A tensor, and what is to be written: it, or a view of it that has no name."""
    name = b.tensor()
    assert name is not None
    view = view_of(b, name) if b.choose.rarely(2) else None
    return name, view or name


def _untracked(b: Builder, line: str) -> str:
    return f"with torch.no_grad(): {line}" if b.choose.rarely(4) else line


def binary(b: Builder) -> str:
    name, target = _target(b)
    method = b.choose.pick(_BINARY)
    other = partner(b, name)
    if other in NUMBERS and method in ("copy_", "logical_and_"):
        return _untracked(b, f"{target}.fill_({other})")
    if method == "maximum":
        return f"{target}.clamp_({b.choose.pick(['-1', '0'])}, 1)"
    extra = ", 0.5" if method == "lerp_" else ""
    return _untracked(b, f"{target}.{method}({other}{extra})")


def unary(b: Builder) -> str:
    return _untracked(b, f"{_target(b)[1]}.{b.choose.pick(_UNARY)}()")


def random(b: Builder) -> str:
    return _untracked(b, f"{_target(b)[1]}.{b.choose.pick(_RANDOM)}")


def item(b: Builder) -> str | None:
    # What has no elements overlaps with itself only where both are one object.
    name = b.tensor(lambda x: x.dim() > 0 and x.numel() > 0)
    if name is None:
        return None
    x = b[name]
    rows = indices(b, x.shape[0], 2)
    keys = [str(b.choose.below(x.shape[0])), "1:", "::2", f"{name} > 0", rows, "..., 0"]
    if x.dim() > 1 and x.shape[1]:
        keys += [f"{rows}, {indices(b, x.shape[1], 2)}", "0, 0", ":, -1"]
    key = b.choose.pick(keys)
    values = [*NUMBERS[:4], f"{name}[0]", partner(b, name)]
    return _untracked(
        b, f"{name}[{key}] {b.choose.pick(['=', '+=', '*='])} {b.choose.pick(values)}"
    )


def scattered(b: Builder) -> str | None:
    name = b.tensor(lambda x: x.dim() > 0 and x.shape[0] > 0)
    if name is None:
        return None
    index = indices(b, b[name].shape[0], 2)
    number = b.choose.pick(["1", "0", "2"])
    return _untracked(
        b,
        b.choose.pick(
            [
                f"{name}.masked_fill_({name} > 0, {number})",
                f"{name}.index_fill_(0, {index}, {number})",
                f"{name}.index_add_(0, {index}, {name}[:2])",
                f"{name}.index_copy_(0, {index}, {name}[:2])",
                f"{name}.index_put_(({index},), {name}[0], accumulate=True)",
                f"{name}.scatter_(0, torch.zeros_like({name}, dtype=torch.int64), {number})",
                f"{name}.cumsum_(0)",
                f"{name}.masked_scatter_({name} > 0, {name}.clone())",
            ]
        ),
    )


def out(b: Builder) -> str:
    name, (owner, target) = b.tensor(), _target(b)
    assert name is not None
    x = b[name]
    calls = [
        f"torch.add({name}, {partner(b, name)}, out={target})",
        f"torch.mul({name}, {name}, out={target})",
        f"torch.abs({name}, out={target})",
    ]
    if not x.is_complex():  # or it raises when it has resized, and the rest has no content
        calls.append(f"torch.gt({name}, 0, out={target})")
    if x.untyped_storage()._cdata != b[owner].untyped_storage()._cdata:
        # What is resized and then read has no content that one could tell.
        calls += [
            f"torch.cat([{name}, {name}], out={target})",
            f"torch.sum({name}, 0, out={target})",
            f"torch.mm({name}, {name}, out={target})",
        ]
    elif target != name:
        return f"{target}.copy_({name})"
    return f"with torch.no_grad(): {b.choose.pick(calls)}"


def combined(b: Builder) -> str | None:
    name = b.tensor()
    assert name is not None
    x = b[name]
    if integral(x) and x.dtype != torch.bool:
        return f"{name}.bitwise_xor_(3)"
    matching = b.tensor(lambda y: y.shape == x.shape and y.dtype == x.dtype)
    return b.choose.pick(
        [
            f"{name}.addcmul_({matching}, {matching}, value=2)",
            f"torch._foreach_add_([{name}, {matching}], 1)",
            f"torch._foreach_addcmul_([{name}], [{matching}], [{matching}], 2)",
            f"torch._foreach_copy_([{name}], [{matching}])",
            f"{name}.add_({matching}, alpha=2)",
            f"{name}.copy_({matching}.clone())",
        ]
    )


def geometry(b: Builder) -> str | None:
    name = b.tensor(lambda x: x.dim() > 1)
    if name is None:
        return f"{b.tensor()}.unsqueeze_(0)"
    calls = ["t_", "transpose_", "squeeze_", "unsqueeze_"]
    arguments = {"transpose_": "0, 1", "unsqueeze_": "1"}
    call = b.choose.pick(calls)
    return f"{name}.{call}({arguments.get(call, '')})"


def memory(b: Builder) -> str | None:
    name = b.tensor()
    assert name is not None
    x = b[name]
    other = b.tensor(lambda y: y.dtype == x.dtype)
    size = b.choose.pick([(2,), (3, 2), (0,), (1, 4), ()])
    # What is added is filled: nobody knows its content.
    options = [
        f"{name}.resize_({size}).fill_(2)",
        f"{name}.set_({other})",
        f"{name}.data = {other}.data",
        f"{name}.resize_as_({other}).zero_()",
        f"{name}.untyped_storage().copy_({other}.clone().untyped_storage())",
        f"{name}.set_()",
        f"{name}.requires_grad_(False)",
        f"torch.utils.swap_tensors({name}, {other})",
    ]
    if b[other or name].untyped_storage().nbytes() != x.untyped_storage().nbytes():
        options.pop(4)
    return b.choose.pick(options)


STEPS: list[tuple[int, Step]] = [
    *[(14, binary), (7, unary), (10, item), (6, scattered), (4, combined), (3, out)],
    *[(3, random), (3, geometry), (3, memory)],
]
