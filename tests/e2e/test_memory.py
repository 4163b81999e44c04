"""Programs take no more memory than on the CPU."""

import importlib.util
from pathlib import Path

import pytest
import torch

from torch_shark import config

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
    ["digits", "adamw", "bert", "gpt2", "gpt2-text", "t5", "vit", "resnet", "unet", "lstm"]
    + ["gnn", "vae", "dqn", "lora"],
)
def test_peak_is_that_of_the_cpu(memory, program):
    assert memory.measure(program, "shark") <= memory.BAR * memory.measure(program, "cpu")


@pytest.mark.parametrize("policy", ["native", "iree"])
def test_foreach_adamw_takes_its_state_and_one_list_of_results(policy):
    parameters = [torch.nn.Parameter(torch.ones(512, 512).to("shark")) for _ in range(8)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.5)
    torch.shark.synchronize()
    before = torch.shark.memory_allocated()
    torch.shark.reset_peak_memory_stats()
    with config.scope(policy=policy):
        optimizer = torch.optim.AdamW(parameters, foreach=True)
        for _ in range(3):
            optimizer.step()
        torch.shark.synchronize()
    size = sum(parameter.nbytes for parameter in parameters)
    held = torch.shark.memory_allocated() - before
    assert 2 * size <= held <= 2.01 * size
    assert torch.shark.max_memory_allocated() - before <= 3.01 * size


def test_whether_a_kernel_takes_large_tensors_is_tried_with_few_elements():
    x, y = torch.zeros(1 << 20, dtype=torch.cfloat, device="shark"), torch.ones(1, device="shark")
    torch.shark.synchronize()
    before = torch.shark.memory_allocated()
    torch.shark.reset_peak_memory_stats()
    x.addcmul_(y, y, value=2)
    torch.shark.synchronize()
    assert torch.shark.max_memory_allocated() - before < x.nbytes
    assert x[-1].item() == 2
    with pytest.raises(RuntimeError, match="unsupported operation"):
        x[:1].expand(1 << 20).addcmul_(y, y, value=2)
