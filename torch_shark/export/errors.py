"""What goes wrong with bundles; wrong arguments of a program are plain TypeErrors, ValueErrors."""

from __future__ import annotations

from pathlib import Path

from torch_shark.errors import SharkError


class ExportError(SharkError, RuntimeError):
    """A model can't be exported.

    Args:
        model: the name of its class.
        reason: what stands in the way; the user's own line, where one is known.
    """

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(model, reason)

    def __str__(self) -> str:
        model, reason = self.args
        return f"[shark] {model} can't be exported: {reason}"


class BundleError(SharkError, ValueError):
    """A folder is no bundle that can be used.

    Args:
        path: the folder or the file in it.
        reason: what was expected of it, and what it is.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)

    def __str__(self) -> str:
        path, reason = self.args
        return f"[shark] {path} can't be loaded: {reason}"


class NoDeviceError(SharkError, RuntimeError):
    """This machine runs none of a bundle's targets.

    Args:
        path: the bundle's folder.
        reasons: for each target, its name and why it does not run.
    """

    def __init__(self, path: Path, reasons: dict[str, str]) -> None:
        super().__init__(path, reasons)

    def __str__(self) -> str:
        path, reasons = self.args
        listed = "".join(f"\n{target}: {reason}" for target, reason in reasons.items())
        return f"[shark] expected a device for one of the targets in {path}, got none.{listed}"
