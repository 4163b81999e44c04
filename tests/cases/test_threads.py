"""Case 21: a device context inside a custom backward, and several Python threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

PATIENCE = 120  # seconds, after which a deadlock is taken for one


class Doubled(torch.autograd.Function):
    """Its backward switches device, syncs, and reads a value."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.device(x.device), torch.shark.device(0):
            scale = torch.full((), 2.0)
            torch.shark.synchronize()
            assert scale.item() == 2.0
        return gradient * scale + x.cpu().to(x.device) * 0


def test_custom_backward_may_sync_and_switch_device(run_both):
    def program(d):
        x = torch.arange(4.0).to(d).requires_grad_()
        (Doubled.apply(x * 3) * torch.arange(4.0).to(d)).sum().backward()
        return x.grad

    run_both(program)


def in_threads(work, count):
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(work, i) for i in range(count)]
        return [future.result(timeout=PATIENCE) for future in futures]


def computed(number, d):
    """What one thread makes and reads: a few operators only, for windows end anywhere."""
    x = torch.full((16,), float(number)).to(d)
    seen = []
    for i in range(60):
        x = x * 0.5 + number
        x[3] = 2.0  # recorded while Python's lock is held
        if i % 3 == number % 3:
            seen.append(x.clone() if d == "cpu" else x.cpu())
        if i % 7 == 0:
            seen.append(x[0].item())
    return seen


def test_threads_that_compute_and_read_never_wait_for_each_other(policy):
    results = in_threads(lambda number: computed(number, "shark"), 2)
    tolerance = {"rtol": 0, "atol": 0} if policy == "native" else {}
    for number, result in enumerate(results):
        for one, other in zip(result, computed(number, "cpu"), strict=True):
            torch.testing.assert_close(one, other, **tolerance)
    assert (torch.shark.metrics().regions > 0) == (policy == "iree")


def test_python_operators_run_while_others_wait(policy):
    @torch.library.custom_op("shark_tests::negate", mutates_args=())
    def negate(x: torch.Tensor) -> torch.Tensor:
        return -x

    def work(number):
        x = torch.full((4,), float(number), device="shark")
        for _ in range(40):
            x = negate(x)
            if x.is_shark and number:
                x.cpu()
        return x.cpu()

    for number, result in enumerate(in_threads(work, 3)):
        assert torch.equal(result, torch.full((4,), float(number)))


def test_backward_in_several_threads(policy):
    def work(number):
        w = torch.full((4,), 0.5 * number).to("shark").requires_grad_()
        for _ in range(10):
            w.grad = None
            (w * w).backward(torch.ones(4).to("shark"))
            w.grad.cpu()
        return w.grad.cpu()

    for number, result in enumerate(in_threads(work, 3)):
        assert torch.equal(result, torch.full((4,), float(number)))


def test_thread_that_ends_leaves_its_work_to_others(policy):
    made = []
    thread = threading.Thread(target=lambda: made.append(torch.ones(3, device="shark") + 1))
    thread.start()
    thread.join(PATIENCE)
    assert made[0].tolist() == [2.0, 2.0, 2.0]


def test_error_in_one_threads_work_is_raised_once(policy):
    table = torch.arange(8.0).view(4, 2).to("shark")
    for i in (0, 1):
        torch.nn.functional.embedding(torch.tensor([i]).to("shark"), table).cpu()
    bad = torch.nn.functional.embedding(torch.tensor([9]).to("shark"), table)

    def read(_):
        try:
            return (table + 1).cpu()
        except IndexError as error:
            return error

    results = in_threads(read, 3)
    assert sum(isinstance(result, IndexError) for result in results) == 1
    with pytest.raises(RuntimeError, match="expected a tensor with a value"):
        bad.cpu()
    assert torch.equal((table + 1).cpu(), torch.arange(8.0).view(4, 2) + 1)


def test_number_of_threads_reaches_those_of_autograd(native):
    def gradient(d):
        weight = torch.linspace(-1, 1, 6).to(d).requires_grad_()
        x = torch.linspace(0, 3, 24).reshape(4, 6).to(d)
        torch.nn.functional.layer_norm(x, (6,), weight).square().sum().backward()
        return weight.grad.cpu()

    before = torch.get_num_threads()
    gradient("shark")  # the thread of autograd is there, with the number of now
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            for _ in range(2):
                assert torch.equal(gradient("shark"), gradient("cpu"))
    finally:
        torch.set_num_threads(before)
