"""Other processes: what is sent arrives as a copy, sharing is refused, data loaders work."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from torch_shark.errors import SharedMemoryError

pytestmark = pytest.mark.usefixtures("native")

# Children of the start method "spawn" import the main module, so the program is a file of its own.
PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class OnDevice(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.full((2,), float(i), device="shark") + 1


def work(inbox, outbox, model, first):
    assert {p.device.type for p in model.parameters()} == {"shark"}
    assert first.requires_grad and isinstance(first, nn.Parameter)
    for pair in iter(inbox.get, None):
        whole, part = pair
        part.add_(1)
        outbox.put((model(whole).detach(), whole, first.detach()))


if __name__ == "__main__":
    spawn = torch.multiprocessing.get_context("spawn")
    torch.manual_seed(0)
    inbox, outbox = spawn.Queue(), spawn.Queue()
    model, first = nn.Linear(3, 2).to("shark"), nn.Parameter(torch.ones(1, device="shark"))
    child = spawn.Process(target=work, args=(inbox, outbox, model, first))
    child.start()
    x = torch.zeros(2, 3, device="shark")
    inbox.put((x, x[1]))
    y, whole, same = outbox.get()
    assert whole.is_shark and whole.tolist() == [[0.0] * 3, [1.0] * 3], whole
    assert x.tolist() == [[0.0] * 3] * 2  # the child had a copy
    assert torch.allclose(y, model(whole)), y
    assert same.tolist() == [1.0]
    inbox.put(None)
    child.join()
    assert child.exitcode == 0
    loader = DataLoader(OnDevice(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    assert [batch.tolist() for batch in loader] == [[[1.0] * 2, [2.0] * 2], [[3.0] * 2, [4.0] * 2]]
    held = TensorDataset(torch.arange(4.0, device="shark"))
    loader = DataLoader(held, batch_size=4, num_workers=1, multiprocessing_context="spawn")
    assert [batch.tolist() for (batch,) in loader] == [[0.0, 1.0, 2.0, 3.0]]
    print("done")
"""


@pytest.mark.slow
def test_spawned_processes_get_copies(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_tensor_is_pickled_for_another_process_as_a_copy():
    from multiprocessing.reduction import ForkingPickler

    x = torch.arange(6.0, device="shark").view(2, 3)
    y, row, empty = ForkingPickler.loads(ForkingPickler.dumps((x, x[1], x[:0])))
    assert y.is_shark
    assert empty.is_shark
    assert torch.equal(y.cpu(), x.cpu())
    row.zero_()
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    host = ForkingPickler.loads(ForkingPickler.dumps(torch.ones(2)))
    assert host.is_shared()


SHARED = {
    "tensor": lambda: torch.ones(2, device="shark").share_memory_(),
    "storage": lambda: torch.ones(2, device="shark").untyped_storage().share_memory_(),
    "parameter": lambda: nn.Parameter(torch.ones(2, device="shark")).share_memory_(),
    "module": lambda: nn.Linear(2, 2).to("shark").share_memory(),
}


@pytest.mark.parametrize("share", SHARED.values(), ids=SHARED)
def test_shared_memory_is_refused(share):
    with pytest.raises(SharedMemoryError, match="expected a CPU tensor to be moved to shared"):
        share()
    assert torch.ones(2).share_memory_().is_shared()
    assert not torch.ones(2, device="shark").is_shared()


class OnHost(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.full((2,), float(i)), i


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_with_pinned_memory(workers):
    loader = DataLoader(OnHost(), batch_size=3, num_workers=workers, pin_memory=True)
    seen = []
    for values, indices in loader:
        assert values.is_pinned()
        assert indices.is_pinned()
        batch = values.to("shark", non_blocking=True)
        seen += (batch.sum(1) + indices.to("shark", non_blocking=True)).tolist()
    assert seen == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]


def test_loader_of_tensors_on_the_device():
    data = TensorDataset(torch.arange(6.0, device="shark"), torch.arange(6, device="shark"))
    generator = torch.Generator().manual_seed(0)
    batches = list(DataLoader(data, batch_size=4, shuffle=True, generator=generator))
    assert [x.shape[0] for x, _ in batches] == [4, 2]
    assert all(x.is_shark for pair in batches for x in pair)
    assert sorted(torch.cat([x for x, _ in batches]).tolist()) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_loader_under_the_default_device():
    with torch.device("shark"):
        generator = torch.Generator("shark").manual_seed(0)
        loader = DataLoader(OnHost(), batch_size=2, shuffle=True, generator=generator)
        assert sorted(int(i) for _, indices in loader for i in indices) == list(range(6))
        one, two = torch.utils.data.random_split(range(5), [3, 2], generator=generator)
    assert sorted([*one, *two]) == [0, 1, 2, 3, 4]


def test_forked_worker_that_uses_the_device_says_so():
    class OnDevice(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return torch.ones(1, device="shark")

    torch.shark.synchronize()
    (torch.ones(1, device="shark") + 1).cpu()
    loader = DataLoader(OnDevice(), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match="Cannot re-initialize shark in forked subprocess"):
        list(loader)
