"""Every knob of torch_shark: its type, its default and one line of documentation.

``from torch_shark import config``, then ``config.policy``. The value of a knob is the one that was
assigned, else that of the environment variable ``TORCH_SHARK_<NAME>``, read at each use, else the
default.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar, cast, overload

import platformdirs

from torch_shark.errors import ConfigError, UnknownTargetError

T = TypeVar("T")

# Makes a value of the knob's type of an assigned value or of the environment's text. It is given
# the name of what was set, for the error.
Convert = Callable[[str, object], T]

POLICIES = ("auto", "iree", "native")
TARGETS = ("auto", "cpu", "cuda")
BUILD_VARIABLES = {"TORCH_SHARK_WERROR"}  # setup.py reads them


def to_policy(source: str, value: object) -> str:
    """The name of a policy."""
    if value not in POLICIES:
        raise ConfigError(source, value, "'auto', 'iree' or 'native'")
    return str(value)


def to_target(source: str, value: object) -> str:
    """The name of a known target."""
    if value not in TARGETS:
        raise UnknownTargetError(source, value, TARGETS)
    return str(value)


def to_bool(source: str, value: object) -> bool:
    """A bool, or "1" or "0" in the environment."""
    if isinstance(value, bool):
        return value
    if value not in ("0", "1"):
        raise ConfigError(source, value, "a bool (in the environment 1 or 0)")
    return value == "1"


def to_path(source: str, value: object) -> Path:
    """A path that names something, with ~ expanded."""
    if not isinstance(value, (str, Path)) or not str(value):
        raise ConfigError(source, value, "a path")
    return Path(value).expanduser()


def to_optional_path(source: str, value: object) -> Path | None:
    """A path; None, or nothing in the environment, for none."""
    return None if value is None or value == "" else to_path(source, value)


def to_flags(source: str, value: object) -> tuple[str, ...]:
    """Flags of IREE's compiler: a sequence of texts, or one in which spaces part them."""
    parts = value.split() if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ConfigError(source, value, "flags of IREE's compiler")
    refused = _refused(tuple(parts))
    if refused is not None:
        raise ConfigError(source, value, f"flags of IREE's compiler ({refused})")
    return tuple(parts)


@cache
def _refused(flags: tuple[str, ...]) -> str | None:
    """What IREE's compiler has against flags."""
    if not flags:
        return None
    from iree.compiler.api import Session  # it takes a while

    try:
        Session().set_flags(*flags)
    except ValueError as error:
        return " ".join(str(error).split())
    return None


def to_int(low: int, high: int | None = None) -> Convert[int]:
    """A converter to integers that are at least `low` and, where it is given, at most `high`."""
    expected = f"an integer of at least {low}" if high is None else f"an integer, {low} to {high}"

    def convert(source: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ConfigError(source, value, expected)
        try:
            number = int(value)
        except ValueError:
            raise ConfigError(source, value, expected) from None
        if number < low or (high is not None and number > high):
            raise ConfigError(source, value, expected)
        return number

    return convert


class Knob(Generic[T]):
    """One attribute of `Config`, a descriptor.

    Args:
        default: the value that nobody set.
        convert: checks a value and gives it the knob's type.
        doc: one line, for the table.
        shown_default: the default as the table has it, where its repr is not the same everywhere.
    """

    def __init__(
        self, default: T, convert: Convert[T], doc: str, shown_default: str | None = None
    ) -> None:
        self.default = default
        self.convert = convert
        self.doc = doc
        self.shown_default = str(default) if shown_default is None else shown_default

    def __set_name__(self, owner: type[Config], name: str) -> None:
        self.name = name
        self.variable = f"TORCH_SHARK_{name.upper()}"

    @overload
    def __get__(self, instance: None, owner: type[Config]) -> Knob[T]: ...
    @overload
    def __get__(self, instance: Config, owner: type[Config]) -> T: ...
    def __get__(self, instance: Config | None, owner: type[Config]) -> T | Knob[T]:
        if instance is None:
            return self
        if self.name in instance._assigned:
            return cast("T", instance._assigned[self.name])
        text = os.environ.get(self.variable)
        return self.default if text is None else self.convert(self.variable, text)

    def __set__(self, instance: Config, value: object) -> None:
        before = dict(instance._assigned)
        instance._assigned[self.name] = self.convert(f"config.{self.name}", value)
        try:
            instance._tell()
        except ConfigError:
            instance._assigned = before
            instance._tell()
            raise


class Config:
    """The knobs of this process. Not thread-safe: set them before threads are started."""

    policy = Knob(
        "auto",
        to_policy,
        "`auto` compiles in the background and keeps what is faster; `iree` compiles all that can"
        " be compiled and waits for it; `native` never compiles.",
    )
    target = Knob(
        "cpu",
        to_target,
        "What the device is laid over: `cpu`; `cuda`, where operators are replayed and none"
        " compiled yet; or `auto`, the best that is there. Read when PyTorch is imported.",
    )
    disk_cache = Knob(True, to_bool, "Whether compiled regions are kept on disk.")
    cache_dir = Knob(
        Path(platformdirs.user_cache_dir("torch_shark")),
        to_path,
        "The folder of the disk cache.",
        shown_default="the user's cache folder",
    )
    cache_max_bytes = Knob(
        4 << 30, to_int(0), "Size of the disk cache; the least recently used goes first."
    )
    window_operators: Knob[int | None] = Knob(
        None,
        to_int(1, 1 << 62),
        "A window ends, at the latest, after this many operators.",
        shown_default="4096; over a GPU 12",
    )
    pending_bytes = Knob(
        1 << 30,
        to_int(0, 1 << 62),
        "A window ends when its results and snapshots pass this many bytes.",
    )
    blocking = Knob(
        False,
        to_bool,
        "Whether each operator is run before its call returns, so that its error is raised there.",
    )
    verify = Knob(
        False,
        to_bool,
        "Whether each compiled region also runs natively: values stay native, and an error names"
        " the region where they differ.",
    )
    debug = Knob(
        0,
        to_int(0, 3),
        "What is told on stderr: 1 compilations, 2 also a line per window, 3 also its operators.",
    )
    dump_dir = Knob(
        None,
        to_optional_path,
        "The folder where the MLIR of regions that do not compile is saved.",
        shown_default="`failed` in the cache folder",
    )

    compile_flags: Knob[tuple[str, ...]] = Knob(
        (),
        to_flags,
        "Further flags of IREE's compiler, such as `--iree-opt-level=O3`.",
        shown_default="none",
    )
    compile_workers = Knob(1, to_int(1, 256), "Processes that compile, at most, at low priority.")
    compile_memory = Knob(4 << 30, to_int(1 << 30), "The most memory of such a process, in bytes.")
    compile_delay = Knob(
        2000,
        to_int(0),
        "Under `auto`, the milliseconds from the first region that is worth compiling to the first"
        " compilation.",
    )
    compile_seconds = Knob(300, to_int(1), "How long a region may compile before it stays native.")

    def __init__(self) -> None:
        self._assigned: dict[str, object] = {}
        self._listeners: list[Callable[[], None]] = []

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and name not in knobs():
            raise AttributeError(f"[shark] no knob {name!r}; there are {', '.join(knobs())}.")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        """Each knob with its value and where that is from, one a line."""
        rows = [f"{name} = {getattr(self, name)!s} ({self._source(name)})" for name in knobs()]
        return "\n".join(["torch_shark.config", *(f"  {row}" for row in rows)])

    def _source(self, name: str) -> str:
        if name in self._assigned:
            return "assigned"
        variable = knobs()[name].variable
        return variable if variable in os.environ else "default"

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` now and after each assignment; it reads the knobs that it needs."""
        self._listeners.append(listener)
        listener()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    @contextmanager
    def scope(self, **values: object) -> Iterator[None]:
        """Assign knobs inside a ``with`` block; afterwards they are as they were.

        Args:
            **values: the knobs by name, e.g. ``policy="native"``.
        """
        before = dict(self._assigned)
        try:
            for name, value in values.items():
                setattr(self, name, value)
            yield
        finally:
            self._assigned = before
            self._tell()


def knobs() -> dict[str, Knob[object]]:
    """All knobs by name, in the order of the class."""
    return {name: knob for name, knob in vars(Config).items() if isinstance(knob, Knob)}


def warn_of_unknown_variables() -> None:
    """Warn of environment variables that are named like a knob and are none: a misspelling."""
    known = {knob.variable for knob in knobs().values()} | BUILD_VARIABLES
    for variable in sorted(os.environ.keys() - known):
        if variable.startswith("TORCH_SHARK_"):
            name = variable.removeprefix("TORCH_SHARK_").lower()
            near = get_close_matches(name, knobs(), n=1)
            meant = f"did you mean {knobs()[near[0]].variable}?" if near else "it changes nothing."
            warnings.warn(f"[shark] no knob {variable}; {meant}", stacklevel=2)


def knob_table() -> str:
    """The knobs as a table in markdown; README.md holds a copy, and a test compares the two."""
    rows = ["| variable | `config.` | default | |", "|---|---|---|---|"]
    for name, knob in knobs().items():
        rows.append(f"| `{knob.variable}` | `{name}` | {knob.shown_default} | {knob.doc} |")
    return "\n".join(rows)


config = Config()
