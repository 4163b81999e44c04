"""``torch.nn.attention.flex_attention``, which takes devices by a list of its own.

The module is imported by who uses it, for that takes long: then it is told of the device.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

NAME = "torch.nn.attention.flex_attention"


def register() -> None:
    """Let `flex_attention` take tensors of the device, now or once it is imported."""
    if NAME in sys.modules:
        _admit(sys.modules[NAME])
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds one module, by all other finders, and has `_admit` called after it ran."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != NAME:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _admit(module)

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010 (mypy minds methods)
        return spec


def _admit(module: Any) -> None:
    original = module._validate_device

    @wraps(original)
    def validate_device(query: Any, key: Any, value: Any) -> None:
        if query.device.type != "shark":
            original(query, key, value)

    module._validate_device = validate_device
