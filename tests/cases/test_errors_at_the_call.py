"""What only the kernel refuses is refused at the call, which leaves what the CPU leaves."""

import pytest
import torch

from torch_shark import config


@pytest.fixture(autouse=True)
def _native(native):
    """What is refused is never compiled."""


def both(work):
    """Error type and the geometry and version of the tensor that `work` names, on each device."""
    found = []
    for d in ("cpu", "shark"):
        tensor, call = work(d)
        with pytest.raises(Exception) as caught:  # noqa: PT011 (compared below)
            call()
        torch.shark.synchronize()
        found.append(
            (
                caught.type,
                str(caught.value).split("\n")[0],
                tuple(tensor.shape),
                tensor.untyped_storage().nbytes(),
                tensor._version,
            )
        )
    assert found[0] == found[1]


def test_dtype_is_refused_although_it_was_taken_for_tensors_without_elements():
    empty = torch.zeros(0, 3, dtype=torch.bool, device="shark")
    (empty @ empty.mT).cpu()
    empty.softmax(0).cpu()
    with pytest.raises(NotImplementedError, match="Bool"):
        empty.new_ones(2, 3) @ empty.new_ones(3, 2)
    with pytest.raises(NotImplementedError, match="Bool"):
        empty.new_ones(2, 3).softmax(0)


def test_dtype_is_refused_although_it_was_taken_for_one_element():
    one = torch.zeros(1, dtype=torch.bool, device="shark")
    one.amin().cpu()
    with pytest.raises(NotImplementedError, match="Bool"):
        one.new_ones(3).softmax(0)


def test_shapes_are_refused_although_others_without_elements_were_taken():
    def empty(*shape):
        return torch.zeros(*shape, device="shark")

    torch.addmm(empty(0, 0), empty(0, 3), empty(3, 0), beta=2).cpu()
    with pytest.raises(RuntimeError, match="expanded size"):
        torch.addmm(empty(3, 0), empty(3, 0), empty(0, 3), beta=2)


NUMBERS = {
    "fill_": lambda t: t.fill_(-1.5),
    "full": lambda t: torch.full((2,), 300, dtype=torch.uint8, device=t.device),
    "masked_fill_": lambda t: t.masked_fill_(t > 0, 999),
    "setitem": lambda t: t.__setitem__(0, 1e9),
}


@pytest.mark.parametrize("call", NUMBERS.values(), ids=NUMBERS)
def test_number_that_the_dtype_cannot_hold(call):
    def program(d):
        t = torch.ones(2, dtype=torch.uint8, device=d)
        t.fill_(3)
        return t, lambda: call(t)

    both(program)


def test_out_is_left_resized_once_by_a_call_that_fails():
    def program(d):
        t = torch.zeros(2, 3, device=d)
        return t, lambda: torch.cat([t, t], out=t)

    both(program)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_storage_of_out_has_grown_when_the_dtype_is_refused():
    def program(d):
        t = torch.zeros(2, dtype=torch.bool, device=d)
        return t, lambda: torch.abs(torch.zeros(3, 4, dtype=torch.bool, device=d), out=t)

    both(program)


def test_versions_count_no_foreach_that_fails():
    def program(d):
        t = torch.zeros(2, dtype=torch.bool, device=d)
        return t, lambda: torch._foreach_add_([t, t], 1)

    both(program)


def test_versions_count_a_foreach_that_works():
    t = torch.zeros(2, device="shark")
    torch._foreach_add_([t], 1)
    torch._foreach_mul_([t], 2)
    assert t._version == 2


OVERLAPS = {
    "index_put_ with a value of its own": lambda t: t.__setitem__(
        torch.tensor([0, 2], device=t.device), t[0]
    ),
    "index_copy_": lambda t: t.index_copy_(0, torch.tensor([0, 2], device=t.device), t[:2]),
    "tril_ of an expanded": lambda t: t[0].expand(2, 3, 3).tril_(),
    "triu_ of an expanded": lambda t: t[0].expand(2, 3, 3).triu_(),
    "masked_fill_ of an expanded": lambda t: t[0].expand(3, 3).masked_fill_(t > 0, 1),
    "masked_scatter_ of an expanded": lambda t: t[0].expand(3, 3).masked_scatter_(t > 0, t.clone()),
    "scatter_ of an expanded": lambda t: t[0].expand(3, 3).scatter_(0, (t * 0).long(), t.clone()),
    "fill_ of an expanded": lambda t: t[0].expand(3, 3).fill_(1),
    "zero_ of an expanded": lambda t: t[0].expand(3, 3).zero_(),
    "copy_ of a shifted": lambda t: t[1:].copy_(t[:-1]),
    "add_ of a shifted": lambda t: t[1:].add_(t[:-1]),
    "add out": lambda t: torch.add(t[1:], 1, out=t[:-1]),
    "mul_ of a transpose": lambda t: t.mul_(t.t()),
    "lerp_": lambda t: t[0].expand(3, 3).lerp_(t.clone(), 0.5),
    "cumsum out": lambda t: torch.cumsum(t[:, :2], 0, out=t[:, 1:]),
    "normal_ of an expanded": lambda t: t[0].expand(3, 3).normal_(),
}


# Writing to expanded tensors, and resizing `out`, is deprecated on every device.
@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("write", OVERLAPS.values(), ids=OVERLAPS)
@pytest.mark.parametrize("known", [False, True], ids=["first call", "after a good one"])
def test_overlap_of_what_is_written(write, known):
    """The same error as on the CPU or, where the CPU sees none, the same values."""
    results = []
    for d in ("cpu", "shark"):
        t = torch.arange(9.0, device=d).view(3, 3)
        if known:  # the same operators, on tensors that do not share memory
            index = torch.tensor([0, 2], device=d)
            t.clone().__setitem__(index, t[0].clone())
            t.clone().index_copy_(0, index, t[:2].clone())
            t.expand(2, 3, 3).clone().tril_()
        torch.manual_seed(0)
        try:
            write(t)
            torch.shark.synchronize()
        except RuntimeError as error:
            results.append(str(error).split("\n")[0])
        else:
            results.append(t.tolist())
    assert results[0] == results[1]


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_out_that_shares_memory_and_is_resized_is_computed_before_it_is_resized():
    def program(d):
        t = torch.arange(6.0, device=d).view(2, 3)
        torch.add(t, 1, out=t[0, :0])
        return t

    with config.scope(policy="native"):
        assert program("shark").tolist() == program("cpu").tolist()


def test_copy_to_the_same_memory_is_nothing_even_where_it_overlaps():
    for d in ("cpu", "shark"):
        t = torch.arange(9.0, device=d)
        wide = t.as_strided((3, 1), (0, 1), 1)
        wide.transpose(0, 0).copy_(wide)
        assert t.tolist() == list(range(9))


def test_write_to_memory_that_overlaps_is_refused(same_error):
    same_error(lambda d: torch.zeros(4, 1, device=d).expand(4, 3).add_(1))
    same_error(lambda d: torch.zeros(1, device=d).expand(3).mul_(2))
    same_error(lambda d: torch.zeros(1, device=d).expand(3).copy_(torch.ones(3, device=d)))


def test_write_to_memory_that_is_partly_read_is_refused(same_error):
    def add(d):
        x = torch.zeros(4, device=d)
        torch.add(x[:-1], 1, out=x[1:])

    same_error(add)
