"""Programs made from bytes, each line tried on the CPU as it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from choices import Choices
from program import Environment, Program, contents, describe, execute, start, variables

MAX_TENSORS = 7
MAX_NUMEL = 64
MAX_ERRORS = 3


@dataclass(frozen=True)
class Dialect:
    """What programs may use."""

    dtypes: Sequence[torch.dtype]
    shapes: Sequence[tuple[int, ...]]


class Builder:
    """The program so far, its tensors on the CPU, and the choices for the next line."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.program = Program()
        self.env: Environment = start("cpu")
        self.choose = Choices(b"")
        self._made = 0

    def tensors(self, wanted: Callable[[torch.Tensor], bool] | None = None) -> list[str]:
        """The names of the tensors, of those that are `wanted`, the latest first."""
        named = [
            name
            for name, value in variables(self.env).items()
            if isinstance(value, torch.Tensor) and (wanted is None or wanted(value))
        ]
        return named[::-1]

    def tensor(self, wanted: Callable[[torch.Tensor], bool] | None = None) -> str | None:
        """One of them, if there is any."""
        names = self.tensors(wanted)
        return self.choose.pick(names) if names else None

    def __getitem__(self, name: str) -> torch.Tensor:
        value = self.env[name]
        assert isinstance(value, torch.Tensor)
        return value

    def fresh(self, prefix: str = "t") -> str:
        """A name for what the next line makes."""
        self._made += 1
        return f"{prefix}{self._made - 1}"

    def add(self, line: str) -> None:
        """Run the line on the CPU; leave it out where it can have no sense in a program."""
        error = execute(line, self.env)
        errors = self.program.errors
        if error and (error in ("NameError", "SyntaxError", "AttributeError")):
            raise AssertionError(f"{line} raised {error}")
        if error and sum(map(bool, errors)) >= MAX_ERRORS:
            self._replay()
            return
        self.program.lines.append(line)
        errors.append(error)
        self.program.described.append(describe(self.env))

    def _replay(self) -> None:
        """Undo the last line, whatever it did before it failed."""
        self.env = start("cpu")
        for line in self.program.lines:
            execute(line, self.env)

    def finish(self) -> Program:
        """The program with its last values."""
        self.program.contents = contents(self.env)
        return self.program


Step = Callable[[Builder], "str | None"]


def build(steps: Sequence[bytes], dialect: Dialect, table: Sequence[tuple[int, Step]]) -> Program:
    """The program that the bytes stand for: one step each.

    Args:
        steps: the choices of each step.
        dialect: what it may use.
        table: kinds of step with their weights, the simplest first.
    """
    builder = Builder(dialect)
    options = [step for weight, step in table for _ in range(weight)]
    for data in steps:
        builder.choose = Choices(data)
        step = builder.choose.pick(options)
        alive = builder.tensors()
        if not alive:
            step = table[0][1]
        elif len(alive) > MAX_TENSORS:
            builder.add(f"del {alive[-1]}")
        line = step(builder)
        if line is not None:
            builder.add(line)
    return builder.finish()
