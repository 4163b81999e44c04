"""``device="shark"`` in safetensors, which takes devices by names of its own list.

It takes an index as well, which PyTorch reads as that of its accelerator.
"""

from __future__ import annotations

from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any

from torch_shark.index import index_of


def register() -> None:
    """Replace ``safetensors.safe_open``, which all of the package's loading goes through."""
    with suppress(ImportError):  # it is not there, or broken, which is told where it is used
        package = import_module("safetensors")
        setattr(package, "safe_open", _naming(package.safe_open))  # noqa: B010 (of any package)


def _naming(original: Any) -> Any:
    @wraps(original)
    def safe_open(
        filename: Any, framework: str, device: Any = "cpu", *args: Any, **options: Any
    ) -> Any:
        if str(device).partition(":")[0] == "shark":
            device = index_of(device)
        return original(filename, framework, device, *args, **options)

    return safe_open
