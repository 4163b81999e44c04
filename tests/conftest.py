"""What all tests of the device share: policies, a disk cache of their own, the CPU as the judge."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from torch_shark import config
from torch_shark.metrics import Metrics


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what is compiled, here and in child processes, out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_SHARK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def compile_at_once() -> Iterator[None]:
    """What is compiled must not depend on how fast the machine is, where a test does not say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_SHARK_POLICY", "iree")
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Samples are small: threads would spend the time waiting for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["native", "iree"])
def policy(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test under each policy, counting from zero and leaving nothing pending."""
    with config.scope(policy=request.param):
        torch.shark.reset_metrics()
        yield request.param
        torch.shark.synchronize()


@pytest.fixture
def native() -> Iterator[None]:
    """Run a test in which it does not matter whether anything is compiled."""
    with config.scope(policy="native"):
        yield
        torch.shark.synchronize()


def same(actual: Any, expected: Any, *, exact: bool, where: str = "result") -> None:
    """Assert that what the device gave is what the CPU gave: values, dtype and geometry."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor), where
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), where
        assert actual.requires_grad == expected.requires_grad, where
        if actual.is_shark:
            assert actual.storage_offset() == expected.storage_offset(), where
            assert _steps(actual) == _steps(expected), where
        tolerance: dict[str, float] = {"rtol": 0, "atol": 0} if exact else {}
        torch.testing.assert_close(
            actual.detach().cpu(), expected.detach(), equal_nan=True, **tolerance
        )
    elif isinstance(expected, Mapping):
        assert list(actual) == list(expected), where
        for key, value in expected.items():
            same(actual[key], value, exact=exact, where=f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), where
        for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
            same(one, other, exact=exact, where=f"{where}[{i}]")
    else:
        assert type(actual) is type(expected), where
        assert actual == expected, where


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: a dimension of size 1, or of an empty tensor, may have any."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1 and tensor.numel()]


Program = Callable[[str], Any]


@pytest.fixture
def run_both(policy: str) -> Callable[..., Metrics]:
    """Return `run(program, compiled=True)`: the program on the CPU and on the device, compared.

    A program takes the device's name. On the device it runs twice: natively, where first calls of
    operators run at once, and then under the policy, all recorded. Values are bit-equal natively,
    within the tolerances of torch.testing where they are compiled. `compiled` says whether regions
    must have run under `iree`; under `native` none may. The second run's counters are returned.
    """

    def run(program: Program, *, compiled: bool = True) -> Metrics:
        torch.manual_seed(0)
        expected = program("cpu")
        with config.scope(policy="native"):
            torch.manual_seed(0)
            same(program("shark"), expected, exact=True)
        torch.manual_seed(0)
        torch.shark.synchronize()
        torch.shark.reset_metrics()
        actual = program("shark")
        torch.shark.synchronize()
        counts = torch.shark.metrics()
        same(actual, expected, exact=policy == "native")
        if policy == "native":
            assert (counts.regions, counts.compiles, counts.plans) == (0, 0, 0)
        elif compiled:
            assert counts.regions > 0, torch.shark.explain()
        return counts

    return run


def error_of(work: Callable[[], object]) -> tuple[type[BaseException], str]:
    """The type and the first line of the error that `work` raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 (the caller compares it)
        work()
    return caught.type, str(caught.value).split("\n")[0]


@pytest.fixture
def same_error(policy: str) -> Callable[[Program], None]:
    """Return `check(program)`: it raises on the device what it raises on the CPU, at its call."""

    def check(program: Program) -> None:
        expected = error_of(lambda: program("cpu"))
        for _ in range(2):  # the second time, the operator's metadata may be known
            assert error_of(lambda: program("shark")) == expected
        torch.shark.synchronize()

    return check


@pytest.fixture(scope="session")
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return `run(code, **environment)`: the code in a new interpreter."""

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run
