"""Peak memory of real programs on the shark device, replayed natively, against the CPU.

A figure is the growth of a fresh process's resident memory from before the program (models are made
on the host and moved, as users do) to its peak, and the median of several processes.
`python benchmarks/memory.py [PROGRAM ...]` prints the table; `python benchmarks/memory.py --one
PROGRAM DEVICE` is one such process and prints bytes. Exits non-zero if a program takes more than
`BAR` times what it takes on the CPU.
"""

import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "programs"))

import framework_programs as frameworks
import own_programs as own
import transformer_programs as transformers

BAR = 1.15
PROCESSES = 3
LANGUAGE = {"size": 128, "layers": 4, "vocabulary": 5000}


def train_digits(device, batch=4, steps=5):
    """A convolutional network and images of 8 x 8."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    ).to(device)
    images, labels = torch.randn(batch, 1, 8, 8).to(device), torch.randint(10, (batch,)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def update_adamw(device, count=4, size=8, steps=3):
    """AdamW, foreach, over square matrices that come from the host."""
    parameters = [nn.Parameter((0.02 * torch.randn(size, size)).to(device)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = (0.001 * torch.randn(size, size)).to(device)
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    for _ in range(steps):
        optimizer.step()
        yield parameters[0][0, 0].item()


# Each program, and the sizes at which it is measured. At its own, small, sizes it runs before the
# measurement: what is imported and made once per process is not the program's.
PROGRAMS = {
    "digits": (train_digits, {"batch": 512}),
    "adamw": (update_adamw, {"count": 100, "size": 768}),
    "bert": (transformers.train_bert, {**LANGUAGE, "batch": 8, "length": 64}),
    "gpt2": (transformers.train_gpt2, {**LANGUAGE, "batch": 8, "length": 64}),
    "gpt2-text": (
        transformers.generate_gpt2,
        {"shape": LANGUAGE, "batch": 32, "length": 64, "max_new_tokens": 16},
    ),
    "t5": (transformers.train_t5, {**LANGUAGE, "batch": 8, "length": 48}),
    "vit": (transformers.train_vit, {"size": 128, "layers": 4, "batch": 16, "side": 64}),
    "resnet": (transformers.train_resnet, {"sizes": (16, 32, 64), "batch": 16, "side": 64}),
    "unet": (own.train_unet, {"width": 16, "batch": 8, "side": 32}),
    "lstm": (own.train_lstm, {"words": 5000, "size": 128, "batch": 32, "length": 16}),
    "gnn": (own.train_gnn, {"size": 64, "layers": 3, "graphs": 64, "nodes": 50, "edges": 200}),
    "vae": (own.train_vae, {"width": 64, "batch": 512}),
    "dqn": (own.train_dqn, {"size": 512, "batch": 256, "episodes": 30, "steps": 30}),
    "lora": (frameworks.train_lora, {**LANGUAGE, "batch": 8, "length": 64}),
}


def resident(field):
    """The process's resident memory in bytes: `VmRSS` now, `VmHWM` its peak."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)[1]) << 10


def run(program, device, sizes):
    """Run a program to its end."""
    torch.manual_seed(0)
    for _ in program(device, **sizes):
        pass
    torch.shark.synchronize()


def growth(name, device):
    """Bytes by which a program makes this process grow."""
    program, sizes = PROGRAMS[name]
    run(program, device, {})
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    run(program, device, sizes)
    return resident("VmHWM") - before


def measure(name, device):
    """The median growth of fresh processes under the native policy, in bytes."""
    command = [sys.executable, __file__, "--one", name, device]
    environment = os.environ | {"TORCH_SHARK_POLICY": "native"}
    runs = [
        subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    return statistics.median(int(run.stdout) for run in runs)


def main():
    """Print the table, or be one of the measured processes."""
    if sys.argv[1:2] == ["--one"]:
        print(growth(*sys.argv[2:]))
        return 0
    missed = 0
    print(f"program      CPU MiB  shark MiB  ratio  (bar {BAR})")
    for name in sys.argv[1:] or PROGRAMS:
        cpu, shark = measure(name, "cpu"), measure(name, "shark")
        print(f"{name:10s} {cpu / 2**20:9.1f}  {shark / 2**20:9.1f}  {shark / cpu:5.2f}")
        missed += shark > BAR * cpu
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
