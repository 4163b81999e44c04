"""The real compiler in a worker: it answers as it does in this process, and gives way to it."""

from __future__ import annotations

import pickle
import resource
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from faking import is_gone, make_region

from torch_shark.lowering.region import Region, ScalarSlot
from torch_shark.record import Entry, HostScalar, StorageInfo, TensorRef
from torch_shark.runtime import Executable
from torch_shark.targets import get_target
from torch_shark.workers import Pool, Request
from torch_shark.workers.job import Job
from torch_shark.workers.worker import compile_all

MEMORY_BYTES = 4 << 30
CPU = get_target("cpu")
UNOPTIMIZED = replace(CPU, name="unoptimized", flags=(*CPU.flags[:-1], "--iree-opt-level=O0"))


@pytest.fixture(scope="module")
def pool():
    # What is meant for this process alone: the worker would refuse to start with it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_SHARK_POLICY", "no such policy")
        patch.setenv("PYTHONWARNINGS", "error")
        pool = Pool(memory_bytes=MEMORY_BYTES, seconds=120)
        yield pool
        worker = pool._slots[0]._worker
        pool.close()
        assert is_gone(worker.pid)


@dataclass
class Buffer:
    """A NativeBuffer over a tensor's memory."""

    tensor: torch.Tensor
    imported: object = None
    address = property(lambda self: self.tensor.data_ptr())
    nbytes = property(lambda self: self.tensor.nbytes)


def run(artifact, x, dtype, scalars=()):
    """What a compiled region of one input and one output makes of a tensor."""
    result = torch.empty(x.shape, dtype=dtype)
    executable = Executable(artifact.vmfb, artifact.interface)
    executable([Buffer(x)], [Buffer(result)], scalars)
    return result


def test_candidates_are_compiled_and_right(pool, tmp_path, capfd):
    request = Request(make_region(), (CPU, UNOPTIMIZED), tmp_path)
    answer = pool.submit(request).result()
    x = torch.linspace(-2, 2, 16)
    for artifact in answer.artifacts:
        assert artifact.reason == ""
        torch.testing.assert_close(run(artifact, x, torch.float32), x.exp())
    assert answer.artifacts[0].vmfb != answer.artifacts[1].vmfb
    assert answer.lasting
    assert answer.lowering_seconds > 0
    assert answer.compiling_seconds > 0
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_worker_refuses_as_this_process_does(pool, tmp_path, capfd):
    region = make_region("aten::digamma")
    job = Job(Request(region, (CPU, UNOPTIMIZED), tmp_path))
    compile_all(lambda kind, payload: job.take(kind, payload, 0), *pickle.loads(job.message()))
    job.answer(lasting=True)
    refused = job.future.result()
    (dump,) = tmp_path.iterdir()
    dump.unlink()
    answer = pool.submit(Request(region, (CPU, UNOPTIMIZED), tmp_path)).result()
    assert answer.artifacts == refused.artifacts
    assert answer.artifacts[0].reason.startswith("[shark] compilation failed for aten::digamma")
    assert answer.lasting
    assert dump.exists()
    assert capfd.readouterr() == ("", "")


def test_a_worker_has_the_default_dtype_of_the_request(pool):
    dtypes = (torch.int32, torch.float64)
    refs = [TensorRef(i, dtype, (16,), (1,), 0) for i, dtype in enumerate(dtypes)]
    tenth = HostScalar(0.1, torch.float64, wrapped=True)
    region = Region(
        (Entry("aten::mul.Tensor", (refs[0], tenth), (refs[1],)),),
        tuple(
            StorageInfo(16 * r.dtype.itemsize, r.dtype, (16,), (1,), r is refs[1], r is refs[1])
            for r in refs
        ),
        (0,),
        (1,),
        (),
        ((ScalarSlot(entry=0, arg=1, item=None), "f64"),),
    )
    torch.set_default_dtype(torch.float64)
    try:
        request = Request(region, (CPU,))
    finally:
        torch.set_default_dtype(torch.float32)
    (artifact,) = pool.submit(request).result().artifacts
    x = torch.arange(16, dtype=torch.int32)
    assert torch.equal(run(artifact, x, torch.float64, [0.1]), x.double() * 0.1)


def test_a_worker_is_modest(pool):
    pool.submit(Request(make_region(), (CPU,))).result()
    process = Path(f"/proc/{pool._slots[0]._worker.pid}")
    assert int((process / "stat").read_text().rpartition(")")[2].split()[16]) >= 10  # niceness
    assert (process / "oom_score_adj").read_text() == "1000\n"
    limits = (process / "limits").read_text().splitlines()
    soft = {line[:26].strip(): line[26:].split()[0] for line in limits}
    assert soft["Max data size"] == str(MEMORY_BYTES)
    assert soft["Max core file size"] == "0"
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] != MEMORY_BYTES
    assert (process / "fd" / "0").readlink() == Path("/dev/null")


def test_the_bound_of_memory_holds():
    pool = Pool(memory_bytes=64 << 20, seconds=60)
    answer = pool.submit(Request(make_region(), (CPU,))).result()
    pool.close()
    assert "its worker does not start" in answer.artifacts[0].reason
    assert not answer.lasting
