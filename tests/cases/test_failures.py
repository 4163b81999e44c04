"""What has a value after an operator failed late, and how a tensor gets one again."""

import pytest
import torch
from torch.nn import functional

from torch_shark import config

REFUSED = "expected a tensor with a value"


def table():
    return torch.ones(4, 2, device="shark")


def index(i):
    return torch.tensor([i]).to("shark")


def raise_late(work):
    """Do what fails when it runs, with all metadata known, and have the error raised."""
    result = work(index(9))
    with pytest.raises(IndexError, match=r"out of (bounds|range)"):
        torch.shark.synchronize()
    return result


@pytest.fixture
def lost(policy):
    """A tensor whose operator failed."""
    functional.embedding(index(1), table()).cpu()
    return raise_late(lambda i: functional.embedding(i, table()))


OVERWRITES = {
    "zero_": lambda t: t.zero_(),
    "fill_": lambda t: t.fill_(3),
    "fill_ with a tensor": lambda t: t.fill_(torch.tensor(3.0, device=t.device)),
    "copy_": lambda t: t.copy_(torch.ones(1, 2, device=t.device)),
    "copy_ from the host": lambda t: t.copy_(torch.ones(1, 2)),
    "setitem": lambda t: t.__setitem__(slice(None), 5.0),
    "out": lambda t: torch.add(table()[:1], 1, out=t),
    "out of a product": lambda t: torch.mm(table()[:1], table()[:2], out=t),
    "normal_": lambda t: t.normal_(),
    "uniform_": lambda t: t.uniform_(),
}


@pytest.mark.parametrize("overwrite", OVERWRITES.values(), ids=OVERWRITES)
def test_overwritten_whole_it_has_a_value(lost, overwrite):
    torch.manual_seed(0)
    overwrite(lost)
    later = lost + 1
    torch.manual_seed(0)
    fresh = torch.zeros(1, 2, device="shark")
    overwrite(fresh)
    assert lost.tolist() == fresh.tolist()
    assert later.tolist() == (fresh + 1).tolist()


READS = {
    "operator": lambda t: t + 1,
    "in place": lambda t: t.add_(1),
    "part": lambda t: t[:, :1].fill_(1),
    "operator that runs at once": lambda t: t.nonzero(),
    "read": lambda t: t,
    "masked": lambda t: t.masked_fill_(torch.tensor([[True, False]], device=t.device), 1),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_without_that_it_has_none(lost, read):
    with pytest.raises(RuntimeError, match=REFUSED):
        read(lost).cpu()
    with pytest.raises(RuntimeError, match=REFUSED):
        lost.cpu()
    torch.shark.synchronize()


@pytest.mark.parametrize("written", [False, True], ids=["new", "with content"])
def test_out_keeps_its_content_and_can_be_used_again(policy, written):
    def look_up(i, out):
        return torch.index_select(table(), 0, i, out=out)

    look_up(index(1), torch.empty(1, 2, device="shark")).cpu()
    out = torch.empty(1, 2, device="shark")
    if written:
        out.fill_(7)
        torch.shark.synchronize()
    raise_late(lambda i: look_up(i, out))
    if written:
        assert out.tolist() == [[7, 7]]
    assert out.cpu().shape == (1, 2)  # of a new tensor nobody knows the content, as on the CPU
    assert look_up(index(2), out).tolist() == [[1, 1]]


def test_parameters_survive_a_step_that_failed(policy):
    weight = torch.ones(4, 2, device="shark")
    for i in (1, 2):
        weight.sub_(functional.embedding(index(i), weight).sum(), alpha=0)
    torch.shark.synchronize()
    raise_late(lambda i: weight.sub_(functional.embedding(i, weight).sum()))
    assert weight.tolist() == [[1, 1]] * 4
    assert (weight + 1).tolist() == [[2, 2]] * 4


def test_nothing_is_computed_from_what_was_not_written_until_the_error_is_raised(policy):
    kept = torch.ones(1, 2, device="shark")
    for i in (1, 2):
        kept.copy_(functional.embedding(index(i), table()))
    torch.shark.synchronize()
    results = []

    def work(i):
        kept.copy_(functional.embedding(i, table()))
        results.append(kept + 1)

    raise_late(work)
    with pytest.raises(RuntimeError, match=REFUSED):
        results[0].cpu()
    assert kept.tolist() == [[1, 1]]


def test_overwritten_in_the_same_window_it_has_a_value_at_once(policy):
    for i in (1, 2):
        functional.embedding(index(i), table()).cpu()
    results = []

    def work(i):
        lost = functional.embedding(i, table())
        lost.zero_()
        results.append(lost + 1)

    raise_late(work)
    assert results[0].tolist() == [[1, 1]]


def test_value_that_is_not_written_later_is_raised_too(lost):
    """The error was raised; who goes on must not take older content for newer."""
    target = torch.full((1, 2), 7.0, device="shark")
    torch.shark.synchronize()
    target.add_(lost)
    with pytest.raises(RuntimeError, match=REFUSED):
        torch.shark.synchronize()
    assert target.tolist() == [[7, 7]]
    assert (target + 1).tolist() == [[8, 8]]


def test_a_late_error_tells_how_it_is_raised_at_its_line(policy):
    functional.embedding(index(1), table()).cpu()
    functional.embedding(index(9), table())
    with pytest.raises(IndexError, match="TORCH_SHARK_BLOCKING=1 raises it at its line"):
        torch.shark.synchronize()


def test_an_error_is_raised_at_its_line(policy):
    with config.scope(blocking=True):
        first = functional.embedding(index(1), table())
        torch.shark.reset_metrics()
        with pytest.raises(IndexError, match=r"raised by aten::embedding\)"):
            functional.embedding(index(9), first)
        total = first + 1
        counts = torch.shark.metrics()
        torch.shark.synchronize()
    assert total.tolist() == [[2.0, 2.0]]
    assert counts.windows == counts.recorded


@pytest.mark.parametrize("use", [torch.Tensor.item, torch.Tensor.nonzero])
def test_an_operator_that_fails_at_once_lets_go_of_its_operands(native, use):
    """The call that raises an earlier operator's error, and the one that is run to be learnt."""
    table = torch.ones(4, 3, device="shark")
    embed = torch.nn.functional.embedding
    embed(torch.tensor([1], device="shark"), table)
    torch.shark.synchronize()
    before = torch.shark.memory_allocated()
    for _ in range(3):
        large = torch.ones(1 << 18, device="shark")
        embed(torch.tensor([9], device="shark"), table)
        with pytest.raises(IndexError):
            use(large[:1])
        del large
    with pytest.raises(RuntimeError, match="converted to Scalar"):
        torch.ones(1 << 18, device="shark").item()
    torch.shark.synchronize()
    assert torch.shark.memory_allocated() - before < 1 << 18
