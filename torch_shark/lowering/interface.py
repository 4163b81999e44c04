"""How a region's executable is called: the types of its buffers and of its scalars."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

ScalarKind = Literal["f64", "i64"]


@dataclass(frozen=True, slots=True)
class BufferType:
    """Shape and IREE element type (a name of `iree.runtime.HalElementType`) of one buffer view.

    The view covers the first elements of the storage's buffer, in storage order.
    """

    shape: tuple[int, ...]
    element_type: str


@dataclass(frozen=True, slots=True)
class RegionInterface:
    """The calling convention of a region.

    The function's arguments are, in this order: the inputs; the vector of the f64 scalars, if
    there are any; the vector of the i64 scalars, if there are any; the outputs, which it
    overwrites. It returns nothing.

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
    """

    inputs: tuple[BufferType, ...]
    outputs: tuple[BufferType, ...]
    scalars: tuple[ScalarKind, ...] = ()
    used_inputs: tuple[int, ...] = ()
    in_place: tuple[int, ...] = ()
    function: str = "module.main"

    @property
    def in_place_arguments(self) -> tuple[int, ...]:
        """The numbers of the function's arguments that are read and overwritten."""
        first = len(self.inputs) + len(set(self.scalars))
        return tuple(first + position for position in self.in_place)

    def to_json(self) -> str:
        """Returns a text that `from_json` turns into an equal object."""

        def plain(types: tuple[BufferType, ...]) -> list[list[object]]:
            return [[list(t.shape), t.element_type] for t in types]

        return json.dumps(
            {
                "inputs": plain(self.inputs),
                "outputs": plain(self.outputs),
                "scalars": list(self.scalars),
                "used_inputs": list(self.used_inputs),
                "in_place": list(self.in_place),
                "function": self.function,
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
            return tuple(BufferType(tuple(shape), str(name)) for shape, name in items)  # type: ignore[arg-type]

        return RegionInterface(
            typed(data["inputs"]),
            typed(data["outputs"]),
            tuple(data["scalars"]),
            tuple(data["used_inputs"]),
            tuple(data["in_place"]),
            data["function"],
        )
