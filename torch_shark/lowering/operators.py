"""What lowering knows of an operator from its schema, looked up by the recorded name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

_DTYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
}
_MEMORY_FORMATS = {
    0: torch.contiguous_format,
    1: torch.preserve_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
}


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator's schema, as far as lowering needs it.

    Attributes:
        name: the recorded name, "aten::add.Tensor".
        overload: the operator itself.
        arguments: names of the schema's arguments.
        types: their types as the schema writes them, without alias annotations: "Scalar?".
        written: positions of the arguments that the schema declares as written.
        functional: the name of the operator that computes the same values without writing, or None.
        functional_args: positions of our arguments that `functional` takes, in its order.
        keyword_only: positions of the keyword-only arguments, which come last.
        dim_arg: position of the argument that names the dimensions along which it works, or None.
    """

    name: str
    overload: torch._ops.OpOverload
    arguments: tuple[str, ...]
    types: tuple[str, ...]
    written: tuple[int, ...]
    functional: str | None
    functional_args: tuple[int, ...]
    keyword_only: tuple[int, ...]
    dim_arg: int | None

    def __call__(self, *args: Any) -> Any:
        """Calls the operator; all its arguments are given by position, in schema order."""
        first = self.keyword_only[0] if self.keyword_only else len(args)
        names = self.arguments[first:]
        return self.overload(*args[:first], **dict(zip(names, args[first:], strict=True)))

    def python_argument(self, position: int, value: Any) -> Any:
        """Returns `value` as Python passes it: codes become dtypes and memory formats."""
        kind = self.types[position]
        if kind.startswith("ScalarType") and isinstance(value, int):
            return _DTYPES[value]
        if kind.startswith("MemoryFormat") and isinstance(value, int):
            return _MEMORY_FORMATS[value]
        if kind.startswith("Layout") and isinstance(value, int):
            return torch.strided
        if kind.startswith("Device") and value is not None:
            return torch.device("cpu")
        return value


def base_name(name: str) -> str:
    """Returns what all forms of an operator have in common: "add" of "aten::add_.Tensor"."""
    return name.removeprefix("aten::").partition(".")[0].removesuffix("_")


@cache
def find_operator(name: str) -> Operator | None:
    """Returns the operator of a recorded name, or None if Python's torch.ops has none such."""
    namespace, _, rest = name.partition("::")
    packet_name, _, overload_name = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    overload = getattr(packet, overload_name or "default", None)
    if overload is None:
        return None
    schema = overload._schema
    written = tuple(
        i
        for i, a in enumerate(schema.arguments)
        if a.alias_info is not None and a.alias_info.is_write
    )
    functional, functional_args = _functional_partner(namespace, packet_name, overload, written)
    return Operator(
        name=name,
        overload=overload,
        arguments=tuple(a.name for a in schema.arguments),
        types=tuple(_type_name(a) for a in schema.arguments),
        written=written,
        functional=functional,
        functional_args=functional_args,
        keyword_only=tuple(i for i, a in enumerate(schema.arguments) if a.kwarg_only),
        dim_arg=next(
            (i for i, a in enumerate(schema.arguments) if a.name in ("dim", "dims")), None
        ),
    )


def _type_name(argument: Any) -> str:
    """The type as native_functions.yaml writes it: "ScalarType?", "Tensor[]", "Scalar"."""
    text = str(argument.real_type).replace("number", "Scalar")
    while (match := re.search(r"(Optional|List)\[([^][]*(?:\[\])?[^][]*)\]", text)) is not None:
        suffix = "?" if match[1] == "Optional" else "[]"
        text = text[: match.start()] + match[2] + suffix + text[match.end() :]
    return text


def _functional_partner(
    namespace: str, packet_name: str, overload: Any, written: tuple[int, ...]
) -> tuple[str | None, tuple[int, ...]]:
    arguments = overload._schema.arguments
    if not written:
        return None, ()
    is_out = arguments[written[0]].is_out
    positions = tuple(i for i in range(len(arguments)) if not (is_out and i in written))
    signature = [(arguments[i].name, str(arguments[i].real_type)) for i in positions]
    if not is_out:
        if not packet_name.endswith("_"):
            return None, ()
        packet_name = packet_name[:-1]
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    for overload_name in packet.overloads() if packet is not None else ():
        candidate = getattr(packet, overload_name)._schema
        if any(a.alias_info is not None for a in candidate.arguments):
            continue
        if [(a.name, str(a.real_type)) for a in candidate.arguments] == signature:
            suffix = "" if overload_name == "default" else "." + overload_name
            return f"{namespace}::{packet_name}{suffix}", positions
    return None, ()
