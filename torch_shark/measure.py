"""Where regions run under the policy `auto`: what can gain is compiled, and the faster is kept."""

from __future__ import annotations

from collections.abc import Sequence

from torch_shark import worth
from torch_shark._C import Choice
from torch_shark.decisions import NATIVE, WIDE, Decisions, way_of
from torch_shark.lowering.partition import Placed
from torch_shark.lowering.region import Region, RegionPlan
from torch_shark.record import WindowRecord
from torch_shark.store import ByteStore
from torch_shark.targets import Target


class Measured:
    """The planner's `Measure`.

    Args:
        candidates: what a region is compiled for, the safest first.
        store: keeps decisions between processes; None keeps nothing.
    """

    def __init__(self, candidates: Sequence[Target], store: ByteStore | None) -> None:
        self.decisions = Decisions(candidates, store)
        self._candidates = candidates
        self._ways: dict[bytes, str | None] = {}

    @property
    def told(self) -> Sequence[str]:
        """A sentence for each decision so far."""
        return self.decisions.told

    @property
    def targets(self) -> Sequence[Target]:
        """What a region is compiled for of which nothing is known."""
        return self._candidates

    def is_native(self, operator: str, wide: bool) -> bool:
        """Tell whether an operator runs natively without further ado."""
        return worth.belongs_to_vendor(operator, wide)

    def widens(self, record: WindowRecord, digest: bytes) -> bool | None:
        """Tell whether a window is to be planned wide; None if that is to be measured."""
        if not worth.can_widen(record):
            return False
        decided = self.decisions.find_window(digest)
        return None if decided is None else decided == WIDE

    def runs_natively(self, plan: RegionPlan, placed: Placed) -> bool:
        """Tell whether a region was found to be faster natively, or cannot gain."""
        if plan.digest not in self._ways:
            if worth.can_gain(plan, placed):
                self._ways[plan.digest] = self.decisions.find_region(plan.digest)
            else:
                self._ways[plan.digest] = NATIVE
        return self._ways[plan.digest] == NATIVE

    def candidates(self, plan: RegionPlan, placed: Placed) -> Sequence[Target]:
        """Return the candidate that was decided for, else all that may be the fastest."""
        decided = [c for c in self._candidates if way_of(c) == self._ways.get(plan.digest)]
        if worth.has_product(plan, placed):  # the others cost much to compile and gain nothing
            return decided or self._candidates[:1]
        return decided or self._candidates

    def choice(self, plan: RegionPlan, region: Region, compiled: Sequence[Target]) -> Choice | None:
        """Return what chooses between native replay and what was compiled; None if it is known."""
        if self._ways.get(plan.digest) is not None:
            return None
        return self.decisions.choose_for_region(plan.digest, region.operators(), compiled)

    def window_choice(self, record: WindowRecord, digest: bytes) -> Choice:
        """Return what chooses among native replay, the narrow plan and the wide one of a window."""
        return self.decisions.choose_for_window(digest, len(record.entries))
