"""Cases 9, 10 and 16: promotion, scans of bools, and Python scalars that change at each call."""

import pytest
import torch

PROMOTIONS = {
    "uint8 picked by index": lambda d: (
        torch.arange(4).to(torch.uint8).to(d)[torch.tensor([3, 0]).to(d)]
    ),
    "index of uint8 rows": lambda d: (
        torch.arange(6).view(3, 2).to(torch.uint8).to(d).index_select(0, torch.tensor([2, 0]).to(d))
    ),
    "argmax": lambda d: torch.tensor([[1.0, 3.0], [4.0, 2.0]]).to(d).argmax(1),
    "cat int64 float32": lambda d: torch.cat(
        [torch.tensor([1, 2]).to(d), torch.tensor([0.5]).to(d)]
    ),
    "stack bool int32": lambda d: torch.cat(
        [torch.tensor([True]).to(d), torch.tensor([3], dtype=torch.int32).to(d)]
    ),
    "prod of int8": lambda d: torch.tensor([2, 3], dtype=torch.int8).to(d).prod(),
    "sum of int32": lambda d: torch.tensor([2, 3], dtype=torch.int32).to(d).sum(),
    "sum of bool": lambda d: torch.tensor([True, True, False]).to(d).sum(),
    "int / int": lambda d: torch.tensor([1, 2]).to(d) / torch.tensor([2, 5]).to(d),
    "int32 + int64": lambda d: (
        torch.tensor([1, 2], dtype=torch.int32).to(d) + torch.tensor([3, 4]).to(d)
    ),
    "int + 0.5": lambda d: torch.tensor([1, 2]).to(d) + 0.5,
    "bool + 1": lambda d: torch.tensor([True, False]).to(d) + 1,
    "bool * bool": lambda d: torch.tensor([True, False]).to(d) * torch.tensor([True, True]).to(d),
    "float32 + 0-d float64": lambda d: (
        torch.tensor([1.0, 2.0]).to(d) + torch.tensor(0.1, dtype=torch.float64).to(d)
    ),
    "int64 + 0-d float32": lambda d: torch.tensor([1, 2]).to(d) + torch.tensor(0.5).to(d),
    "float32 + host float64": lambda d: (
        torch.tensor([1.0, 2.0]).to(d) * torch.tensor(0.1, dtype=torch.float64)
    ),
    "bfloat16 + float32": lambda d: (
        torch.tensor([1.5, 2.5], dtype=torch.bfloat16).to(d) + torch.tensor([1.0, 2.0]).to(d)
    ),
    "where int float": lambda d: torch.where(
        torch.tensor([True, False]).to(d), torch.tensor([1, 2]).to(d), 0.5
    ),
    "comparison": lambda d: torch.tensor([1, 2]).to(d) > torch.tensor([0.5, 2.5]).to(d),
    "mean in float64": lambda d: torch.tensor([1, 2]).to(d).mean(dtype=torch.float64),
    "float to int": lambda d: torch.tensor([-1.7, 2.9]).to(d).to(torch.int64),
}


@pytest.mark.parametrize("program", PROMOTIONS.values(), ids=PROMOTIONS)
def test_promotion_is_the_cpus(run_both, program):
    run_both(program, compiled=False)


def half_steps(d):
    x = torch.tensor([1.5, -2.25, 3.0], dtype=torch.bfloat16).to(d)
    kept = x
    x *= 0.5
    x += 1
    x /= 3
    return x, x.dtype, x is kept, x + 0.1


def test_in_place_scalars_keep_bfloat16(run_both):
    run_both(half_steps)


def test_in_place_result_of_a_wider_dtype_is_refused(same_error):
    same_error(lambda d: torch.tensor([1, 2], device=d).mul_(0.5))
    same_error(lambda d: torch.tensor([True], device=d).add_(torch.tensor([2], device=d)))
    same_error(lambda d: torch.zeros(2, dtype=torch.int64, device=d).div_(2))


SCANS = {
    "ones": lambda x: x.cumsum(0)[-1],
    "whole": lambda x: x.cumsum(0),
    "transposed": lambda x: x.view(8, 16).t().cumsum(0),
    "int32": lambda x: x.cumsum(0, dtype=torch.int32),
    "cumprod": lambda x: x.cumprod(0),
    "sums": lambda x: (x.sum(), x.view(8, 16).sum(0), x.any(), x.all(), x.view(8, 16).all(1)),
}


@pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)
def test_scan_of_bools_counts_past_one_byte_and_sign(run_both, scan):
    def program(d):
        return scan(torch.ones(128, dtype=torch.bool, device=d))

    run_both(program)


def test_scan_of_300_bools_is_not_cut_to_a_byte(run_both):
    def program(d):
        x = torch.arange(300).remainder(7).ne(3).to(d)
        return x.cumsum(0), x.sum()

    run_both(program)


def test_changing_scalars_give_their_own_values(run_both):
    def program(d):
        x = torch.tensor([1.0, -2.0, 0.5]).to(d)
        results = [x * a + b for a, b in ((2, 3), (2, 2), (4, 2), (0.5, 1), (1, 0), (-1.5, -2))]
        results += [x.add(x, alpha=a) for a in (1, 2, 0.5)]
        n = torch.tensor([1, 2, 3]).to(d)
        results += [n * a + b for a, b in ((2, 3), (2, 2), (4, 2), (0, 5))]
        results += [x.clamp(low, high) for low, high in ((-1, 0.75), (-0.25, 0.1))]
        return results

    run_both(program)


def test_scalars_of_every_kind_of_operator_change_at_each_sync(run_both):
    def program(d):
        x, y = torch.tensor([1.0, -2.0, 0.5]).to(d), torch.tensor([3.0, 4.0, 5.0]).to(d)
        results = []
        for s in (2.0, 3.0, -0.5):
            results += [
                x.mul(s), x.lerp(y, s), x.addcmul(y, y, value=s), torch.where(x > s, x, s), x == s
            ]  # fmt: skip
            torch.shark.synchronize()
        return results

    counts = run_both(program)
    assert counts.windows == 3
    assert counts.plans <= 2  # a second value may show that a scalar changes; a third may not


def steps(parameter, gradient, rates):
    """Gradient descent with a rate of its own for each step, synchronized every 20 steps."""
    for i, rate in enumerate(rates):
        parameter.add_(gradient, alpha=-rate)
        parameter.mul_(1 - rate)
        if i % 20 == 19:
            torch.shark.synchronize()


def test_ten_thousand_learning_rates_compile_nothing_and_keep_memory_flat(policy):
    parameter, gradient = torch.ones(8, device="shark"), torch.ones(8, device="shark")
    steps(parameter, gradient, [1e-3 + 1e-6 * i for i in range(40)])
    before = torch.shark.metrics()
    memory = torch.shark.memory_allocated()
    steps(parameter, gradient, [2e-3 + 1e-7 * i for i in range(10_000)])
    after = torch.shark.metrics()
    assert after.windows - before.windows == 500
    assert (after.compiles, after.plans) == (before.compiles, before.plans)
    assert torch.shark.memory_allocated() == memory
    if policy == "native":
        assert (after.regions, after.compiles) == (0, 0)
    else:
        assert after.regions - before.regions == 500
        assert after.region_operators - before.region_operators == 20_000
        assert after.native_steps == before.native_steps


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_large_integers_are_negated_exactly(run_both, dtype):
    numbers = [16777217, 123456789, -(2**31 - 1)] + [2**53 + 1] * (dtype == torch.int64)
    run_both(lambda d: -torch.tensor(numbers, dtype=dtype).to(d))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_width_values_are_added_up_in_full_width(run_both, dtype):
    run_both(lambda d: (torch.ones(1000, dtype=dtype).to(d) * 1).cumsum(0))
    run_both(lambda d: (torch.ones(3000, dtype=dtype).to(d) * 1).norm())


def test_integers_are_compared_in_the_default_dtype_of_the_time(run_both):
    def program(device):
        x = torch.tensor([16777217], device=device)
        results = [x > 16777216.0]
        torch.set_default_dtype(torch.float64)
        try:
            results.append(x > 16777216.0)
        finally:
            torch.set_default_dtype(torch.float32)
        return results

    run_both(program)


def test_default_dtype_is_that_of_the_recording(run_both):
    def program(d):
        x = torch.arange(3).to(d)
        halves = x / 2
        torch.set_default_dtype(torch.float64)
        try:
            return halves, x / 2
        finally:
            torch.set_default_dtype(torch.float32)

    run_both(program)
