"""Workers and the processes around them: signals, forks, and the end of their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faking import is_gone

HERE = Path(__file__).parent

BEGIN = f"""
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
from faking import Fakes, make_region
folder = Path(sys.argv[1])

def wait_for(*files):
    while not all(file.exists() and file.read_text() for file in files):
        time.sleep(0.01)
"""


@pytest.fixture
def start(tmp_path):
    """Return `start(code)`: a process group of its own that runs the code, its stderr in a file."""
    started = []

    def run(code):
        with open(tmp_path / "stderr", "w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", BEGIN + code, str(tmp_path)],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def wait_for(file: Path) -> list[str]:
    """The lines of a file, once it has some."""
    deadline = time.monotonic() + 120
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return file.read_text().splitlines()


PENDING = """
fake = Fakes(folder, "hang")
futures = [fake.pool.submit(fake.request()) for _ in range(3)]
wait_for(fake.log)
"""


@pytest.mark.parametrize(("ending", "status", "said"), [("", 0, ""), ("exit(3)", 3, "")])
def test_a_process_with_pending_requests_ends_at_once(start, tmp_path, ending, status, said):
    process = start(PENDING + ending)
    (pid,) = wait_for(tmp_path / "started")
    assert process.wait(timeout=20) == status
    assert is_gone(int(pid))
    assert (tmp_path / "stderr").read_text() == said


CTRL_C = """
fake = Fakes(folder, "answer_at_length")
fake.pool.submit(fake.request()).result()
pending = fake.pool.submit(fake.request())
try:
    (folder / "ready").write_text("ready\\n")
    time.sleep(60)
except KeyboardInterrupt:
    pass
assert pending.result().artifacts[0].reason == ""
assert fake.pool.submit(fake.request()).result().artifacts[0].reason == ""
assert fake.counts() == (3, 1, 0, 0), fake.counts()
"""


def test_workers_do_not_mind_ctrl_c(start, tmp_path):
    process = start(CTRL_C)
    wait_for(tmp_path / "ready")
    os.killpg(process.pid, signal.SIGINT)
    status = process.wait(timeout=20)
    assert (status, (tmp_path / "stderr").read_text()) == (0, "")


SIGPIPE = """
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
fake = Fakes(folder, "leaves", "answer")
large = fake.request(region=make_region(count=20_000))
(artifact,) = fake.pool.submit(large).result().artifacts
assert artifact.reason.startswith("[shark] the compiler ended (exit code 0)"), artifact.reason
assert fake.pool.submit(fake.request()).result().artifacts[0].reason == ""
"""


def test_a_lost_worker_raises_no_sigpipe(start, tmp_path):
    status = start(SIGPIPE).wait(timeout=60)
    assert (status, (tmp_path / "stderr").read_text()) == (0, "")


FORK = """
fake = Fakes(folder, "answer")
fake.pool.submit(fake.request()).result()
child = os.fork()
if child == 0:
    assert fake.counts() == (0, 0, 0, 0)
    assert fake.pool.submit(fake.request()).result().artifacts[0].reason == ""
    assert fake.counts() == (1, 1, 0, 0)
    fake.pool.close()
    (folder / "child").write_text(f"{os.getpid()}\\n")
    time.sleep(600)
wait_for(folder / "child")
fake.pool.submit(fake.request()).result()
assert fake.counts() == (2, 1, 0, 0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_forked_child_leaves_its_parents_workers_alone(start, tmp_path):
    process = start(FORK)
    (child,) = map(int, wait_for(tmp_path / "child"))
    try:
        assert process.wait(timeout=20) == -signal.SIGKILL
        # The child still lives, and would keep the worker if it had a copy of the socket.
        parents, childs = map(int, wait_for(tmp_path / "started"))
        assert is_gone(parents)
        assert is_gone(childs)
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
    assert (tmp_path / "stderr").read_text() == ""


# A worker that watches nothing, booted by this package; and one of this package, booted by nothing:
# whatever the compiler does, one of the two ends it.
KILLED = """
from torch_shark.workers import Pool, boot, protocol
package = folder / "torch_shark" / "workers"
package.mkdir(parents=True)
(package / "protocol.py").symlink_to(protocol.__file__)
(package / "worker.py").write_text(f'''
import os, time
from pathlib import Path
from torch_shark.workers.protocol import Kind, receive, send
def serve(channel):
    send(channel, Kind.READY)
    receive(channel)
    Path({str(folder / "booted")!r}).write_text(str(os.getpid()) + chr(10))
    time.sleep(600)
''')
watching = f'''
import os, socket, time
from pathlib import Path
from torch_shark.workers import worker
def compile_all(*_):
    Path({str(folder / "watching")!r}).write_text(str(os.getpid()) + chr(10))
    time.sleep(600)
worker.compile_all = compile_all
worker.serve(socket.socket(fileno=os.dup(0)))
'''
python = [p for p in sys.path if "python3" in p and "site-packages" not in p]
commands = (
    (sys.executable, boot.__file__, str(1 << 30), str(folder), *python),
    (sys.executable, "-c", watching),
)
fake = Fakes(folder)
pools = [Pool(command=command, memory_bytes=1 << 30, seconds=60) for command in commands]
futures = [pool.submit(fake.request()) for pool in pools]
wait_for(folder / "booted", folder / "watching")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_when_their_parent_is_killed(start, tmp_path):
    process = start(KILLED)
    assert process.wait(timeout=120) == -signal.SIGKILL, (tmp_path / "stderr").read_text()
    for name in ("booted", "watching"):
        assert is_gone(int((tmp_path / name).read_text())), name
