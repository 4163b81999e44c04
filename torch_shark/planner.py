"""The planner: finds or has made the executables of a window's regions, and orders its steps.

Regions are looked up by their digest, so equal layers share one executable, and a process that
finds its regions in the store traces nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from torch_shark.environment import environment
from torch_shark.families import AnySize, Families
from torch_shark.lowering.artifact import Answer, Artifact, LoweringError
from torch_shark.lowering.interface import RegionInterface
from torch_shark.lowering.kinds import EntryKind, KindTable
from torch_shark.lowering.partition import Placed, Uses, find_live, find_uses, partition
from torch_shark.lowering.region import (
    Region,
    RegionPlan,
    extract,
    place_region,
    scalar_slots,
    single_entry,
)
from torch_shark.plan import Candidate, Executable, IndexCheck, NativeStep, RegionStep, Step
from torch_shark.record import WindowRecord
from torch_shark.store import ByteStore, KeyParts
from torch_shark.targets import Target

if TYPE_CHECKING:
    from torch_shark._C import Choice


T = TypeVar("T")

# Compiles a region for each of some targets.
Compile = Callable[[Region, Sequence[Target]], Future[Answer]]
# Work that goes on when what it yields has its result.
Waiting = Generator[Future[Answer], None, T]


class Measure(Protocol):
    """What decides by measurement where a region runs."""

    @property
    def told(self) -> Sequence[str]:
        """A sentence for each decision so far."""

    def is_native(self, operator: str, wide: bool) -> bool:
        """Tell whether an operator runs natively without further ado, in a wide plan or another."""

    def widens(self, record: WindowRecord, digest: bytes) -> bool | None:
        """Tell whether a window is to be planned wide; None if that is to be measured."""

    def window_choice(self, record: WindowRecord, digest: bytes) -> Choice:
        """Return what chooses among native replay, the narrow plan and the wide one of a window."""

    @property
    def targets(self) -> Sequence[Target]:
        """What a region is compiled for of which nothing is known."""

    def runs_natively(self, plan: RegionPlan, placed: Placed) -> bool:
        """Tell whether a region is known to run natively, or cannot gain."""

    def candidates(self, plan: RegionPlan, placed: Placed) -> Sequence[Target]:
        """Return what to compile a region for."""

    def choice(self, plan: RegionPlan, region: Region, compiled: Sequence[Target]) -> Choice | None:
        """Return what chooses between native replay and what was compiled; None if it is known."""


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

    def add(self, other: PlannerStats) -> None:
        """Add another planner's counts to these."""
        for counter in fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))


@dataclass(frozen=True, slots=True)
class _Loaded:
    executables: tuple[tuple[Executable, RegionInterface], ...]
    choice: Choice | None


class Planner:
    """Makes plans for windows. Not safe for several threads at a time.

    Args:
        target: what to compile for.
        compile_region: compiles.
        load: turns an executable's bytes and interface into something callable.
        store: keeps executables between processes; None keeps nothing.
        measure: finds out what is worth compiling; None compiles all that can be.
        any_size: whether regions that differ in one size are compiled once, for any; else each.
    """

    def __init__(
        self,
        target: Target,
        compile_region: Compile,
        load: Callable[[bytes, RegionInterface], Executable],
        store: ByteStore | None = None,
        measure: Measure | None = None,
        any_size: bool = False,
    ) -> None:
        self.stats = PlannerStats()
        self._target = target
        self._compile = compile_region
        self._load = load
        self._store = store
        self._measure = measure
        self._kinds = KindTable()
        self._loaded: dict[bytes, _Loaded | None] = {}
        self._compiling: dict[bytes, Future[Answer]] = {}
        self._fresh: set[bytes] = set()  # what is not from the store
        self._given_up: set[bytes] = set()  # what a worker was lost over
        targets = (target,) if measure is None else measure.targets
        self._families = (
            Families(partial(self._found, targets), compile_region, targets) if any_size else None
        )
        self._sized: dict[bytes, tuple[AnySize, int]] = {}  # what one of any size stands for
        self._unlike: set[bytes] = set()  # for what it does not
        self._unsupported: dict[bytes, str] = {}
        self._blameless: set[bytes] = set()

    def plan(self, record: WindowRecord) -> list[Step]:
        """Return the steps of a window, compiling what is not yet known and waiting for it."""
        planning = self.planning(record)
        while True:
            try:
                next(planning).result()
            except StopIteration as end:
                steps: list[Step] = end.value
                return steps

    def planning(self, record: WindowRecord) -> Waiting[list[Step]]:
        """Make the steps of a window; others may be made while this waits for the compiler."""
        self.stats.plans += 1
        window = self._lay_out(record)
        wide = self._measure is not None and self._measure.widens(record, _name(window)) is True
        return (yield from self._plan(window, wide))

    def widening(self, record: WindowRecord) -> Waiting[tuple[list[Step], Choice] | None]:
        """Make other steps of a window: with products in regions.

        Returns the steps, and what chooses among native replay, those of `planning`, and these;
        None if there is nothing to choose.
        """
        window = self._lay_out(record)
        if self._measure is None or self._measure.widens(record, _name(window)) is not None:
            return None
        steps = yield from self._plan(window, wide=True)
        if all(isinstance(step, NativeStep) for step in steps):
            return None
        return steps, self._measure.window_choice(record, _name(window))

    def _lay_out(self, record: WindowRecord) -> Placed:
        """A window with what is known of its entries, none of them native yet."""
        found = [self._kinds.find(entry, record.storages) for entry in record.entries]
        kinds = [kind for kind, _ in found]
        numbers = [local for _, local in found]
        native = [False] * len(kinds)
        return Placed(record, kinds, numbers, native, find_live(record, kinds, numbers))

    def _plan(self, window: Placed, wide: bool) -> Waiting[list[Step]]:
        products: list[bool] = []  # and what else narrow regions have not
        if wide and self._measure is not None:
            operators = [entry.op for entry in window.record.entries]
            products = [self._measure.is_native(operator, False) for operator in operators]
        while True:
            native = [
                self._native_reason(window.record, e, kind, wide) is not None
                for e, kind in enumerate(window.kinds)
            ]
            steps = yield from self._steps(replace(window, native=native, products=products))
            if steps is not None:
                return steps

    @property
    def decisions(self) -> Sequence[str]:
        """A sentence for each region that was measured and decided."""
        return () if self._measure is None else self._measure.told

    def native_reasons(self, record: WindowRecord) -> list[str | None]:
        """Return for each entry why it runs natively, or None where it is compiled."""
        kinds = [self._kinds.find(entry, record.storages)[0] for entry in record.entries]
        return [self._native_reason(record, e, kind, False) for e, kind in enumerate(kinds)]

    def _native_reason(
        self, record: WindowRecord, entry: int, kind: EntryKind, wide: bool
    ) -> str | None:
        if kind.native is not None:
            return kind.native
        if self._measure is not None and self._measure.is_native(record.entries[entry].op, wide):
            return "the native kernel is faster"
        return self._unsupported.get(kind.digest)

    def _steps(self, placed: Placed) -> Waiting[list[Step] | None]:
        """The steps, or None if an entry proved unsupported: then the partition is another."""
        uses = find_uses(placed)
        known = len(self._unsupported)
        steps: list[Step] = []
        groups = [
            (group, None if group.native else place_region(group.entries, placed, uses))
            for group in partition(placed)
        ]
        self._compile_ahead([plan for _, plan in groups if plan is not None], placed)
        for group, region in groups:
            if region is None:
                steps.append(NativeStep(group.entries[0]))
                continue
            pending = [region]
            while pending:
                plan = pending.pop()
                if self._runs_natively(plan, placed):
                    steps.extend(map(NativeStep, plan.entries))
                    continue
                loaded = yield from self._find(plan, placed, uses)
                if loaded is not None:
                    steps.append(_region_step(plan, placed, loaded))
                elif plan.digest in self._given_up:
                    steps.extend(map(NativeStep, plan.entries))
                elif len(self._unsupported) != known:
                    return None
                else:
                    half = len(plan.entries) // 2
                    for entries in (plan.entries[half:], plan.entries[:half]):
                        pending.append(place_region(entries, placed, uses))
        return steps

    def _runs_natively(self, plan: RegionPlan, placed: Placed) -> bool:
        # What gives nothing is there to raise; IREE would end it before runs that began earlier.
        if plan.digest in self._given_up or not (plan.outputs or plan.parts):
            return True
        return self._measure is not None and self._measure.runs_natively(plan, placed)

    def _compile_ahead(self, plans: Iterable[RegionPlan], placed: Placed) -> None:
        """Begin with all that is to be compiled, so that it is done side by side."""
        for plan in plans:
            if plan.digest not in self._loaded and not self._runs_natively(plan, placed):
                self._begin(plan, placed)

    def _begin(self, plan: RegionPlan, placed: Placed) -> Future[Answer]:
        """The answer to come of a region, from the store or from the compiler."""
        if plan.digest not in self._compiling:
            stored = self._stored("region", self._candidates(plan, placed), plan.digest)
            if stored is None:
                answer = self._ask(plan, placed)
            else:
                self.stats.disk_hits += 1
                answer = Future()
                answer.set_result(stored)
            self._compiling[plan.digest] = answer
        return self._compiling[plan.digest]

    def _candidates(self, plan: RegionPlan, placed: Placed) -> Sequence[Target]:
        return (self._target,) if self._measure is None else self._measure.candidates(plan, placed)

    def _ask(self, plan: RegionPlan, placed: Placed) -> Future[Answer]:
        """The compiler's answer to come: of the region, or of the one that stands for it."""
        region = extract(plan, placed)
        if self._families is not None and plan.digest not in self._unlike:
            found = self._families.place(region)
            if found is not None:
                self._sized[plan.digest] = found
                return found[0].answer
        candidates = self._candidates(plan, placed)
        if self._families is not None and not self._families.may_compile(region):
            refused: Future[Answer] = Future()
            reason = f"[shark] no more sizes are compiled of {region.operators()}"
            refused.set_result(Answer((Artifact.failed(reason),) * len(candidates), lasting=False))
            return refused
        self._fresh.add(plan.digest)
        return self._compile(region, candidates)

    def _found(self, targets: Sequence[Target], family: bytes) -> Answer | None:
        """A family's region of any size, as an earlier process had it compiled."""
        answer = self._stored("sizes", targets, family)
        self.stats.disk_hits += answer is not None
        return answer

    def _stored(self, what: str, targets: Sequence[Target], digest: bytes) -> Answer | None:
        """What an earlier process had compiled, if it is all there."""
        artifacts = []
        for target in targets:
            data = self._store.get(self._key(what, digest, target)) if self._store else None
            artifact = Artifact.from_bytes(data) if data is not None else None
            if artifact is None:
                return None
            artifacts.append(artifact)
        return Answer(tuple(artifacts), lasting=True)

    def _find(
        self, plan: RegionPlan, placed: Placed, uses: Sequence[Uses]
    ) -> Waiting[_Loaded | None]:
        """The region's executables, or None if none of them is there."""
        if plan.digest in self._loaded:
            self.stats.memory_hits += 1
            return self._loaded[plan.digest]
        future = self._begin(plan, placed)
        yield future
        if plan.digest in self._loaded:  # by another window that waited for it
            return self._loaded[plan.digest]
        answer = future.result()
        del self._compiling[plan.digest]
        self.stats.lowering_seconds += answer.lowering_seconds
        self.stats.compiling_seconds += answer.compiling_seconds
        loaded = self._load_all(answer, plan, placed)
        if loaded is None and plan.digest in self._sized:
            self._unlike.add(plan.digest)
            del self._sized[plan.digest]
            return (yield from self._find(plan, placed, uses))
        self._loaded[plan.digest] = loaded
        if loaded is None and not answer.lasting:
            self._given_up.add(plan.digest)
        elif loaded is None:
            yield from self._blame(plan, placed, uses)
        return loaded

    def _load_all(self, answer: Answer, plan: RegionPlan, placed: Placed) -> _Loaded | None:
        region = extract(plan, placed)
        candidates = self._candidates(plan, placed)
        any_size, size = self._sized.get(plan.digest, (None, None))
        if any_size is None:
            artifacts = list(zip(candidates, answer.artifacts, strict=True))
            if plan.digest in self._fresh:
                self._keep("region", plan.digest, region, answer, artifacts)
        else:
            artifacts = list(zip(any_size.targets, answer.artifacts, strict=True))
            if not any_size.stored:
                any_size.stored = True
                any_size.refused = all(artifact.interface is None for _, artifact in artifacts)
                self._keep("sizes", any_size.family, region, answer, artifacts)
        targets, executables = [], []
        for target, artifact in artifacts:
            if target not in candidates:
                continue
            try:
                executables.append(self._load_one(artifact, region, size))
            except LoweringError as error:
                self.stats.failures.append(error)
            else:
                targets.append(target)
        if not executables:
            return None
        choice = None
        if self._measure is not None:
            choice = self._measure.choice(plan, region, targets)
        return _Loaded(tuple(executables), choice)

    def _keep(
        self,
        what: str,
        digest: bytes,
        region: Region,
        answer: Answer,
        artifacts: Iterable[tuple[Target, Artifact]],
    ) -> None:
        """Counts and stores what the compiler has answered."""
        self.stats.misses.append(f"{digest.hex()}: {region.operators()}")
        self.stats.compiles += 1
        if answer.lasting and self._store is not None:
            for target, artifact in artifacts:
                self._store.put(self._key(what, digest, target), artifact.to_bytes())

    def _load_one(
        self, artifact: Artifact, region: Region, size: int | None
    ) -> tuple[Executable, RegionInterface]:
        """The executable, and how it is called.

        Raises:
            LoweringError: the region did not compile, or not for its size, or IREE refuses to load
                it.
        """
        interface = artifact.interface
        if interface is None:
            raise LoweringError.again(artifact.reason)
        if size is not None:
            if not interface.covers(size):
                raise LoweringError("lowering", region, f"not for size {size}: {interface.guard}")
            interface = interface.bound(size)
        try:
            return self._load(artifact.vmfb, interface), interface
        except Exception as error:  # IREE finds some faults of a region only when it is loaded
            raise LoweringError("loading", region, str(error)) from error

    def _blame(self, plan: RegionPlan, placed: Placed, uses: Sequence[Uses]) -> Waiting[None]:
        """Finds the entries of a failed region that do not compile by themselves."""
        if len(plan.entries) == 1:
            reason = yield from self._reason(plan.entries[0], placed)
            digest = placed.kinds[plan.entries[0]].digest
            self._unsupported[digest] = reason or "it compiles alone, but not as it is used here"
        else:
            yield from self._search(plan.entries, placed, uses)

    def _search(
        self, entries: tuple[int, ...], placed: Placed, uses: Sequence[Uses]
    ) -> Waiting[None]:
        """Halves what does not compile; what compiles together is free of blame."""
        unknown = {placed.kinds[e].digest for e in entries} - self._unsupported.keys()
        unknown -= self._blameless
        if not unknown:
            return
        if len(entries) == 1:
            reason = yield from self._reason(entries[0], placed)
            if reason:
                self._unsupported[placed.kinds[entries[0]].digest] = reason
            else:
                self._blameless |= unknown
            return
        plan = place_region(entries, placed, uses)
        if not (yield from self._refusal(plan.digest, plan, placed)):
            self._blameless |= unknown
        else:
            half = len(entries) // 2
            yield from self._search(entries[:half], placed, uses)
            yield from self._search(entries[half:], placed, uses)

    def _reason(self, entry: int, placed: Placed) -> Waiting[str]:
        """Why an entry does not compile by itself; empty if it does."""
        alone = single_entry(entry, placed)
        return (yield from self._refusal(placed.kinds[entry].digest, alone, placed))

    def _refusal(self, digest: bytes, plan: RegionPlan, placed: Placed) -> Waiting[str]:
        """What the compiler says against a region; empty if it compiles.

        The answer is stored under `digest`, so that a later process need not ask.
        """
        key = self._key("entries", digest, self._target)
        stored = self._store.get(key) if self._store else None
        if stored is not None:
            return stored.decode()
        asked = self._compile(extract(plan, placed), (self._target,))
        yield asked
        answer = asked.result()
        reason = answer.artifacts[0].reason
        if reason:
            self.stats.failures.append(LoweringError.again(reason))
        if answer.lasting and self._store is not None:
            self._store.put(key, reason.encode())
        return reason

    def _key(self, what: str, digest: bytes, target: Target) -> KeyParts:
        return [(what, digest.hex()), *environment(target)]


def _name(window: Placed) -> bytes:
    """A window's name: the digest of the region that all that has to run would be."""
    entries = tuple(e for e, live in enumerate(window.live) if live)
    return place_region(entries, window, find_uses(window)).digest


def _region_step(plan: RegionPlan, placed: Placed, loaded: _Loaded) -> RegionStep:
    candidates = tuple(
        Candidate(
            executable,
            inputs=tuple(plan.inputs[i] for i in interface.used_inputs),
            in_place=tuple(i in interface.in_place for i in range(len(plan.outputs))),
        )
        for executable, interface in loaded.executables
    )
    return RegionStep(
        candidates=candidates,
        choice=loaded.choice,
        checks=_checks(plan, placed),
        entries=plan.entries,
        outputs=plan.outputs,
        parts=plan.parts,
        scalars=scalar_slots(plan, placed),
        digest=plan.digest.hex(),
    )


def _checks(plan: RegionPlan, placed: Placed) -> tuple[IndexCheck, ...]:
    """One check for each index that enters the region."""
    checks: dict[IndexCheck, None] = {}
    for e in plan.entries:
        for _, limit in placed.kinds[e].limits:
            values = placed.record.entries[e].args[limit.arg]
            ref = values if limit.item is None else values[limit.item]
            checks[IndexCheck(ref, limit.low, limit.high, limit.ignored)] = None
    return tuple(checks)
