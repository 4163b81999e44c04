"""A recorder in Python for tests: runs a function on the CPU and yields its window.

It stands in for the C++ recorder and for the plan runner, so that lowering is tested alone: a plan
is run over copies of the storages as they were before the function ran, and what is alive at the
end is compared with what the function left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_shark.lowering.operators import find_operator
from torch_shark.plan import IndexCheck, NativeStep, Step
from torch_shark.record import Entry, HostScalar, StorageInfo, TensorRef, WindowRecord

_ALIGNMENT = 64
_CODES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
_UNRECORDED = {
    "aten::detach",
    "aten::empty.memory_format",
    "aten::empty_strided",
    "aten::_to_copy",
    "aten::_local_scalar_dense",
}


@dataclass
class Recording:
    """A window, the storages' bytes before and after it, and what the function returned.

    `refs` are the references to the returned tensors, in order.
    """

    record: WindowRecord
    before: list[torch.Tensor]
    after: list[torch.Tensor]
    result: Any
    refs: list[TensorRef]


def record(
    function: Callable[..., Any], *args: Any, host: Sequence[torch.Tensor] = ()
) -> Recording:
    """Runs `function(*args)` on the CPU and records it.

    Args:
        function: returns the tensors that stay alive.
        args: its arguments.
        host: 0-d tensors that stand for CPU tensors beside the device's.
    """
    recorder = _Recorder(host)
    with recorder:
        result = function(*args)
    return recorder.finish(result)


class _Recorder(TorchDispatchMode):
    def __init__(self, host: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._host = {t.untyped_storage()._cdata for t in host}
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []
        self._infos: list[tuple[torch.Tensor, bool]] = []
        self._before: list[torch.Tensor] = []
        self._entries: list[Entry] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if tensors and all(self._is_host(t) for t in tensors):
            result = func(*args, **kwargs)
            for t in tree_leaves(result):
                if isinstance(t, torch.Tensor):
                    self._host.add(t.untyped_storage()._cdata)
                    self._kept.append(t)
            return result
        name = func._schema.name + (
            f".{func._overloadname}" if func._overloadname != "default" else ""
        )
        if self._is_view(func) or name in _UNRECORDED or not tensors:
            result = func(*args, **kwargs)
            if name == "aten::lift_fresh" and not result.dim():
                # A constant from Python: a CPU tensor beside the device's.
                self._host.add(result.untyped_storage()._cdata)
                self._kept.append(result)
            if name.startswith("aten::empty"):
                self._see(result, born=True)
            if name == "aten::_to_copy":
                self._see(result, born=True)
                self._entries.append(
                    Entry("aten::copy_", (self._ref(result), self._ref(args[0]), False), ())
                )
            return result
        operator = find_operator(name)
        assert operator is not None
        given = dict(zip(operator.arguments, args, strict=False)) | kwargs
        values = [
            given.get(a.name, a.default_value if a.has_default_value() else None)
            for a in func._schema.arguments
        ]
        recorded = tuple(self._argument(value, operator.types[i]) for i, value in enumerate(values))
        result = func(*args, **kwargs)
        outputs: tuple[TensorRef | None, ...] = ()
        if not operator.written:
            flat = tree_leaves(result)
            for value in flat:
                if value is not None:
                    self._see(value, born=True)
            outputs = tuple(None if value is None else self._ref(value) for value in flat)
        self._entries.append(Entry(name, recorded, outputs))
        return result

    def finish(self, result: Any) -> Recording:
        tensors = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        alive = {t.untyped_storage()._cdata for t in tensors}
        refs = [self._ref(t) for t in tensors]
        infos = tuple(
            StorageInfo(
                nbytes=t.untyped_storage().nbytes(),
                dtype=t.dtype,
                sizes=tuple(t.shape),
                strides=tuple(t.stride()),
                born=born,
                alive=not born or t.untyped_storage()._cdata in alive,
            )
            for t, born in self._infos
        )
        after = [_bytes(t).clone() for t, _ in self._infos]
        window = WindowRecord(tuple(self._entries), infos)
        return Recording(window, self._before, after, result, refs)

    def _is_host(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._host

    @staticmethod
    def _is_view(func: Any) -> bool:
        return any(
            r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns
        )

    def _see(self, tensor: torch.Tensor, born: bool) -> int:
        key = tensor.untyped_storage()._cdata
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            base = tensor._base if not born and tensor._base is not None else tensor
            base = (
                torch.as_strided(
                    base.detach(), (base.untyped_storage().nbytes() // base.itemsize,), (1,), 0
                )
                if not born and base.storage_offset()
                else base.detach()
            )
            self._infos.append((base, born))
            self._kept.append(tensor)
            self._before.append(_bytes(tensor).clone())
        return self._numbers[key]

    def _ref(self, tensor: torch.Tensor) -> TensorRef:
        number = self._see(tensor, born=False)
        return TensorRef(
            number,
            tensor.dtype,
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.storage_offset(),
            tensor.is_conj(),
            tensor.is_neg(),
        )

    def _argument(self, value: Any, kind: str) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._argument(item, kind) for item in value]
        if isinstance(value, torch.Tensor):
            if self._is_host(value):
                return HostScalar(value.item(), value.dtype, False)
            return self._ref(value)
        if kind.startswith("Tensor") and isinstance(value, (bool, int, float)):
            dtype = {bool: torch.bool, int: torch.int64, float: torch.float64}[type(value)]
            return HostScalar(value, dtype, True)
        if isinstance(value, torch.Generator):
            return "generator"
        if isinstance(value, (torch.dtype, torch.memory_format)):
            return _CODES[value]
        return value


class PlainBuffer:
    """Aligned memory of the CPU, as the plan runner hands it to executables."""

    def __init__(self, nbytes: int) -> None:
        room = torch.empty(nbytes + _ALIGNMENT, dtype=torch.uint8)
        start = -room.data_ptr() % _ALIGNMENT
        self.bytes = room[start : start + nbytes]
        self.address = self.bytes.data_ptr()
        self.nbytes = nbytes
        self.imported: object | None = None

    def tensor(self, ref: TensorRef) -> torch.Tensor:
        flat = torch.empty(0, dtype=ref.dtype)
        storage = self.bytes.untyped_storage()
        offset = self.bytes.storage_offset() // ref.dtype.itemsize + ref.offset
        return flat.set_(storage, offset, ref.sizes, ref.strides)


@dataclass
class Run:
    """What running a plan left in the storages, and how much of it ran compiled."""

    buffers: list[PlainBuffer]
    regions: int
    compiled: int
    in_place: int
    native: list[str]


def run_plan(
    steps: Sequence[Step], recording: Recording, window: WindowRecord | None = None
) -> Run:
    """Runs a plan over copies of the storages as they were before the window.

    Args:
        steps: the plan.
        recording: gives the storages' bytes.
        window: the window to take scalars from, if not the recording's.

    Raises:
        IndexError: a check failed.
    """
    record = window or recording.record
    buffers = []
    for info, content in zip(record.storages, recording.before, strict=True):
        buffer = PlainBuffer(info.nbytes)
        if info.born:
            buffer.bytes.fill_(0xA5)
        else:
            buffer.bytes.copy_(content)
        buffers.append(buffer)
    run = Run(buffers, 0, 0, 0, [])
    for step in steps:
        if isinstance(step, NativeStep):
            _run_native(record.entries[step.entry], buffers)
            run.native.append(record.entries[step.entry].op)
        elif not all(_in_range(check, buffers) for check in step.checks):
            for entry in step.entries:
                _run_native(record.entries[entry], buffers)
        else:
            candidate = step.candidates[0]
            targets = [
                buffers[s] if in_place else PlainBuffer(record.storages[s].nbytes)
                for s, in_place in zip(step.outputs, candidate.in_place, strict=True)
            ]
            for buffer, in_place in zip(targets, candidate.in_place, strict=True):
                if not in_place:
                    buffer.bytes.fill_(0x5A)
            scalars = [_scalar(record, slot) for slot in step.scalars]
            begin, arguments, wait = candidate.executable.prepare(
                [buffers[s] for s in candidate.inputs], targets, scalars
            )
            begin(*arguments)
            wait()
            for s, buffer in zip(step.outputs, targets, strict=True):
                buffers[s] = buffer
            run.regions += 1
            run.compiled += len(step.entries)
            run.in_place += sum(candidate.in_place)
    return run


def alive_values(run: Run, recording: Recording) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns (planned, expected) of each storage that is alive after the window."""
    pairs = []
    for info, buffer, after in zip(
        recording.record.storages, run.buffers, recording.after, strict=True
    ):
        if info.alive and info.nbytes:
            pairs.append((buffer.bytes.view(info.dtype), after.view(info.dtype)))
    return pairs


def _in_range(check: IndexCheck, buffers: list[PlainBuffer]) -> bool:
    index = buffers[check.ref.storage].tensor(check.ref)
    good = (index >= check.low) & (index < check.high)
    return bool((good | (index == check.ignored) if check.ignored is not None else good).all())


def _scalar(record: WindowRecord, slot: Any) -> Any:
    value = record.entries[slot.entry].args[slot.arg]
    if slot.item is not None:
        value = value[slot.item]
    return value.value if isinstance(value, HostScalar) else value


def _run_native(entry: Entry, buffers: list[PlainBuffer]) -> None:
    operator = find_operator(entry.op)
    assert operator is not None

    def bind(value: Any, position: int) -> Any:
        if isinstance(value, (list, tuple)):
            return [bind(item, position) for item in value]
        if isinstance(value, TensorRef):
            return buffers[value.storage].tensor(value)
        if isinstance(value, HostScalar):
            return value.value if value.wrapped else torch.tensor(value.value, dtype=value.dtype)
        return None if value == "generator" else operator.python_argument(position, value)

    args = [bind(value, i) for i, value in enumerate(entry.args)]
    results = tree_leaves(operator(*args))
    for ref, value in zip(entry.outputs, results, strict=False):
        if ref is not None and math.prod(ref.sizes):
            buffers[ref.storage].tensor(ref).copy_(value)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.detach().untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
