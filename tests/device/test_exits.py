"""How a process ends: with work pending, after an exception, in a fork, with worker processes."""

import pytest

PENDING = """
import torch
x = torch.ones(64, device="shark", requires_grad=True)
for _ in range(100):
    x = x * 1.01
y = torch.nn.functional.embedding(torch.zeros(2, dtype=torch.int64, device="shark"), x.view(8, 8))
print("end", flush=True)
"""

# The first window to be compiled is what a signal comes in the middle of.
INTERRUPTED = """
import os, signal, time
from torch_shark.planner import Planner
plan, stop = Planner.plan, signal.SIGINT
def plan_while_interrupted(self, record):
    Planner.plan = plan
    os.kill(os.getpid(), stop)
    time.sleep(0.2)
    return plan(self, record)
Planner.plan = plan_while_interrupted
"""

# The code that ends the process, its exit status, the last line on stderr, the policy.
ENDINGS = {
    "pending": ("", 0, "", "iree"),
    "objects": (
        "s = torch.shark.Stream(); e = torch.shark.Event(); e.record(s)\n"
        "loop = [x, s, e]; loop.append(loop)\n"
        "raise SystemExit(3)",
        3,
        "",
        "iree",
    ),
    "work at exit": ("import atexit; atexit.register(lambda: (x * 2).cpu())", 0, "", "iree"),
    "os._exit": ("import os; os._exit(4)", 4, "", "native"),
    "exception": ("raise KeyError('mine')", 1, "KeyError: 'mine'", "native"),
    "exception in a backward": (
        "y.register_hook(lambda grad: {}['mine']); y.sum().backward()",
        1,
        "KeyError: 'mine'",
        "native",
    ),
    "Ctrl-C in a window": (
        "import os, signal, threading\n"
        "z = torch.ones(700, 700, device='shark')\n"
        "for _ in range(40):\n"
        "    z = (z @ z).clamp(0, 1)\n"
        "threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "while True:\n"
        "    z.cpu(); z = z + 1",
        -2,
        "KeyboardInterrupt",
        "native",
    ),
    "Ctrl-C while it compiles": (INTERRUPTED + "x.cpu()", -2, "KeyboardInterrupt", "iree"),
    "Ctrl-C while recording": (
        "import os, signal, threading\n"
        "threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "while True:\n"
        "    x = x + 1",
        -2,
        "KeyboardInterrupt",
        "native",
    ),
    "failed operator": (
        "z = torch.zeros(8, 8, device='shark')\n"
        "for i in (0, 9):\n"
        "    z[torch.tensor([i], device='shark')].sum()",
        0,
        "[shark] an operator failed, and nothing waited for it: "
        "index 9 is out of bounds for dimension 0 with size 8 "
        "([shark] raised by aten::index.Tensor, recorded earlier; "
        "TORCH_SHARK_BLOCKING=1 raises it at its line)",
        "native",
    ),
    "generator, hooks and graph": (
        "g = torch.Generator('shark'); z = torch.rand(3, device='shark', generator=g)\n"
        "z.requires_grad_().register_hook(lambda grad: grad)\n"
        "kept = (z.exp().sum(), g); kept[0].backward(create_graph=False, retain_graph=True)",
        0,
        "",
        "native",
    ),
    "daemon thread": (
        "import threading, time\n"
        "def work():\n"
        "    for i in range(50):\n"
        "        (torch.ones(4, device='shark') + 1).cpu()\n"
        "    done.set(); time.sleep(600)\n"  # PyTorch's own code ends a process that is busy here
        "done = threading.Event()\n"
        "threading.Thread(target=work, daemon=True).start(); done.wait()",
        0,
        "",
        "native",
    ),
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_process_ends_without_a_word_of_its_own(python, ending):
    code, status, error, policy = ending
    done = python(PENDING + code, TORCH_SHARK_POLICY=policy)
    assert (done.returncode, done.stdout) == (status, "end\n"), done.stderr
    if error:
        lines = done.stderr.strip().splitlines()
        assert lines[0].startswith("Traceback" if status else error)
        assert lines[-1] == error
    else:
        assert done.stderr == ""


# What a handler raises, and what becomes of it.
STOPS = {
    "KeyboardInterrupt": ("", "KeyboardInterrupt()"),
    "SystemExit": (
        "stop = signal.SIGTERM; signal.signal(stop, lambda *_: exit(7))\n",
        "SystemExit(7)",
    ),
}


@pytest.mark.parametrize(("handler", "raised"), STOPS.values(), ids=STOPS)
def test_interrupted_compilation_leaves_the_values_right(python, tmp_path, handler, raised):
    code = (
        "import torch\nx = torch.ones(64, device='shark')\nx = x * 2 + 1\n"
        + INTERRUPTED
        + handler
        + "try:\n    x.cpu(); print('went on')\n"
        "except BaseException as error:\n    print(repr(error))\n"
        "print(x.sum().item(), torch.shark.metrics().regions)\n"
        "y = torch.ones(64, device='shark') * 2 + 1\n"
        "print(y.sum().item(), torch.shark.metrics().regions > 0)"
    )
    done = python(code, TORCH_SHARK_POLICY="iree", TORCH_SHARK_CACHE_DIR=str(tmp_path))
    assert done.stdout.splitlines() == [raised, "192.0 0", "192.0 True"], done.stderr
    assert done.stderr == ""


INTERRUPTED_REGION = """
import os, signal, torch
from torch_shark.runtime.executable import Executable
prepare = Executable.prepare
def prepare_interrupted(*arguments):
    Executable.prepare = prepare
    os.kill(os.getpid(), signal.SIGINT)
    return prepare(*arguments)
Executable.prepare = prepare_interrupted
x = torch.ones(64, device="shark") * 2 + 1
x.add_(x * 2)
try:
    x.cpu()
except KeyboardInterrupt:
    print(x.sum().item(), torch.shark.metrics().regions)
"""


def test_interrupted_region_leaves_the_values_right(python):
    done = python(INTERRUPTED_REGION, TORCH_SHARK_POLICY="iree")
    assert (done.stdout, done.stderr) == ("576.0 0\n", "")


FORK = """
import os, sys, torch
x = torch.ones(3, device="shark", requires_grad=True)
y = x + 1
y.cpu()
generator = torch.Generator("shark")
event = torch.Event("shark")
pending = y * 2
child = os.fork()
if child == 0:
    uses = (
        lambda: x + 1,
        lambda: y.cpu(),
        lambda: y.tolist(),
        lambda: print(y),
        lambda: y.sum().item(),
        lambda: pending.mul_(2),
        lambda: y.backward(torch.ones(3, device="shark")),
        lambda: torch.zeros(2, device="shark"),
        lambda: torch.ones(2).to("shark"),
        lambda: y.detach().copy_(torch.ones(3)),
        lambda: y.clone(),
        lambda: y.detach().resize_(8),
        lambda: torch.rand(2, device="shark"),
        lambda: generator.manual_seed(1),
        lambda: generator.get_state(),
        lambda: torch.shark.get_rng_state(),
        lambda: torch.shark.synchronize(),
        lambda: torch.shark.empty_cache(),
        lambda: torch.shark.current_stream().synchronize(),
        lambda: event.record(),
        lambda: torch.UntypedStorage(8, device="shark"),
        lambda: y.untyped_storage().resize_(64),
    )
    for i, use in enumerate(uses):
        try:
            use()
            print(i, "no error", flush=True)
        except RuntimeError as error:
            print(i, str(error).splitlines()[0], flush=True)
    print(torch.shark._is_in_bad_fork(), y.t().shape, y.device, flush=True)
    torch.manual_seed(1)  # a worker seeds all that it has
    print(torch.ones(2).add(1).tolist(), flush=True)
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(pending.tolist())
"""


def test_fork_gets_the_error_that_cuda_gives_and_the_parent_goes_on(python):
    done = python(FORK, TORCH_SHARK_POLICY="iree")
    error = (
        "Cannot re-initialize shark in forked subprocess. To use shark with multiprocessing, "
        "you must use the 'spawn' start method"
    )
    *refused, bad, values, status, pending = done.stdout.splitlines()
    assert refused == [f"{i} {error}" for i in range(22)]
    assert bad == "True torch.Size([3]) shark:0"
    assert (values, status, pending) == ("[2.0, 2.0]", "5", "[4.0, 4.0, 4.0]")
    assert done.stderr == ""


UNUSED_FORK = """
import os, torch
child = os.fork()
if child:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
x = torch.ones(2, device="shark") + 1
print(x.tolist(), flush=True)
"""


def test_fork_before_use_is_a_process_like_any_other(python):
    done = python(UNUSED_FORK, TORCH_SHARK_POLICY="native")
    assert done.stdout.splitlines() == ["[2.0, 2.0]", "0", "[2.0, 2.0]"]
    assert done.stderr == ""


# Threads of a DataLoader that feed its workers outlive the loop by a moment, and multiprocessing
# warns of a leak where the process ends in between (also without this device): they are waited for.
LOADER = """
import threading
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    data = TensorDataset(torch.arange(32.0).view(16, 2), torch.arange(16))
    w = torch.ones(2, device="shark")
    w.add_(1).cpu()
    for method in ("fork", "spawn"):
        total = 0.0
        workers = 2 if method == "fork" else 1
        loader = DataLoader(
            data, 4, num_workers=workers, pin_memory=True, multiprocessing_context=method
        )
        feeders = set()
        for x, i in loader:
            assert x.is_pinned()
            feeders.update(set(threading.enumerate()) - {threading.main_thread()})
            total += (x.to("shark", non_blocking=True) * w).sum().item()
            total += i.to("shark").sum().item()
        for feeder in feeders:
            feeder.join()
        print(total)

if __name__ == "__main__":
    main()
"""


def test_data_loader_with_workers_feeds_the_device(tmp_path, python):
    path = tmp_path / "loader.py"
    path.write_text(LOADER)
    done = python(f"import runpy, sys; sys.argv = [{str(path)!r}]; "
                  f"runpy.run_path({str(path)!r}, run_name='__main__')",
                  TORCH_SHARK_POLICY="native")  # fmt: skip
    total = 2.0 * sum(range(32)) + sum(range(16))
    assert done.stdout.split() == [str(total)] * 2, done.stderr
    assert done.stderr == ""
