"""What becomes of requests, whatever their worker does."""

from __future__ import annotations

import os
import signal
import time

import pytest
from faking import MLIR, is_gone, make_region

from torch_shark.workers import Pool, slot


def test_targets_are_answered_in_one_worker(fakes):
    fake = fakes("answer")
    futures = [fake.pool.submit(fake.request(targets)) for targets in (2, 1, 3)]
    answers = [future.result() for future in futures]
    assert [len(answer.artifacts) for answer in answers] == [2, 1, 3]
    for answer in answers:
        assert answer.lasting
        assert {(a.vmfb, a.interface.function, a.reason) for a in answer.artifacts} == {
            (b"vmfb", "f", "")
        }
    assert fake.counts() == (3, 1, 0, 0)
    assert not fake.dumps.exists()


def test_nothing_starts_before_a_request(fakes):
    fake = fakes("answer")
    fake.pool.close()
    assert (fake.pids(), fake.counts()) == ([], (0, 0, 0, 0))


def test_a_refused_target_says_why_and_the_others_are_compiled(fakes):
    fake = fakes("refuse_one")
    answer = fake.pool.submit(fake.request(3)).result()
    (dump,) = fake.dumps.iterdir()
    assert dump.read_bytes() == MLIR
    assert [a.reason for a in answer.artifacts] == [
        f"[shark] compilation failed for aten::exp:\nnot this one\nThe MLIR is saved at {dump}",
        "",
        "",
    ]
    assert answer.lasting
    assert fake.counts() == (1, 1, 0, 0)


def test_a_refused_region_fails_for_all_targets(fakes):
    fake = fakes("refuse")
    answer = fake.pool.submit(fake.request(2)).result()
    expected = "[shark] tracing failed for aten::exp:\nnot this region"
    assert [a.reason for a in answer.artifacts] == [expected] * 2
    assert answer.lasting
    assert fake.counts() == (1, 1, 0, 0)


def test_a_crash_costs_its_request_and_its_worker(fakes):
    fake = fakes("segv", "answer")
    lost, well = (fake.pool.submit(fake.request(3)) for _ in range(2))
    artifacts = lost.result().artifacts
    (dump,) = fake.dumps.iterdir()
    assert dump.read_bytes() == MLIR
    reason = (
        "[shark] the compiler crashed (signal 11, SIGSEGV) in compilation of aten::exp; "
        f"the MLIR is saved at {dump}; it printed last: free(): invalid pointer"
    )
    assert [a.reason for a in artifacts] == ["", reason, reason]
    assert lost.result().lasting
    assert [a.reason for a in well.result().artifacts] == [""] * 3
    assert fake.counts() == (2, 2, 1, 0)
    first, second = fake.pids()
    assert is_gone(first)
    os.kill(second, 0)


# The first worker's behaviour; what is said of it, whether that lasts, whether there is MLIR.
ENDINGS = {
    "exit_139": ("the compiler crashed (signal 11, SIGSEGV) in compilation", True, True),
    "crash_in_tracing": ("the compiler crashed (signal 11, SIGSEGV) in tracing", True, False),
    "garbage": ("the compiler's process sent garbage in tracing", False, False),
    "no_artifact": ("the compiler's process sent garbage in compilation", False, True),
    "too_early": ("the compiler's process sent garbage in tracing", False, False),
}


@pytest.mark.parametrize("behaviour", ENDINGS)
def test_a_worker_that_goes_wrong_is_replaced(fakes, behaviour):
    said, lasting, dumped = ENDINGS[behaviour]
    fake = fakes(behaviour, "answer")
    lost, well = (fake.pool.submit(fake.request()) for _ in range(2))
    (artifact,) = lost.result().artifacts
    assert artifact.reason.startswith(f"[shark] {said} of aten::exp")
    assert "\n" not in artifact.reason
    assert lost.result().lasting == lasting
    dumps = list(fake.dumps.iterdir()) if fake.dumps.exists() else []
    assert len(dumps) == dumped
    assert all(str(dump) in artifact.reason for dump in dumps)
    assert well.result().artifacts[0].reason == ""
    assert fake.counts() == (2, 2, 1, 0)
    assert is_gone(fake.pids()[0])


def test_a_compiler_that_hangs_is_killed(fakes):
    fake = fakes("hang", "answer", seconds=1.0)
    lost, well = (fake.pool.submit(fake.request()) for _ in range(2))
    (artifact,) = lost.result().artifacts
    (dump,) = fake.dumps.iterdir()
    assert artifact.reason == (
        "[shark] the compiler took more than 1 s in compilation of aten::exp; "
        f"the MLIR is saved at {dump}"
    )
    assert not lost.result().lasting
    assert is_gone(fake.pids()[0])
    assert well.result().artifacts[0].reason == ""
    assert fake.counts() == (2, 2, 0, 1)


def test_a_worker_that_does_not_listen_is_killed(fakes):
    fake = fakes("deaf", "answer", seconds=2.0)
    large = fake.request(region=make_region(count=20_000))
    lost, well = fake.pool.submit(large), fake.pool.submit(fake.request())
    (artifact,) = lost.result().artifacts
    assert artifact.reason.startswith("[shark] the compiler took more than 2 s in tracing of")
    assert artifact.reason.endswith("... (20000 operators)")
    assert well.result().artifacts[0].reason == ""
    assert fake.counts() == (2, 2, 0, 1)


def test_what_a_killed_worker_left_is_done_by_another(fakes):
    fake = fakes("killed", "answer")
    answer = fake.pool.submit(fake.request(3)).result()
    assert [a.reason for a in answer.artifacts] == [""] * 3
    assert answer.lasting
    assert fake.counts() == (1, 2, 1, 0)
    assert not fake.dumps.exists()


def test_a_request_that_has_two_workers_killed_fails(fakes):
    fake = fakes("killed")
    answer = fake.pool.submit(fake.request(4)).result()
    reasons = [a.reason for a in answer.artifacts]
    assert reasons[:2] == ["", ""]
    assert reasons[2] == reasons[3]
    assert reasons[2].startswith("[shark] the compiler's process was killed (signal 9, SIGKILL)")
    assert not answer.lasting
    assert fake.counts() == (1, 2, 2, 0)


def test_a_worker_killed_while_idle_costs_nothing(fakes):
    fake = fakes("answer")
    fake.pool.submit(fake.request()).result()
    (pid,) = fake.pids()
    os.kill(pid, signal.SIGKILL)
    assert is_gone(pid)
    assert fake.pool.submit(fake.request()).result().artifacts[0].reason == ""
    assert fake.counts() == (2, 2, 0, 0)


def test_an_idle_worker_ends(fakes, monkeypatch):
    monkeypatch.setattr(slot, "_IDLE_SECONDS", 0.05)
    fake = fakes("answer")
    fake.pool.submit(fake.request()).result()
    assert is_gone(fake.pids()[0])
    fake.pool.submit(fake.request()).result()
    assert fake.counts() == (2, 2, 0, 0)


def test_workers_that_do_not_start_are_given_up(fakes):
    fake = fakes("no_start")
    answers = [fake.pool.submit(fake.request()).result() for _ in range(5)]
    for answer in answers:
        assert answer.artifacts[0].reason.startswith(
            "[shark] the region did not reach the compiler: its worker does not start: "
            "the compiler ended (exit code 1); it printed last: no module named torch"
        )
        assert not answer.lasting
    assert fake.counts() == (5, 3, 0, 0)


def test_a_program_that_is_not_there_is_a_failure(fakes):
    fake = fakes()
    pool = Pool(memory_bytes=1 << 30, seconds=60, command=("/no/such/program",))
    (artifact,) = pool.submit(fake.request()).result().artifacts
    assert "its worker does not start: [Errno 2]" in artifact.reason
    pool.close()


def test_workers_are_as_many_as_there_is_work_for_and_at_most_count(fakes):
    fake = fakes("answer_at_length", count=2)
    fake.pool.submit(fake.request()).result()
    fake.pool.submit(fake.request()).result()
    assert len(fake.pids()) == 1
    futures = [fake.pool.submit(fake.request()) for _ in range(4)]
    assert [future.result().artifacts[0].reason for future in futures] == [""] * 4
    assert fake.counts() == (6, 2, 0, 0)


def test_requests_are_done_in_order_and_can_be_cancelled(fakes):
    fake = fakes("answer_at_length")
    order = []
    futures = [fake.pool.submit(fake.request()) for _ in range(4)]
    for i, future in enumerate(futures):
        future.add_done_callback(lambda _, i=i: order.append(i))
    assert futures[2].cancel()
    futures[3].result()
    assert order == [2, 0, 1, 3]
    assert fake.counts() == (3, 1, 0, 0)


def test_closing_fails_what_is_pending_at_once(fakes):
    fake = fakes("hang")
    futures = [fake.pool.submit(fake.request(2)) for _ in range(3)]
    while not fake.pids():
        time.sleep(0.01)
    start = time.monotonic()
    fake.pool.close()
    fake.pool.close()
    futures.append(fake.pool.submit(fake.request(2)))
    answers = [future.result(timeout=10) for future in futures]
    assert time.monotonic() - start < 10
    for answer in answers:
        reasons = [a.reason for a in answer.artifacts]
        assert reasons == ["[shark] the compiler was stopped before the region was compiled"] * 2
        assert not answer.lasting
    assert fake.counts()[1:] == (1, 0, 0)
    assert is_gone(fake.pids()[0])


def test_a_crash_is_not_explained_by_what_was_printed_before_it(fakes):
    fake = fakes("crash_at_the_second")
    first, second = (fake.pool.submit(fake.request()).result() for _ in range(2))
    assert first.artifacts[0].reason == ""
    assert "crashed (signal 11, SIGSEGV)" in second.artifacts[0].reason
    assert "printed" not in second.artifacts[0].reason
    assert fake.counts() == (2, 1, 1, 0)


def test_a_request_without_targets_is_refused(fakes):
    with pytest.raises(ValueError, match="at least one target"):
        fakes("answer").request(targets=0)


def test_a_full_disk_costs_the_dump_alone(fakes, monkeypatch):
    fake = fakes("exit_139")
    fake.dumps.write_text("no folder can be made here")
    (artifact,) = fake.pool.submit(fake.request()).result().artifacts
    assert artifact.reason == (
        "[shark] the compiler crashed (signal 11, SIGSEGV) in compilation of aten::exp"
    )


def test_what_a_worker_prints_is_not_seen(fakes, capfd):
    fake = fakes("segv")
    fake.pool.submit(fake.request()).result()
    fake.pool.close()
    assert capfd.readouterr() == ("", "")
