"""Compile a two-layer network with torch.compile(backend="shark"), forward and backward."""

import sys

import torch
from torch import nn


def run(network, model, x):
    """The network's result and the gradients of the model's parameters, on the CPU."""
    model.zero_grad()
    y = network(x)
    y.square().mean().backward()
    return [y.detach().cpu(), *(parameter.grad.cpu() for parameter in model.parameters())]


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)).to("shark")
    x = torch.randn(32, 64, device="shark")
    eager = run(model, model, x)

    compiled_model = torch.compile(model, backend="shark")
    torch.shark.reset_metrics()
    compiled = run(compiled_model, model, x)
    counts = torch.shark.metrics()

    print(f"{'':14s}shape        largest difference from eager")
    names = ["result", *(name for name, _ in model.named_parameters())]
    differences = [(a - b).abs().max().item() for a, b in zip(eager, compiled, strict=True)]
    for name, value, difference in zip(names, compiled, differences, strict=True):
        print(f"{name:14s}{tuple(value.shape)!s:12s} {difference:.1e}")
    print(f"windows {counts.windows}, of them graphs {counts.flushes['graph']}")
    print(f"regions {counts.regions}, operators in them {counts.region_operators}")
    return 0 if max(differences) <= 1e-6 and counts.regions > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
