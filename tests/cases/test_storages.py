"""`untyped_storage()` and `storage()`: sizes, bytes, addresses, and tensors over changed ones."""

import pytest
import torch
from geometry import row, same_outcome

pytestmark = [
    pytest.mark.usefixtures("native"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
]


def ones(d, count=12):
    return torch.ones(count, device=d)


STORAGES = {
    "resized to nothing": lambda t: (t.untyped_storage().resize_(0), t.untyped_storage().nbytes()),
    "grown": lambda t: (t.untyped_storage().resize_(64), t.mul_(2)),
    "shrunk": lambda t: (t.untyped_storage().resize_(16), t[:4]),
    "resized and written": lambda t: (
        t.untyped_storage().resize_(0),
        t.untyped_storage().resize_(48),
        t.copy_(ones(t.device)),
    ),
    "filled": lambda t: (t.untyped_storage().fill_(1), t.view(torch.int32)),
    "filled with numbers": lambda t: (t.storage().fill_(1.5), t),
    "copied": lambda t: (t.untyped_storage().copy_(ones(t.device).untyped_storage()), t),
    "copied from the host": lambda t: (t.untyped_storage().copy_(ones("cpu").untyped_storage()), t),
    "copied from one too small": lambda t: t.untyped_storage().copy_(
        ones(t.device, 3).untyped_storage()
    ),
    "bytes read": lambda t: (t.untyped_storage()[3], t.untyped_storage().tolist()),
    "numbers read": lambda t: (t.storage()[3], t.storage().tolist()),
    "byte written": lambda t: (t.untyped_storage().__setitem__(3, 64), t),
    "sliced": lambda t: t.untyped_storage()[0:4].tolist(),
    "cloned": lambda t: (t.untyped_storage().clone().tolist(), t.untyped_storage().cpu().tolist()),
    "sizes": lambda t: (
        len(t.untyped_storage()),
        t.untyped_storage().element_size(),
        t.untyped_storage().resizable(),
        t.storage().size(),
        t.storage().nbytes(),
        t.storage().dtype,
    ),
    "converted": lambda t: (t.storage().float().tolist(), t.storage().int().tolist()),
    "device": lambda t: (t.untyped_storage().device == t.device, t.storage().device == t.device),
    "new": lambda t: torch.zeros(2, device=t.device).set_(
        torch.UntypedStorage(8, device=t.device).fill_(0), 0, (2,)
    ),
    "new typed": lambda t: torch.TypedStorage(8, device=t.device, dtype=torch.float).nbytes(),
    "addresses": lambda t: (
        t.data_ptr() - t.untyped_storage().data_ptr(),
        t[3:].data_ptr() - t.data_ptr(),
        t[3:].untyped_storage().data_ptr() == t.untyped_storage().data_ptr(),
        t.storage().data_ptr() == t.data_ptr(),
        t.clone().data_ptr() == t.data_ptr(),
        t.new_empty(0).data_ptr(),
        t[:0].data_ptr(),
    ),
    "identity": lambda t: (
        t.untyped_storage()._cdata == t[1:].untyped_storage()._cdata,
        t.untyped_storage()._cdata == t.detach().untyped_storage()._cdata,
        t.untyped_storage()._cdata == t.clone().untyped_storage()._cdata,
    ),
    "is_set_to": lambda t: [
        t.is_set_to(other) for other in (t, t[:], t[1:], t.clone(), t.view(3, 4), t.detach())
    ],
}


@pytest.mark.parametrize("change", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("synced", [False, True], ids=["pending", "ready"])
def test_storage(change, synced):
    def work(d):
        t = row(d)
        t.add_(1)
        if synced:
            torch.shark.synchronize()
        return change(t)

    same_outcome(work)


BEYOND = {
    "operator": lambda t: t + 1,
    "in place": lambda t: t.fill_(0),
    "read": lambda t: t.tolist(),
    "copy to": lambda t: t.copy_(torch.ones(12)),
    "copy from": lambda t: torch.ones(12).copy_(t),
    "operator that runs at once": lambda t: t.nonzero(),
    "foreach": lambda t: torch._foreach_add_([t], 1),
}


@pytest.mark.parametrize("use", BEYOND.values(), ids=BEYOND)
def test_tensor_past_the_end_of_a_storage_made_smaller_is_refused(use):
    """The CPU reads what lies behind the storage, or the process ends."""
    t, bystander = row("shark"), row("shark")
    t.untyped_storage().resize_(16)
    with pytest.raises(RuntimeError, match=r"a storage of at least 48 bytes, got one .* to 16"):
        use(t)
    assert t[:4].tolist() == [0, 1, 2, 3]
    assert (bystander + 1).tolist() == list(range(1, 13))
    torch.shark.synchronize()


def test_memory_of_a_storage_resized_to_nothing_is_freed():
    t = torch.ones(1 << 20, device="shark")
    torch.shark.synchronize()
    before = torch.shark.memory_allocated()
    t.untyped_storage().resize_(0)
    torch.shark.synchronize()
    assert before - torch.shark.memory_allocated() >= t.numel() * 4
