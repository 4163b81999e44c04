"""Exceptions of torch_shark: each formats its own message and says what to do.

The arguments of an exception are its ``args``, so it can be pickled by the compiler's worker
process and compared in tests; the message is made by ``__str__``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps -e ."


class SharkError(Exception):
    """Base of every exception that torch_shark raises itself."""


class NotBuiltError(SharkError, ImportError):
    """The C++ extension is not there."""

    def __str__(self) -> str:
        return (
            "[shark] torch_shark is installed, but its C++ extension is not built for this "
            f"Python: run `{REBUILD}` in its source folder."
        )


class AbiMismatchError(SharkError, ImportError):
    """The C++ extension was built for another minor version of torch.

    Args:
        built_for: torch's "major.minor" at build time.
        running: torch's full version in this process.
    """

    def __init__(self, built_for: str, running: str) -> None:
        super().__init__(built_for, running)
        self.built_for = built_for
        self.running = running

    def __str__(self) -> str:
        return (
            f"[shark] torch_shark was built for torch {self.built_for}, but this is torch "
            f"{self.running}: run `{REBUILD}` in its source folder."
        )


class ExtensionLoadError(SharkError, ImportError):
    """The C++ extension is for this torch, and still does not load.

    Args:
        reason: what the dynamic linker said.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            "[shark] the C++ extension of torch_shark does not load; it may be from another "
            f"build of torch or another compiler: run `{REBUILD}` in its source folder "
            f"(the linker said: {self.reason})."
        )


class ConfigError(SharkError, ValueError):
    """A knob was given a value that it does not take.

    Args:
        source: what was set, e.g. "TORCH_SHARK_POLICY" or "config.policy".
        value: the value it was given.
        expected: what it takes, in words.
    """

    def __init__(self, source: str, value: object, expected: str) -> None:
        super().__init__(source, value, expected)
        self.source = source
        self.value = value
        self.expected = expected

    def __str__(self) -> str:
        return f"[shark] expected {self.source} to be {self.expected}, got {self.value!r}."


class TargetAbsentError(SharkError, RuntimeError):
    """A target was named that is not there.

    Args:
        target: its name.
        reason: what is missing.
    """

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(target, reason)
        self.target = target
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[shark] target {self.target!r} is not there: {self.reason}. "
            "Set TORCH_SHARK_TARGET=auto to take what is."
        )


class UnknownTargetError(ConfigError):
    """``target`` names nothing that torch_shark can compile for.

    Args:
        source: what was set, e.g. "TORCH_SHARK_TARGET".
        value: the name it was given.
        known: the names of all targets.
    """

    def __init__(self, source: str, value: object, known: Sequence[str]) -> None:
        super().__init__(source, value, f"a known target ({', '.join(known)})")
        self.args = (source, value, known)
        self.known = known


class CompileOptionError(SharkError, TypeError):
    """``torch.compile(backend="shark")`` was given an option or a mode that it does not know.

    Args:
        what: "option" or "mode".
        given: its name.
        known: the names of all.
    """

    def __init__(self, what: str, given: str, known: Iterable[str]) -> None:
        super().__init__(what, given, tuple(known))

    def __str__(self) -> str:
        what, given, known = self.args
        hint = ""
        if what == "option":
            hint = "; other knobs are the process's (torch_shark.config)"
        return f"[shark] expected {what}s among {', '.join(known)}, got {given!r}{hint}."


class ExecutableLoadError(SharkError, RuntimeError):
    """IREE's runtime refused a compiled executable.

    Args:
        target: the target it was compiled for.
        origin: where the executable came from, e.g. its file in the cache.
        reason: what the runtime said.
    """

    def __init__(self, target: str, origin: str, reason: str) -> None:
        super().__init__(target, origin, reason)
        self.target = target
        self.origin = origin
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[shark] IREE's runtime did not load an executable for target {self.target!r} from "
            f"{self.origin}; if that is a file of the cache, delete it and run again.\n"
            f"{self.reason}"
        )


class SharedMemoryError(SharkError, RuntimeError):
    """A tensor of the device was to be put where other processes can write it."""

    def __str__(self) -> str:
        return (
            "[shark] expected a CPU tensor to be moved to shared memory, got one on a shark "
            "device, whose memory belongs to one process. A tensor that is sent to another "
            "process arrives there as a copy; to share one, use a CPU tensor."
        )
