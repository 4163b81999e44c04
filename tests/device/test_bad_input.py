"""Wrong calls raise what the CPU raises, where they are made; the device goes on working."""

import pytest
import torch
from torch.nn import functional

from torch_shark import config
from torch_shark.errors import ConfigError, TargetAbsentError


def zeros(d, *shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype, device=d)


WRONG = {
    "sizes that do not broadcast": lambda d: zeros(d, 2, 3) + zeros(d, 4),
    "mm of wrong sizes": lambda d: zeros(d, 2, 3) @ zeros(d, 4, 5),
    "mm of a vector": lambda d: torch.mm(zeros(d, 2, 3), zeros(d, 3)),
    "linear": lambda d: functional.linear(zeros(d, 2, 3), zeros(d, 5, 4)),
    "cat": lambda d: torch.cat([zeros(d, 2, 3), zeros(d, 3, 2)]),
    "stack of unequal": lambda d: torch.stack([zeros(d, 2), zeros(d, 3)]),
    "view": lambda d: zeros(d, 2, 3).view(4),
    "view of strides": lambda d: zeros(d, 2, 3).t().view(6),
    "reshape": lambda d: zeros(d, 2, 3).reshape(5),
    "expand": lambda d: zeros(d, 2, 3).expand(2, 4),
    "dimension": lambda d: zeros(d, 2, 3).sum(2),
    "transpose": lambda d: zeros(d, 2).transpose(0, 1),
    "squeeze": lambda d: zeros(d, 2).squeeze(3),
    "select": lambda d: zeros(d, 2, 3)[5],
    "too many indices": lambda d: zeros(d, 2)[0, 0],
    "copy_": lambda d: zeros(d, 2).copy_(zeros(d, 3)),
    "copy_ from the host": lambda d: zeros(d, 2).copy_(torch.zeros(3)),
    "in place broadcast": lambda d: zeros(d, 3).add_(zeros(d, 2, 3)),
    "out of wrong dtype": lambda d: torch.add(zeros(d, 2), 1, out=zeros(d, 2, dtype=torch.int64)),
    "mm of two dtypes": lambda d: zeros(d, 2, 2) @ zeros(d, 2, 2, dtype=torch.float64),
    "bitwise of floats": lambda d: zeros(d, 2) & zeros(d, 2),
    "mean of ints": lambda d: zeros(d, 2, dtype=torch.int64).mean(),
    "embedding of floats": lambda d: functional.embedding(zeros(d, 2), zeros(d, 3, 4)),
    "index by floats": lambda d: zeros(d, 3)[zeros(d, 2)],
    "gather of floats": lambda d: zeros(d, 3).gather(0, zeros(d, 2)),
    "subtraction of bools": lambda d: zeros(d, 2, dtype=torch.bool) - zeros(d, 2, dtype=torch.bool),
    "convolution channels": lambda d: functional.conv2d(zeros(d, 1, 3, 5, 5), zeros(d, 4, 2, 3, 3)),
    "convolution kernel": lambda d: functional.conv2d(zeros(d, 1, 2, 2, 2), zeros(d, 4, 2, 3, 3)),
    "pool": lambda d: functional.max_pool2d(zeros(d, 1, 1, 2, 2), 3),
    "layer_norm": lambda d: functional.layer_norm(zeros(d, 2, 3), (4,)),
    "batch_norm of one": lambda d: functional.batch_norm(
        zeros(d, 1, 3), zeros(d, 3), zeros(d, 3), training=True
    ),
    "cross_entropy": lambda d: functional.cross_entropy(
        zeros(d, 2, 3), zeros(d, 4, dtype=torch.int64)
    ),
    "mse_loss": lambda d: functional.mse_loss(zeros(d, 2, 3), zeros(d, 5, 3)),
    "dropout": lambda d: functional.dropout(zeros(d, 2), 2.0),
    "norm of a wrong dimension": lambda d: torch.linalg.vector_norm(zeros(d, 2), dim=4),
    "cholesky of what is no square": lambda d: torch.linalg.cholesky(zeros(d, 2, 3)),
    "singular inverse": lambda d: torch.linalg.inv(zeros(d, 2, 2)),
    "item of many": lambda d: zeros(d, 2).item(),
    "bool of many": lambda d: bool(zeros(d, 2)),
    "negative size": lambda d: torch.empty(-1, device=d),
    "negative repeat": lambda d: zeros(d, 2).repeat(-1),
    "arange": lambda d: torch.arange(3, 1, 1, device=d),
    "normal of negative std": lambda d: zeros(d, 2).normal_(0, -1),
    "multinomial of zeros": lambda d: torch.multinomial(zeros(d, 3), 2),
    "backward of many": lambda d: (zeros(d, 2).requires_grad_() * 2).backward(),
    "gradient of ints": lambda d: zeros(d, 2, dtype=torch.int64).requires_grad_(),
    "split": lambda d: zeros(d, 5).split([2, 2]),
    "as_strided": lambda d: zeros(d, 4).as_strided((5,), (1,)),
    "unfold": lambda d: zeros(d, 3).unfold(0, 4, 1),
    "foreach": lambda d: torch._foreach_add([zeros(d, 2)], [zeros(d, 2), zeros(d, 2)]),
    "topk": lambda d: zeros(d, 3).topk(4),
    "view of dtype": lambda d: zeros(d, 3).view(torch.float64),
}


@pytest.mark.parametrize("program", WRONG.values(), ids=WRONG)
def test_wrong_call_raises_what_the_cpu_raises(same_error, program):
    same_error(program)
    assert (torch.ones(2, device="shark") + 1).tolist() == [2.0, 2.0]


MIXED = {
    "mm": lambda a, b: a @ b,
    "add": lambda a, b: a + b,
    "mul_": lambda a, b: a.mul_(b),
    "add_ on the host": lambda a, b: b.add_(a),
    "cat": lambda a, b: torch.cat([a, b]),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "linear": lambda a, b: functional.linear(a, b),
    "embedding": lambda a, b: functional.embedding(torch.zeros(2, dtype=torch.int64), a),
    "out": lambda a, b: torch.add(a, a, out=b),
    "foreach": lambda a, b: torch._foreach_add([a], [b]),
    "layer_norm": lambda a, b: functional.layer_norm(a, (2,), b[0]),
}


@pytest.mark.parametrize("program", MIXED.values(), ids=MIXED)
def test_operands_on_two_devices_are_refused_at_the_call(policy, program):
    a, b = torch.ones(2, 2, device="shark"), torch.ones(2, 2)
    with pytest.raises(RuntimeError, match=r"(?s)same device.*(shark:0|cpu)"):
        program(a, b)
    torch.shark.synchronize()
    assert (a + 1).tolist() == [[2.0, 2.0]] * 2
    assert b.tolist() == [[1.0, 1.0]] * 2


def test_scalar_on_the_host_is_taken(policy):
    a, s = torch.ones(2, device="shark"), torch.tensor(3.0)
    b = a * s
    s.fill_(5)  # too late to matter
    assert (b + s).tolist() == [8.0, 8.0]


LATE = {
    "embedding": lambda i: functional.embedding(i, torch.ones(4, 2, device="shark")),
    "index": lambda i: torch.ones(4, 2, device="shark")[i],
    "index_select": lambda i: torch.ones(4, 2, device="shark").index_select(0, i),
}


@pytest.mark.parametrize("name", LATE)
def test_late_error_is_raised_at_the_next_sync_with_the_operators_name(policy, name):
    look_up = LATE[name]
    for i in (1, 2):
        look_up(torch.tensor([i]).to("shark")).sum().cpu()
    other = torch.ones(2, device="shark") + 1
    bad = look_up(torch.tensor([9]).to("shark"))
    depends = bad * 2
    apart = torch.ones(2, device="shark") * 3
    with pytest.raises(IndexError, match=rf"aten::{name}\b"):
        torch.shark.synchronize()
    torch.shark.synchronize()  # once is enough
    assert other.tolist() == [2.0, 2.0]
    assert apart.tolist() == [3.0, 3.0]
    for lost in (bad, depends):
        with pytest.raises(
            RuntimeError, match=rf"expected a tensor with a value, but aten::{name}"
        ):
            lost.cpu()
    with pytest.raises(RuntimeError, match="expected a tensor with a value"):
        lost.add_(1).cpu()  # it had none, and has none now
    assert look_up(torch.tensor([3]).to("shark")).cpu().tolist() == [[1.0, 1.0]]


def test_training_survives_a_late_error(policy):
    torch.manual_seed(0)
    table, layer = torch.nn.Embedding(4, 3).to("shark"), torch.nn.Linear(3, 2).to("shark")
    parameters = [*table.parameters(), *layer.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.1)

    def step(token):
        optimizer.zero_grad()
        layer(table(torch.tensor([0, token]).to("shark"))).square().sum().backward()
        optimizer.step()
        torch.shark.synchronize()

    for token in (1, 2):
        step(token)
    before = [p.detach().cpu() for p in parameters]
    with pytest.raises(IndexError):
        step(4)
    for p, old in zip(parameters, before, strict=True):
        assert torch.equal(p.detach().cpu(), old)
    step(3)
    assert all(p.isfinite().all() for p in parameters)
    assert not torch.equal(layer.weight.detach().cpu(), before[1])


IMPORT_FAULTS = {
    "TORCH_SHARK_TARGET": (
        "nonsense",
        "expected TORCH_SHARK_TARGET to be a known target (auto,",
    ),
    "TORCH_SHARK_POLICY": ("fast", "expected TORCH_SHARK_POLICY to be 'auto', 'iree' or 'native'"),
}
USE = "import torch; print((torch.ones(3, device='shark') + 1).tolist())"
RESULT = "[2.0, 2.0, 2.0]\n"


@pytest.mark.parametrize("variable", IMPORT_FAULTS)
def test_wrong_setting_is_told_in_one_sentence(python, variable):
    value, said = IMPORT_FAULTS[variable]
    done = python(USE, **{variable: value})
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()
    assert any(said in line and f"got {value!r}" in line for line in last), done.stderr


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="there is a CUDA device")
def test_target_that_is_not_there_is_told_with_the_reason(python):
    done = python(USE, TORCH_SHARK_TARGET="cuda")
    assert done.returncode == 1
    assert "[shark] target 'cuda' is not there: " in done.stderr
    assert python(USE, TORCH_SHARK_TARGET="auto").stdout == RESULT


def test_target_of_a_running_process_stays():
    with pytest.raises((ConfigError, TargetAbsentError)), config.scope(target="cuda"):
        pass
    assert config.target == "cpu"
    assert (torch.ones(3, device="shark") + 1).tolist() == [2, 2, 2]


def test_cache_folder_that_cannot_be_written_costs_nothing_but_the_cache(python, tmp_path):
    (tmp_path / "file").write_text("no folder")
    done = python(USE, TORCH_SHARK_CACHE_DIR=str(tmp_path / "file"))
    assert (done.returncode, done.stdout) == (0, RESULT)
    assert len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr


COUNT = USE + "; m = torch.shark.metrics(); print(m.compiles, m.disk_hits, m.regions)"


def test_truncated_cache_file_is_a_miss_and_is_made_again(python, tmp_path):
    cache = {"TORCH_SHARK_CACHE_DIR": str(tmp_path), "TORCH_SHARK_POLICY": "iree"}
    assert python(COUNT, **cache).stdout == RESULT + "1 0 1\n"
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size > 200:
            path.write_bytes(path.read_bytes()[:100])
    done = python(COUNT, **cache)
    assert (done.stdout, done.stderr) == (RESULT + "1 0 1\n", "")
    assert python(COUNT, **cache).stdout == RESULT + "0 1 1\n"
