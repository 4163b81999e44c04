"""A program as lines of plain PyTorch: run on a device, it leaves a record that can be compared."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Environment = dict[str, Any]


def start(device: str) -> Environment:
    """The names that a program begins with, and the seed."""
    torch.manual_seed(0)
    return {"torch": torch, "d": device}


def execute(line: str, env: Environment) -> str | None:
    """Run one line; give the name of the type of the error that it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(line, env)
        except Exception as error:
            return type(error).__name__
    return None


def variables(env: Environment) -> dict[str, Any]:
    """What the program has named."""
    return {name: env[name] for name in env if name[0] in "tv" and name[1:].isdigit()}


def describe(env: Environment) -> dict[str, Any]:
    """All that is known of the variables without a sync: geometry, versions, who shares memory."""
    seen: dict[int, int] = {}
    described: dict[str, Any] = {}
    for name, value in variables(env).items():
        if not isinstance(value, torch.Tensor):
            described[name] = repr(value)
            continue
        storage = value.untyped_storage()
        described[name] = {
            "dtype": value.dtype,
            "shape": tuple(value.shape),
            "stride": _steps(value),
            "offset": value.storage_offset(),
            "storage": seen.setdefault(storage._cdata, len(seen)),
            "nbytes": storage.nbytes(),
            "conj": value.is_conj(),
            "neg": value.is_neg(),
            "view": value._is_view(),
            "version": value._version,
            "requires_grad": value.requires_grad if _is_leaf(value) in (True, False) else None,
            "leaf": _is_leaf(value),
        }
    return described


def _is_leaf(tensor: torch.Tensor) -> bool | str:
    """Looking may raise: a view among several whose base was written to has no gradient."""
    try:
        return tensor.is_leaf
    except RuntimeError as error:
        return str(error).split("\n")[0]


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: a dimension of size 1, or of an empty tensor, may have any."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1 and tensor.numel()]


def contents(env: Environment) -> dict[str, torch.Tensor]:
    """The values of all tensors and of their gradients."""
    named = {
        name: value for name, value in variables(env).items() if isinstance(value, torch.Tensor)
    }
    for name, value in list(named.items()):
        if _is_leaf(value) is True and value.grad is not None:
            named[f"{name}.grad"] = value.grad
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: _copy_of(value) for name, value in named.items()}


def _copy_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().clone().resolve_conj().resolve_neg()


@dataclass
class Program:
    """Lines with what the CPU made of them."""

    lines: list[str] = field(default_factory=list)
    errors: list[str | None] = field(default_factory=list)
    described: list[dict[str, Any]] = field(default_factory=list)
    contents: dict[str, torch.Tensor] = field(default_factory=dict)

    def text(self) -> str:
        """The program as one can paste it into Python."""
        body = [
            f"{line}  # {error}" if error else line
            for line, error in zip(self.lines, self.errors, strict=True)
        ]
        return "\n".join(['import torch\nd = "shark"\ntorch.manual_seed(0)', *body])

    def difference(self, device: str, same: Callable[[torch.Tensor, torch.Tensor], bool]) -> str:
        """Run on `device` and say where that first differs from the CPU, or nothing at all.

        Args:
            device: where to run.
            same: whether values, of equal dtype and shape, are equal enough.
        """
        env = start(device)
        for line, error, described in zip(self.lines, self.errors, self.described, strict=True):
            raised = execute(line, env)
            if raised != error:
                return f"`{line}` raised {raised}, on the CPU {error}"
            if (found := describe(env)) != described:
                return f"after `{line}` {_first_difference(found, described)}"
        try:
            values = contents(env)
        except Exception as error:
            return f"reading raised {type(error).__name__}: {error}"
        for name, value in values.items():
            if not same(value, self.contents[name]):
                return f"{name} is\n{value}\non the CPU\n{self.contents[name]}"
        return ""


def rerun(program: Program) -> dict[str, torch.Tensor]:
    """The values that the program's lines leave on the CPU."""
    env = start("cpu")
    for line in program.lines:
        execute(line, env)
    return contents(env)


def _first_difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    for name in expected:
        if found.get(name) != expected[name]:
            if not isinstance(expected[name], dict):
                return f"{name} is {found.get(name)}, on the CPU {expected[name]}"
            for key, value in expected[name].items():
                if found[name][key] != value:
                    return f"the {key} of {name} is {found[name][key]}, on the CPU {value}"
    return f"there are {sorted(found)}, on the CPU {sorted(expected)}"
