"""How a region's executable is called: the types of its buffers and of its scalars."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, replace
from typing import Any, Literal

from torch_shark.lowering.forms import Form

ScalarKind = Literal["f64", "i64"]


@dataclass(frozen=True, slots=True)
class BufferType:
    """Shape and IREE element type (a name of `iree.runtime.HalElementType`) of one buffer view.

    The view covers the first elements of the storage's buffer, in storage order.
    """

    shape: tuple[int | Form, ...]
    element_type: str

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape.

        Raises:
            ValueError: it is that of any size.
        """
        numbers = tuple(number for number in self.shape if isinstance(number, int))
        if len(numbers) != len(self.shape):
            raise ValueError(f"[shark] expected the shape of one size, got {self.shape}")
        return numbers


@dataclass(frozen=True, slots=True)
class RegionInterface:
    """The calling convention of a region.

    The function's arguments are, in this order: the inputs; the vector of the f64 scalars, if
    there are any; the vector of the i64 scalars, if there are any; the size, if there is one; the
    outputs, which it overwrites. It returns nothing.

    Attributes:
        inputs: one type for each input storage.
        outputs: one type for each output storage. Its element type is a float of the same width
            where the storage holds integers or bools; only the bytes matter.
        scalars: for each lifted scalar, in the order in which they are passed, the vector it goes
            to. Scalars of one kind are packed in that order. Bools go to the i64 vector.
        used_inputs: for each of the inputs, its position among the region's.
        in_place: positions of the outputs whose old content the function reads: it wants the
            memory that holds it. It reads nothing of the others.
        function: the exported function's name, with its module: "module.main".
        forms: of a region of any size, its integers (see `sizes.integers_of`).
        guard: what has to hold for its size, as an expression of Python over L["t0"].
        size: the size that it is called with, once it is bound to one.
    """

    inputs: tuple[BufferType, ...]
    outputs: tuple[BufferType, ...]
    scalars: tuple[ScalarKind, ...] = ()
    used_inputs: tuple[int, ...] = ()
    in_place: tuple[int, ...] = ()
    function: str = "module.main"
    forms: tuple[int | Form, ...] = ()
    guard: str = ""
    size: int | None = None

    @property
    def takes_size(self) -> bool:
        """Whether the function has a size among its arguments."""
        return bool(self.forms) or self.size is not None

    def covers(self, size: int) -> bool:
        """Tell whether the function of any size is right for one."""
        if not self.guard:
            return True
        try:
            return bool(eval(self.guard, {"__builtins__": {}}, {"L": {"t0": size}}))
        except Exception:  # an expression that Python's own operators do not spell
            return False

    def bound(self, size: int) -> RegionInterface:
        """Return the interface of one size."""

        def bind(types: tuple[BufferType, ...]) -> tuple[BufferType, ...]:
            return tuple(
                BufferType(
                    tuple(n.at(size) if isinstance(n, Form) else n for n in each.shape),
                    each.element_type,
                )
                for each in types
            )

        return replace(
            self,
            inputs=bind(self.inputs),
            outputs=bind(self.outputs),
            forms=(),
            guard="",
            size=size,
        )

    @property
    def in_place_arguments(self) -> tuple[int, ...]:
        """The numbers of the function's arguments that are read and overwritten."""
        first = len(self.inputs) + len(set(self.scalars)) + self.takes_size
        return tuple(first + position for position in self.in_place)

    def to_json(self) -> str:
        """Returns a text that `from_json` turns into an equal object."""

        def plain(types: tuple[BufferType, ...]) -> list[list[object]]:
            return [[list(map(plain_number, t.shape)), t.element_type] for t in types]

        def plain_number(number: int | Form) -> object:
            return number if isinstance(number, int) else [*astuple(number)]

        return json.dumps(
            {
                "inputs": plain(self.inputs),
                "outputs": plain(self.outputs),
                "scalars": list(self.scalars),
                "used_inputs": list(self.used_inputs),
                "in_place": list(self.in_place),
                "function": self.function,
                "forms": list(map(plain_number, self.forms)),
                "guard": self.guard,
                "size": self.size,
            }
        )

    @staticmethod
    def from_json(text: str) -> RegionInterface:
        """Reads what `to_json` wrote.

        Raises:
            ValueError, KeyError, TypeError: the text is something else.
        """
        data = json.loads(text)

        def typed(items: list[list[object]]) -> tuple[BufferType, ...]:
            return tuple(BufferType(numbers(shape), str(name)) for shape, name in items)

        def numbers(items: Any) -> tuple[int | Form, ...]:
            return tuple(Form(*item) if isinstance(item, list) else item for item in items)

        return RegionInterface(
            typed(data["inputs"]),
            typed(data["outputs"]),
            tuple(data["scalars"]),
            tuple(data["used_inputs"]),
            tuple(data["in_place"]),
            data["function"],
            numbers(data["forms"]),
            data["guard"],
            data["size"],
        )
