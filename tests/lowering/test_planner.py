"""The planner's bookkeeping: what compiles, what is found again, and what failure costs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
import torch
from checking import MemoryStore, check, in_process
from recording import record, run_plan

from torch_shark.lowering.artifact import Answer, Artifact
from torch_shark.lowering.interface import RegionInterface
from torch_shark.lowering.region import Region
from torch_shark.plan import NativeStep, RegionStep
from torch_shark.planner import Planner
from torch_shark.record import WindowRecord
from torch_shark.runtime.executable import Executable
from torch_shark.targets import Target, get_target


def test_equal_layers_share_one_executable(planner: Planner) -> None:
    def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.lgamma(torch.relu(x @ w).abs() + 1)
        return x

    run = check(planner, layers, torch.randn(3, 3), torch.randn(3, 3), native=["aten::lgamma"] * 4)
    assert run.regions == 4
    assert planner.stats.compiles == 1


def test_a_second_process_compiles_nothing(planner: Planner, store: MemoryStore) -> None:
    recording = record(lambda x: torch.hypot(x.exp() * 2.0, x).sum(), torch.randn(4))
    planner.plan(recording.record)
    again = Planner(get_target("cpu"), in_process(), Executable, store)
    run = run_plan(again.plan(recording.record), recording)
    assert again.stats.compiles == 0
    # The whole, which does not compile, and the two regions around the culprit.
    assert again.stats.disk_hits == 3
    assert run.native == ["aten::hypot"]


def test_the_key_names_what_matters(planner: Planner, store: MemoryStore) -> None:
    planner.plan(record(lambda x: x + 1, torch.randn(4)).record)
    (key,) = store.items
    names = [name for name, _ in key]
    assert names == ["region", "target", "flags", "lowering", "torch", "torch-mlir", "iree", "cpu"]


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: x - y,
        lambda x, y: x + x,
        lambda x, y: (x + y) + 1,
        lambda x, y: torch.add(x, y, alpha=2),
        lambda x, y: x.t() + y.t(),
    ],
)
def test_different_windows_have_different_keys(planner: Planner, other: Any) -> None:
    x, y = torch.randn(2, 3, 3)
    planner.plan(record(lambda x, y: x + y, x, y).record)
    planner.plan(record(other, x, y).record)
    assert planner.stats.compiles == 2


def test_storage_numbers_do_not_matter(planner: Planner) -> None:
    x, y, z = (torch.randn(3, 3) for _ in range(3))
    planner.plan(record(lambda x, y: x + y, x, y).record)
    planner.plan(record(lambda x, y, z: [torch.lgamma(z), y + x], x, y, z).record)
    assert planner.stats.compiles == 1


def test_what_nobody_needs_does_not_run(planner: Planner) -> None:
    run = check(planner, lambda x: [x.exp().sin(), x + 1][1], torch.randn(3))
    assert (run.regions, run.compiled) == (1, 1)


def test_what_may_raise_runs_even_if_nobody_needs_it(planner: Planner) -> None:
    run = check(
        planner,
        lambda x, i: [x.take(i), i // 2, x.index_select(0, i), x + 1][3],
        torch.randn(3),
        torch.tensor([0, 2]),
        native=["aten::take", "aten::floor_divide", "aten::index_select"],
    )
    assert run.compiled == 1


def test_random_numbers_stay_native_and_in_order(planner: Planner) -> None:
    recording = record(lambda x: [torch.rand_like(x) + torch.randn_like(x)], torch.randn(3))
    plan = planner.plan(recording.record)
    native = [step.entry for step in plan if isinstance(step, NativeStep)]
    assert native == sorted(native)
    assert len(native) == 2


def test_an_operator_that_does_not_lower_is_named(planner: Planner) -> None:
    recording = record(lambda x: torch.hypot(x + 1, x) * 2, torch.randn(3))
    planner.plan(recording.record)
    reasons = planner.native_reasons(recording.record)
    assert [reason is None for reason in reasons] == [True, False, True]
    assert "aten::hypot" in str(planner.stats.failures[-1])
    assert reasons[1] is not None
    assert "failed to legalize" in reasons[1]


def test_one_culprit_among_many_is_found_by_halves(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_shark.workers import worker

    compile_all = worker.compile_all
    tried: list[int] = []

    def counted(tell: Any, region: Region, *args: Any) -> None:
        tried.append(len(region.entries))
        compile_all(tell, region, *args)

    monkeypatch.setattr(worker, "compile_all", counted)

    def program(x: torch.Tensor) -> torch.Tensor:
        for size in range(1, 32):
            x = torch.hypot(x, x + 1) if size == 20 else x.roll(size, 0) * x
        return x

    recording = record(program, torch.randn(64))
    planner.plan(recording.record)
    assert sum(reason is not None for reason in planner.native_reasons(recording.record)) == 1
    assert len(tried) <= 16
    assert tried.count(1) <= 2


def test_a_region_that_does_not_load_is_split() -> None:
    def load(vmfb: bytes, interface: Any) -> Any:
        if len(interface.inputs) > 2:
            raise RuntimeError("too many bindings")
        return Executable(vmfb, interface)

    planner = Planner(get_target("cpu"), in_process(), load)
    run = check(planner, lambda x, y, z: (x + y) * z, *(torch.randn(4) for _ in range(3)))
    assert run.regions == 2
    assert "too many bindings" in str(planner.stats.failures[0])


def test_what_lowers_and_does_not_compile_runs_natively(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_shark.workers import worker

    compile_module = worker.compile_module

    def refuse_exponentials(bytecode: bytes, target: Any, in_place: Any) -> bytes:
        if b"aten.exp" in bytecode:
            raise worker.CompileError("exceeded stack allocation limit")
        return compile_module(bytecode, target, in_place)

    monkeypatch.setattr(worker, "compile_module", refuse_exponentials)
    check(planner, lambda x: (x + 1).exp() * 2, torch.randn(4), native=["aten::exp"])


def test_an_executable_of_the_store_that_does_not_load_is_split(store: MemoryStore) -> None:
    def refuse(vmfb: bytes, interface: Any) -> Any:
        raise RuntimeError("made for another machine")

    x = torch.randn(4)
    Planner(get_target("cpu"), in_process(), Executable, store).plan(
        record(lambda x: x + 1, x).record
    )
    planner = Planner(get_target("cpu"), in_process(), refuse, store)
    check(planner, lambda x: x + 1, x, native=["aten::add.Tensor"])
    assert "another machine" in str(planner.stats.failures[0])


def test_a_failed_module_is_dumped(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_shark.workers import worker

    def refuse(*_: Any) -> bytes:
        raise worker.CompileError("no such thing")

    monkeypatch.setattr(worker, "compile_module", refuse)
    planner = Planner(get_target("cpu"), in_process(tmp_path), Executable)
    planner.plan(record(lambda x: x + 1, torch.randn(3)).record)
    (dump,) = tmp_path.iterdir()
    message = str(planner.stats.failures[0])
    assert str(dump) in message
    assert "no such thing" in message
    assert "torch.aten.add" in dump.read_text()


def test_steps_respect_dependencies() -> None:
    """A random program over few tensors, some operators native, run step by step."""
    choose = random.Random(0)
    planner = Planner(get_target("cpu"), pretend, lambda *_: lambda *_: None)
    for _ in range(20):
        recording = record(_random_program(choose), *torch.randn(4, 3))
        steps = planner.plan(recording.record)
        done: list[int] = []
        for step in steps:
            if isinstance(step, NativeStep):
                done.append(step.entry)
            elif isinstance(step, RegionStep):
                done.extend(step.entries)
        _assert_order(recording.record, done)


def test_steps_keep_the_order_of_the_program_where_they_can() -> None:
    """Results that are needed late, as those of a checkpointed backward, are not made early."""

    def program(x: torch.Tensor) -> Any:
        y = torch.lgamma(torch.lgamma(x * 2) * 3)
        late = x.exp()
        return torch.lgamma(y * late) * (x * 5)

    planner = Planner(get_target("cpu"), pretend, lambda *_: lambda *_: None)
    steps = planner.plan(record(program, torch.randn(3)).record)
    done = [e for s in steps for e in (s.entries if isinstance(s, RegionStep) else (s.entry,))]
    assert done == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_windows_of_one_loop_share_their_chunks(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_shark.lowering import partition

    def loop(x: torch.Tensor, turns: int) -> torch.Tensor:
        for _ in range(turns):
            x = x + 1
        return x

    monkeypatch.setattr(partition, "MOST_ENTRIES", 4)
    for turns in (9, 8, 6, 17):
        check(planner, loop, torch.randn(3), turns)
    # Chunks of four, of one and of two.
    assert planner.stats.compiles == 3


def pretend(region: Region, targets: Sequence[Target]) -> Future[Answer]:
    """Takes every region for compiled."""
    answer: Future[Answer] = Future()
    artifact = Artifact(b"", RegionInterface((), (), ()), tuple(range(len(region.inputs))))
    answer.set_result(Answer((artifact,) * len(targets), lasting=True))
    return answer


def _random_program(choose: random.Random) -> Any:
    lines = [(choose.randrange(4), choose.randrange(4), choose.randrange(5)) for _ in range(40)]

    def program(*tensors: torch.Tensor) -> Any:
        for target, source, kind in lines:
            if kind == 0:
                tensors[target].add_(tensors[source])
            elif kind == 1:
                tensors[target].mul_(tensors[source])
            elif kind == 2:
                tensors[target].lgamma_()
            elif kind == 3:
                tensors[target].copy_(torch.hypot(tensors[source], tensors[target]).lgamma())
            else:
                tensors[target].uniform_()
        return tensors

    return program


def _assert_order(record: WindowRecord, done: list[int]) -> None:
    from torch_shark.lowering.kinds import KindTable

    table = KindTable()
    place = {entry: i for i, entry in enumerate(done)}
    accesses = []
    for entry in record.entries:
        kind, local = table.find(entry, record.storages)
        accesses.append(({local[s] for s in kind.reads}, {local[s] for s in kind.writes}))
    for later in place:
        for earlier in place:
            if earlier < later:
                (reads, writes), (before_reads, before_writes) = accesses[later], accesses[earlier]
                if writes & (before_reads | before_writes) or reads & before_writes:
                    assert place[earlier] < place[later]


def test_unknown_targets_are_named() -> None:
    with pytest.raises(ValueError, match="among: cpu; got 'tpu'"):
        get_target("tpu")


def test_a_flag_changes_the_key(store: MemoryStore) -> None:
    recording = record(lambda x: x + 1, torch.randn(4))
    target = get_target("cpu")
    other = replace(target, flags=(*target.flags, "--iree-opt-level=O1"))
    for each in (target, other):
        planner = Planner(each, in_process(), Executable, store)
        planner.plan(recording.record)
        assert planner.stats.compiles == 1


def test_a_window_that_waits_keeps_no_other_waiting() -> None:
    asked: list[tuple[Region, Sequence[Target], Future[Answer]]] = []

    def compile_later(region: Region, targets: Sequence[Target]) -> Future[Answer]:
        asked.append((region, targets, Future()))
        return asked[-1][2]

    planner = Planner(get_target("cpu"), compile_later, Executable)
    slow = planner.planning(record(lambda x: x + 1, torch.randn(4)).record)
    same = planner.planning(record(lambda x: x + 1, torch.randn(4)).record)
    other = planner.planning(record(lambda x: x - 1, torch.randn(4)).record)
    for planning in (slow, same, other):
        assert not next(planning).done()
    assert len(asked) == 2  # equal regions are one
    for region, targets, answer in reversed(asked):
        answer.set_result(in_process()(region, targets).result())
    for planning in (other, same, slow):
        with pytest.raises(StopIteration) as end:
            next(planning)
        (step,) = end.value.value
        assert isinstance(step, RegionStep)
    assert (planner.stats.compiles, planner.stats.plans) == (2, 3)
