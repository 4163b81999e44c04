"""Peak memory of training steps on the shark device, replayed natively, against the CPU.

A figure is the growth of a fresh process's resident memory, from after the model's construction to
the peak of a few steps, and the median of several processes. `python benchmarks/memory.py` prints
the table; `python benchmarks/memory.py MODEL DEVICE` is one such process and prints bytes.
"""

import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

STEPS = 5
PROCESSES = 3


def make_digits():
    """A convolutional network, its loss, and 256 images of 8 x 8."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )
    batch = {"images": torch.randn(256, 1, 8, 8), "labels": torch.randint(10, (256,))}
    return model, lambda images, labels: nn.functional.cross_entropy(model(images), labels), batch


def make_bert():
    """Four layers of BERT of hidden size 256, a loss, and 16 sentences of 128 tokens."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    model = BertModel(config)
    batch = {"tokens": torch.randint(config.vocab_size, (16, 128))}
    return model, lambda tokens: model(tokens).last_hidden_state.square().mean(), batch


def make_tiny():
    """The least that trains."""
    model = nn.Linear(8, 8)
    return model, lambda x: model(x).sum(), {"x": torch.randn(4, 8)}


MODELS = {"digits": make_digits, "bert": make_bert}


def resident(field):
    """The process's resident memory in bytes: `VmRSS` now, `VmHWM` its peak."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)[1]) << 10


def growth(make, device):
    """Bytes by which training a few steps of a model makes this process grow."""
    torch.manual_seed(0)
    model, loss_of, batch = make()
    model.to(device)
    batch = {name: value.to(device) for name, value in batch.items()}
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(**batch)
        loss.backward()
        optimizer.step()
        loss.item()
    return resident("VmHWM") - before


def measure(name, device):
    """The median growth of fresh processes under the native policy, in bytes."""
    command = [sys.executable, __file__, name, device]
    environment = os.environ | {"TORCH_SHARK_POLICY": "native"}
    runs = [
        subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    return statistics.median(int(run.stdout) for run in runs)


def main():
    """Print the table, or be one of the measured processes."""
    if len(sys.argv) == 3:
        name, device = sys.argv[1:]
        growth(make_tiny, device)  # what is imported and made once per process is not the model's
        print(growth(MODELS[name], device))
        return
    print("model      CPU MiB  shark MiB  ratio")
    for name in MODELS:
        cpu, shark = measure(name, "cpu"), measure(name, "shark")
        print(f"{name:8s} {cpu / 2**20:9.1f}  {shark / 2**20:9.1f}  {shark / cpu:5.2f}")


if __name__ == "__main__":
    main()
