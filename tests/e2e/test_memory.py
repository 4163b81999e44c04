"""A program that is replayed natively takes no more memory than on the CPU."""

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
@pytest.mark.parametrize(
    "program",
    ["digits", "bert", "gpt2", "gpt2-text", "t5", "vit", "resnet", "unet", "lstm", "gnn", "vae"]
    + ["dqn", "lora"],
)
def test_peak_is_that_of_the_cpu(memory, program):
    assert memory.measure(program, "shark") <= memory.BAR * memory.measure(program, "cpu")
