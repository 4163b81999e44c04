"""A training step that is replayed natively takes no more memory than on the CPU."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.fixture(scope="module")
def memory():
    spec = importlib.util.spec_from_file_location("memory", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("model", ["digits", "bert"])
def test_peak_is_that_of_the_cpu(memory, model):
    assert memory.measure(model, "shark") <= 1.1 * memory.measure(model, "cpu")
