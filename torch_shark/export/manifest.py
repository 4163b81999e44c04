"""The manifest of a bundle: what is in it, for whom, how it is called, and checksums."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_shark.export.signature import ConstantSpec, Signature, Spec, TensorSpec

FORMAT = 1
"""The version of the format; it grows with each change that an older reader would misread."""

SCOPE = "model"
"""The name by which an executable asks for its parameters."""


@dataclass(frozen=True, slots=True)
class TargetEntry:
    """An executable of the bundle.

    Attributes:
        name: the target, with its architecture: "cuda:sm_80".
        file: the executable's name in the bundle.
        driver: the name of IREE's driver that runs it.
        flags: those it was compiled with.
        cpu_features: what the CPU has to have, as Linux names it.
    """

    name: str
    file: str
    driver: str
    flags: tuple[str, ...]
    cpu_features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size and checksum of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the file manifest.json says.

    Attributes:
        versions: of the packages that made the bundle.
        function: the exported function's name, with its module.
        signature: what the function takes and returns.
        parameters: the name of the archive, or None if there are no parameters.
        state: the names of the buffers that calls write.
        targets: in the order of preference.
        files: all files but the manifest.
    """

    versions: dict[str, str]
    function: str
    signature: Signature
    parameters: str | None
    state: tuple[str, ...]
    targets: tuple[TargetEntry, ...]
    files: dict[str, FileEntry]

    def to_json(self) -> str:
        """Return a text that `from_json` turns into an equal object."""
        signature = self.signature
        fields = {
            "format": FORMAT,
            "versions": self.versions,
            "function": self.function,
            "inputs": {
                "structure": signature.input_structure,
                "leaves": [asdict(spec) for spec in signature.inputs],
            },
            "outputs": {
                "structure": signature.output_structure,
                "leaves": [asdict(spec) for spec in signature.outputs],
            },
            "symbols": signature.ranges,
            "parameters": self.parameters,
            "state": self.state,
            "targets": [asdict(target) for target in self.targets],
            "files": {name: asdict(entry) for name, entry in self.files.items()},
        }
        return json.dumps(fields, indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> Manifest:
        """Read what `to_json` wrote.

        Raises:
            NewerFormatError: a later version wrote it.
            NotImplementedError: arguments or results are of a class that PyTorch's pytrees don't
                know in this process: import what registers it.
            ValueError, KeyError, TypeError, AttributeError: the text is something else.
        """
        fields = json.loads(text)
        if fields["format"] > FORMAT:
            raise NewerFormatError(fields["format"])
        signature = Signature(
            *_structure(fields["inputs"]),
            *_structure(fields["outputs"]),
            {symbol: (low, high) for symbol, (low, high) in fields["symbols"].items()},
        )
        targets = tuple(
            TargetEntry(
                target["name"],
                target["file"],
                target["driver"],
                tuple(target["flags"]),
                tuple(target["cpu_features"]),
            )
            for target in fields["targets"]
        )
        files = {
            name: FileEntry(entry["bytes"], entry["sha256"])
            for name, entry in fields["files"].items()
        }
        return Manifest(
            fields["versions"],
            fields["function"],
            signature,
            fields["parameters"],
            tuple(fields["state"]),
            targets,
            files,
        )


class NewerFormatError(Exception):
    """The manifest is of a format that this version does not know; the argument is its number."""


def _structure(fields: dict[str, Any]) -> tuple[str, tuple[Spec, ...]]:
    structure, leaves = fields["structure"], tuple(map(_spec, fields["leaves"]))
    if (count := pytree.treespec_loads(structure).num_leaves) != len(leaves):
        raise ValueError(f"expected {count} leaves, got {len(leaves)}")
    return structure, leaves


def _spec(fields: dict[str, Any]) -> Spec:
    if "dtype" in fields:
        if not isinstance(getattr(torch, fields["dtype"], None), torch.dtype):
            raise ValueError(f"expected a dtype, got {fields['dtype']!r}")
        return TensorSpec(fields["name"], fields["dtype"], tuple(fields["shape"]))
    return ConstantSpec(fields["name"], fields["value"], fields["is_size"])
