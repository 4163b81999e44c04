"""Plans: what runs natively and what compiled, in which order, for one window.

Planning looks regions up by their digest, so equal layers share one executable, and a process that
finds its regions in the store traces nothing.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from torch_shark.lowering.artifact import Artifact, LoweringError
from torch_shark.lowering.interface import RegionInterface
from torch_shark.lowering.kinds import KindTable
from torch_shark.lowering.partition import Placed, Uses, find_live, find_uses, partition
from torch_shark.lowering.region import (
    RegionPlan,
    ScalarSlot,
    extract,
    place_region,
    scalar_slots,
    single_entry,
)
from torch_shark.record import TensorRef, WindowRecord
from torch_shark.targets import Target

KeyParts = list[tuple[str, str]]


class ByteStore(Protocol):
    """Where executables are kept between processes. An unreadable item is a miss."""

    def get(self, key_parts: KeyParts) -> bytes | None:
        """Return the bytes stored under a key, or None."""

    def put(self, key_parts: KeyParts, data: bytes) -> None:
        """Store bytes under a key."""


class Executable(Protocol):
    """A loaded region."""

    def __call__(self, inputs: list[Any], outputs: list[Any], scalars: list[Any]) -> None:
        """Run it over buffers, writing the outputs."""


@dataclass(frozen=True, slots=True)
class NativeStep:
    """Replay one entry on the native device."""

    entry: int


@dataclass(frozen=True, slots=True)
class CheckStep:
    """Every integer of `ref` must satisfy `low <= i < high` or equal `ignored`, else IndexError.

    It comes before the region that holds `entry`, the entry that uses the index.
    """

    ref: TensorRef
    low: int
    high: int
    entry: int
    ignored: int | None = None


@dataclass(frozen=True, slots=True)
class RegionStep:
    """Run an executable over whole storages.

    Each output is written into a fresh buffer of the storage's size, which then becomes the
    storage's. A scalar's value is found in the window by its slot.
    """

    executable: Executable
    entries: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scalars: tuple[ScalarSlot, ...]


Step = NativeStep | CheckStep | RegionStep


@dataclass(slots=True)
class PlannerStats:
    """What planning has done so far; times in seconds.

    `failures` tells for each region or entry that did not compile what the compiler said.
    `misses` names the regions that had to be compiled, by digest and operators.
    """

    plans: int = 0
    memory_hits: int = 0
    disk_hits: int = 0
    compiles: int = 0
    lowering_seconds: float = 0.0
    compiling_seconds: float = 0.0
    failures: list[LoweringError] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Loaded:
    executable: Executable
    used_inputs: tuple[int, ...]


class Planner:
    """Makes plans for windows on one target. Not safe for several threads at a time.

    Args:
        target: what to compile for.
        load: turns an executable's bytes and interface into something callable.
        store: keeps executables between processes; None keeps nothing.
        dump_folder: where the MLIR of what did not compile is saved; None saves nothing.
    """

    def __init__(
        self,
        target: Target,
        load: Callable[[bytes, RegionInterface], Executable],
        store: ByteStore | None = None,
        dump_folder: Path | None = None,
    ) -> None:
        self.stats = PlannerStats()
        self._target = target
        self._load = load
        self._store = store
        self._dump_folder = dump_folder
        self._kinds = KindTable()
        self._loaded: dict[bytes, _Loaded | None] = {}
        self._unsupported: dict[bytes, str] = {}
        self._lowers: set[bytes] = set()

    def plan(self, record: WindowRecord) -> list[Step]:
        """Returns the steps of a window, compiling what is not yet known."""
        self.stats.plans += 1
        found = [self._kinds.find(entry, record.storages) for entry in record.entries]
        kinds = [kind for kind, _ in found]
        numbers = [local for _, local in found]
        live = find_live(record, kinds, numbers)
        while True:
            native = [k.native is not None or k.digest in self._unsupported for k in kinds]
            placed = Placed(record, kinds, numbers, native, live)
            steps = self._steps(placed)
            if steps is not None:
                return steps

    def native_reasons(self, record: WindowRecord) -> list[str | None]:
        """Returns for each entry why it runs natively, or None where it is compiled."""
        kinds = [self._kinds.find(entry, record.storages)[0] for entry in record.entries]
        return [kind.native or self._unsupported.get(kind.digest) for kind in kinds]

    def _steps(self, placed: Placed) -> list[Step] | None:
        """The steps, or None if an entry proved unsupported: then the partition is another."""
        uses = find_uses(placed)
        known = len(self._unsupported)
        steps: list[Step] = []
        for group in partition(placed):
            if group.native:
                steps.append(NativeStep(group.entries[0]))
                continue
            pending = [group.entries]
            while pending:
                entries = pending.pop()
                plan = place_region(entries, placed, uses)
                loaded = self._find(plan, placed, uses)
                if loaded is not None:
                    steps.extend(_checks(plan, placed))
                    steps.append(_region_step(plan, placed, loaded))
                elif len(self._unsupported) != known:
                    return None
                else:
                    half = len(entries) // 2
                    pending += [entries[half:], entries[:half]]
        return steps

    def _find(self, plan: RegionPlan, placed: Placed, uses: Sequence[Uses]) -> _Loaded | None:
        """The region's executable, or None if it does not compile."""
        if plan.digest in self._loaded:
            self.stats.memory_hits += 1
            return self._loaded[plan.digest]
        stored = self._store.get(self._key("region", plan.digest)) if self._store else None
        artifact = Artifact.from_bytes(stored) if stored is not None else None
        if artifact is None:
            loaded = self._compile(plan, placed)
        else:
            self.stats.disk_hits += 1
            loaded = self._load_artifact(artifact, plan, placed)
        self._loaded[plan.digest] = loaded
        if loaded is None:
            self._blame(plan, placed, uses)
        return loaded

    def _compile(self, plan: RegionPlan, placed: Placed) -> _Loaded | None:
        # The compiler is loaded by the first region that needs it.
        from torch_shark.lowering.lower import lower_region

        region = extract(plan, placed)
        self.stats.misses.append(f"{plan.digest.hex()}: {region.operators()}")
        self.stats.compiles += 1
        loaded = None
        try:
            artifact, seconds = lower_region(region, self._target, self._dump_folder)
            self.stats.lowering_seconds += seconds.lowering
            self.stats.compiling_seconds += seconds.compiling
            loaded = self._load_artifact(artifact, plan, placed)
        except LoweringError as error:
            self.stats.failures.append(error)
        if loaded is None:
            artifact = Artifact.failed(str(self.stats.failures[-1]))
        if self._store is not None:
            self._store.put(self._key("region", plan.digest), artifact.to_bytes())
        return loaded

    def _load_artifact(
        self, artifact: Artifact, plan: RegionPlan, placed: Placed
    ) -> _Loaded | None:
        """The executable; None if the region does not compile, or IREE refuses to load it."""
        if artifact.interface is None:
            return None
        try:
            executable = self._load(artifact.vmfb, artifact.interface)
        except Exception as error:  # IREE finds some faults of a region only when it is loaded
            self.stats.failures.append(LoweringError("loading", extract(plan, placed), str(error)))
            return None
        return _Loaded(executable, artifact.used_inputs)

    def _blame(self, plan: RegionPlan, placed: Placed, uses: Sequence[Uses]) -> None:
        """Finds the entries of a failed region that do not lower by themselves."""
        if len(plan.entries) == 1:
            # Alone, an entry has no other to blame: it is compiled to the end.
            reason = self._reason(plan.entries[0], placed, whole=True)
            digest = placed.kinds[plan.entries[0]].digest
            self._unsupported[digest] = reason or "it compiles alone, but not as it is used here"
        else:
            self._search(plan.entries, placed, uses)

    def _search(self, entries: tuple[int, ...], placed: Placed, uses: Sequence[Uses]) -> None:
        """Halves what does not lower; what lowers together is free of blame."""
        unknown = {placed.kinds[e].digest for e in entries} - self._unsupported.keys()
        unknown -= self._lowers
        if not unknown:
            return
        if len(entries) == 1:
            reason = self._reason(entries[0], placed, whole=False)
            if reason:
                self._unsupported[placed.kinds[entries[0]].digest] = reason
            else:
                self._lowers |= unknown
            return
        plan = place_region(entries, placed, uses)
        if not self._refusal(plan.digest, plan, placed, whole=False):
            self._lowers |= unknown
        else:
            half = len(entries) // 2
            self._search(entries[:half], placed, uses)
            self._search(entries[half:], placed, uses)

    def _reason(self, entry: int, placed: Placed, whole: bool) -> str:
        """Why an entry does not lower, or does not compile as a whole; empty if it does."""
        plan = single_entry(entry, placed)
        return self._refusal(placed.kinds[entry].digest, plan, placed, whole)

    def _refusal(self, digest: bytes, plan: RegionPlan, placed: Placed, whole: bool) -> str:
        """What the compiler says against a region; empty if it lowers, or compiles as a whole.

        The answer is stored under `digest`, so that a later process need not ask.
        """
        key = self._key("whole entry" if whole else "entries", digest)
        stored = self._store.get(key) if self._store else None
        if stored is not None:
            return stored.decode()
        from torch_shark.lowering.lower import check_lowers

        reason = ""
        try:
            check_lowers(extract(plan, placed), self._target, whole)
        except LoweringError as error:
            self.stats.failures.append(error)
            reason = str(error)
        if self._store is not None:
            self._store.put(key, reason.encode())
        return reason

    def _key(self, what: str, digest: bytes) -> KeyParts:
        return [(what, digest.hex()), *_environment(self._target)]


def _region_step(plan: RegionPlan, placed: Placed, loaded: _Loaded) -> RegionStep:
    return RegionStep(
        executable=loaded.executable,
        entries=plan.entries,
        inputs=tuple(plan.inputs[i] for i in loaded.used_inputs),
        outputs=plan.outputs,
        scalars=scalar_slots(plan, placed),
    )


def _checks(plan: RegionPlan, placed: Placed) -> list[CheckStep]:
    """One check for each index that enters the region."""
    checks: dict[CheckStep, None] = {}
    for e in plan.entries:
        for _, limit in placed.kinds[e].limits:
            values = placed.record.entries[e].args[limit.arg]
            ref = values if limit.item is None else values[limit.item]
            checks[CheckStep(ref, limit.low, limit.high, e, limit.ignored)] = None
    return list(checks)


@cache
def _environment(target: Target) -> tuple[tuple[str, str], ...]:
    """The parts of a key that are the same for all regions of a target on this machine."""
    sources = Path(__file__).parent
    ours = hashlib.blake2b(digest_size=16)
    for source in sorted([sources / "targets.py", *(sources / "lowering").glob("*.py")]):
        ours.update(source.read_bytes())
    return (
        ("target", target.name),
        ("flags", " ".join(target.flags)),
        ("lowering", ours.hexdigest()),
        ("torch", version("torch")),
        ("torch-mlir", version("torch-mlir")),
        ("iree", version("iree-base-compiler")),
        ("cpu", _cpu_features() if target.host_features else ""),
    )


def _cpu_features() -> str:
    """What the compiler makes of `host`: the machine and its CPU's features."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    features = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    named = " ".join(sorted(features[1].split())) if features is not None else ""
    return f"{platform.machine()} {hashlib.blake2b(named.encode(), digest_size=8).hexdigest()}"
