"""Seeds and states: of the default generator and of others, saved, restored, forked, in threads."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

pytestmark = pytest.mark.parametrize("policy", ["native"], indirect=True)


def test_one_seed_for_all_devices(run_both):
    def program(d):
        assert torch.manual_seed(12).initial_seed() == 12
        assert torch.shark.initial_seed() == torch.initial_seed() == 12
        first = torch.rand(4, device=d)
        torch.manual_seed(-1)
        assert torch.shark.initial_seed() == torch.initial_seed() == 2**64 - 1
        return first, torch.rand(4, device=d)

    run_both(program, compiled=False)


def test_seeds_of_the_device_leave_the_cpu_alone(policy):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    torch.shark.manual_seed(5)
    drawn = torch.rand(3, device="shark")
    torch.shark.manual_seed_all(5)
    assert torch.equal(torch.rand(3, device="shark"), drawn)
    assert torch.equal(torch.rand(3), expected)
    torch.shark.seed()
    assert torch.shark.initial_seed() != 5
    assert torch.seed() == torch.initial_seed()


@pytest.mark.parametrize("pending", [False, True])
def test_state_is_that_after_what_was_recorded(run_both, pending):
    def program(d):
        module = torch.shark if d == "shark" else torch.random
        torch.rand(5, device=d)
        if not pending:
            torch.shark.synchronize()
        state = module.get_rng_state()
        first = torch.randn(17, device=d)
        module.set_rng_state(state)
        assert torch.equal(torch.randn(17, device=d), first)
        module.set_rng_state(state)
        return state, torch.randn(17, device=d), torch.rand(2, device=d)

    run_both(program, compiled=False)


def test_state_restores_the_seed_and_rejects_rubbish(policy):
    generator = torch.Generator("shark")
    generator.manual_seed(3)
    state = generator.get_state()
    generator.manual_seed(4)
    generator.set_state(state)
    assert generator.initial_seed() == 3
    judge = torch.Generator("cpu")
    for rubbish in (torch.zeros(3, dtype=torch.uint8), torch.zeros(4)):
        with pytest.raises((RuntimeError, TypeError)) as expected:
            judge.set_state(rubbish)
        with pytest.raises(expected.type) as actual:
            generator.set_state(rubbish)
        assert str(actual.value).split("\n")[0] == str(expected.value).split("\n")[0]
    assert generator.initial_seed() == 3


def test_generators_are_cloned(run_both):
    def program(d):
        generator = torch.Generator(d).manual_seed(3)
        torch.rand(3, generator=generator, device=d)
        clone = generator.clone_state()
        first = torch.rand(3, generator=generator, device=d)
        assert torch.equal(torch.rand(3, generator=clone, device=d), first)
        assert generator.device.type == d
        return first

    run_both(program, compiled=False)


def test_fork_gives_the_numbers_back(run_both):
    def program(d):
        devices = {"devices": [0], "device_type": "shark"} if d == "shark" else {"devices": []}
        with torch.random.fork_rng(**devices):
            inside = torch.rand(3, device=d)
            torch.manual_seed(99)
            torch.rand(3, device=d)
        after = torch.rand(3, device=d)
        assert torch.equal(inside, after)
        return after

    run_both(program, compiled=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one device: nothing to choose
        with torch.random.fork_rng(device_type="shark"):
            torch.rand(1, device="shark")


def test_generator_of_a_thread_of_its_own(policy):
    def draw(number):
        generator = torch.Generator("shark").manual_seed(number)
        drawn = [torch.rand(5, device="shark", generator=generator) for _ in range(30)]
        return torch.stack(drawn).cpu()

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(draw, range(4)))
    for number, result in enumerate(results):
        judge = torch.Generator().manual_seed(number)
        assert torch.equal(result, torch.stack([torch.rand(5, generator=judge) for _ in range(30)]))


def test_threads_share_the_default_generator(policy):
    drawn = []

    def draw():
        drawn.extend(torch.rand((), device="shark") for _ in range(50))

    torch.manual_seed(0)
    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    torch.manual_seed(0)
    expected = torch.stack([torch.rand(()) for _ in range(200)])
    assert torch.equal(torch.stack(drawn).cpu().sort()[0], expected.sort()[0])


def noisy(row):
    noise = torch.randn(4, device=row.device)
    return torch.nn.functional.dropout(row, 0.5) + noise + torch.rand_like(row)


def vmapped(d, function, randomness):
    x = torch.linspace(0, 1, 12).reshape(3, 4).to(d)
    return torch.func.vmap(function, randomness=randomness)(x), torch.rand(2, device=d)


def test_each_row_of_vmap_draws_its_own(run_both):
    run_both(lambda d: vmapped(d, noisy, "different"), compiled=False)
    run_both(lambda d: vmapped(d, torch.bernoulli, "different"), compiled=False)


def test_all_rows_of_vmap_draw_the_same(run_both):
    def program(d):
        return vmapped(d, lambda row: row + torch.randn(4, device=d), "same")

    run_both(program, compiled=False)
    drawn, _ = program("shark")
    differences = drawn - torch.linspace(0, 1, 12, device="shark").reshape(3, 4)
    torch.testing.assert_close(differences[0], differences[2])


def test_vmap_refuses_random_numbers_unless_told(same_error):
    same_error(lambda d: vmapped(d, noisy, "error"))
    same_error(lambda d: vmapped(d, torch.bernoulli, "same"))
