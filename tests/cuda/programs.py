"""Programs that give the same bits on the shark device over CUDA as on CUDA itself.

A process runs them all on one device and saves their results:
``python programs.py cuda|shark FILE``.
The two devices need a process each, since PyTorch cannot train on CUDA beside a further device.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

Program = Callable[[str], Sequence[torch.Tensor]]
PROGRAMS: dict[str, Program] = {}


def program(run: Program) -> Program:
    """Add a function of a device to the programs."""
    PROGRAMS[run.__name__] = run
    return run


def train(
    model: nn.Module, batch: torch.Tensor, optimizer: Callable[[Any], torch.optim.Optimizer]
) -> list[torch.Tensor]:
    """Take three steps towards zero; give the losses and the parameters."""
    steps = optimizer(model.parameters())
    losses = []
    for _ in range(3):
        loss = model(batch).float().square().mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.detach())
    return [*losses, *(parameter.detach() for parameter in model.parameters())]


@program
def pointwise(device: str) -> Sequence[torch.Tensor]:
    x = torch.randn(1000, device=device)
    y = torch.rand(1000, device=device) + 0.5
    return [x + y, x * 2 - y, (x / y).tanh(), F.gelu(x), y.log(), x.exp().sqrt(), x.clamp(-1, 1)]


@program
def views(device: str) -> Sequence[torch.Tensor]:
    x = torch.arange(24.0, device=device).view(4, 6)
    x[1].mul_(2)
    x.t()[3].add_(1)
    x[::2, 1:4] = -1
    y = x.as_strided((3, 4), (6, 1), 2)
    y.neg_()
    return [x, y, x.transpose(0, 1).contiguous(), x.flip(0), x.roll(1, 1), x.diagonal()]


@program
def reductions(device: str) -> Sequence[torch.Tensor]:
    x = torch.randn(64, 128, device=device)
    return [
        x.sum(),
        x.mean(1),
        x.var(0),
        x.amax(1),
        x.argmin(0),
        x.cumsum(1),
        x.softmax(1),
        x.norm(),
    ]


@program
def products(device: str) -> Sequence[torch.Tensor]:
    a, b = torch.randn(64, 96, device=device), torch.randn(96, 32, device=device)
    bias = torch.randn(32, device=device)
    batch = torch.randn(4, 8, 16, device=device)
    return [
        a @ b,
        torch.addmm(bias, a, b),
        batch @ batch.mT,
        a.bfloat16() @ b.bfloat16(),
        a.half() @ b.half(),
    ]


@program
def indexing(device: str) -> Sequence[torch.Tensor]:
    x = torch.randn(50, 8, device=device)
    index = torch.randint(0, 50, (20,), device=device)
    x[index[:1]] = 3
    mask = x > 0
    return [
        x[index],
        x[torch.tensor([1, 2])],
        x[mask],
        mask.nonzero(),
        x.gather(0, index[:8].unsqueeze(0)),
        x.index_select(0, index),
        x.masked_fill(mask, 0),
        torch.where(mask, x, 2 * x),
        F.embedding(index, x),
        x.sort(0).values,
        x.topk(3).indices,
        torch.bincount(index),
        index.unique(),
    ]


@program
def random_numbers(device: str) -> Sequence[torch.Tensor]:
    results = [torch.randn(100, device=device), torch.rand(100, device=device)]
    results += [torch.randint(9, (100,), device=device), torch.randperm(100, device=device)]
    x = torch.rand(100, device=device)
    results += [x.bernoulli(), torch.multinomial(x, 5), torch.normal(x, 1.0), torch.rand_like(x)]
    torch.manual_seed(3)
    results += [torch.empty(50, device=device).exponential_(), F.dropout(x, 0.3)]
    generator = torch.Generator(device).manual_seed(5)
    results.append(torch.randn(10, device=device, generator=generator))
    state = generator.get_state()
    one = torch.rand(10, device=device, generator=generator)
    generator.set_state(state)
    return [*results, one, torch.rand(10, device=device, generator=generator)]


@program
def seeds_in_order(device: str) -> Sequence[torch.Tensor]:
    results = []
    x = torch.ones(64, device=device)
    for seed in range(5):
        torch.manual_seed(seed)
        results += [F.dropout(x, 0.5), torch.rand(8, device=device)]
    return results


def attend(device: str, *dtypes: torch.dtype) -> Sequence[torch.Tensor]:
    """Attention in all its forms, and its gradients."""
    results = []
    for dtype in dtypes:
        q, k, v = (torch.randn(2, 4, 32, 64, device=device, dtype=dtype) for _ in range(3))
        q.requires_grad_()
        mask = torch.rand(32, 32, device=device) > 0.2
        for options in ({}, {"is_causal": True}, {"attn_mask": mask}, {"dropout_p": 0.2}):
            out = F.scaled_dot_product_attention(q, k, v, **options)
            out.float().sum().backward()
            results += [out.detach(), q.grad.clone()]
            q.grad = None
    return results


@program
def attention(device: str) -> Sequence[torch.Tensor]:
    return attend(device, torch.float32)


@program
def layers(device: str) -> Sequence[torch.Tensor]:
    model = nn.Sequential(
        nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8)
    ).to(device)
    return train(model, torch.randn(16, 32, device=device), torch.optim.AdamW)


@program
def convolutions(device: str) -> Sequence[torch.Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    ).to(device)  # fmt: skip
    sgd = lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9)  # noqa: E731
    return train(model, torch.randn(4, 3, 16, 16, device=device), sgd)


@program
def batch_norm(device: str) -> Sequence[torch.Tensor]:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).to(device)
    results = train(model, torch.randn(4, 3, 16, 16, device=device), torch.optim.Adam)
    model.eval()
    return [*results, *model.buffers(), model(torch.randn(2, 3, 16, 16, device=device)).detach()]


@program
def recurrent(device: str) -> Sequence[torch.Tensor]:
    x = torch.randn(5, 3, 8, device=device)
    results = []
    for layer in (nn.LSTM(8, 16, 2), nn.GRU(8, 16, bidirectional=True), nn.RNN(8, 16)):
        results.append(layer.to(device)(x)[0].detach())
    return results


@program
def optimizers(device: str) -> Sequence[torch.Tensor]:
    results = []
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        model = nn.Linear(16, 16).to(device)
        adam = lambda p, options=options: torch.optim.AdamW(p, 0.01, **options)  # noqa: E731
        results += train(model, torch.randn(8, 16, device=device), adam)
    return results


@program
def mixed_precision(device: str) -> Sequence[torch.Tensor]:
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4)).to(device)
    adam = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler(device)
    x = torch.randn(8, 16, device=device)
    losses = []
    for dtype in (torch.float16, torch.bfloat16, torch.float16):
        with torch.autocast(device, dtype):
            loss = model(x).float().square().mean()
        adam.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        losses.append(loss.detach())
    return [*losses, *(parameter.detach() for parameter in model.parameters())]


@program
def second_derivatives(device: str) -> Sequence[torch.Tensor]:
    x = torch.randn(10, device=device, requires_grad=True)
    (first,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return [first.detach(), second]


@program
def reads(device: str) -> Sequence[torch.Tensor]:
    x = torch.ones(16, device=device)
    total = 0.0
    for i in range(20):
        x = x * 1.01 + i
        total += x.sum().item()
    return [x, torch.tensor(total)]


@program
def copies(device: str) -> Sequence[torch.Tensor]:
    host = torch.randn(1000).pin_memory(device)
    x = host.to(device, non_blocking=True)
    y = torch.empty_like(x)
    y.copy_(host, non_blocking=True)
    y.add_(1)
    back = y.to("cpu", non_blocking=True)
    module = torch.get_device_module(device)
    module.synchronize()
    start, end = (module.Event(enable_timing=True) for _ in range(2))
    start.record()
    z = x @ x
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    return [x, back, z, x.half().float(), x.long()]


@program
def linear_algebra(device: str) -> Sequence[torch.Tensor]:
    a = torch.randn(6, 6, device=device)
    b = a @ a.mT + 6 * torch.eye(6, device=device)
    return [torch.linalg.cholesky(b), torch.linalg.solve(b, a), torch.linalg.inv(b), torch.det(b)]


@program
def transforms(device: str) -> Sequence[torch.Tensor]:
    x = torch.randn(8, 32, device=device)
    y = torch.fft.rfft(x)
    return [y, torch.fft.irfft(y), y.conj() * y, torch.stft(x, 8, return_complex=True)]


@program
def bert(device: str) -> Sequence[torch.Tensor]:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=32,
    )  # fmt: skip
    model = BertForSequenceClassification(config).to(device)
    tokens = torch.randint(0, 100, (2, 16), device=device)
    adam = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for _ in range(3):
        # The embedding's gradient adds up in the order in which the GPU comes to it.
        for each in model.bert.embeddings.parameters():
            each.requires_grad_(False)
        loss = model(tokens, labels=torch.tensor([0, 1], device=device)).loss
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.detach())
    model.eval()
    return [*losses, model(tokens).logits.detach()]


@program
def errors(device: str) -> Sequence[torch.Tensor]:
    caught = []
    for wrong in (
        lambda: torch.ones(2, device=device) + torch.ones(3, device=device),
        lambda: torch.ones(2, 3, device=device) @ torch.ones(2, 3, device=device),
        lambda: torch.empty(1 << 36, device=device).fill_(1).sum().item(),
    ):
        try:
            wrong()
        except torch.OutOfMemoryError:
            caught.append(2)
        except RuntimeError:
            caught.append(1)
    return [torch.tensor(caught), torch.ones(3, device=device) + 1]


def run_all(device: str) -> dict[str, Any]:
    """Return each program's results on the CPU, or the text of its error."""
    results: dict[str, Any] = {}
    for name, run in PROGRAMS.items():
        try:
            torch.manual_seed(1)
            results[name] = [tensor.detach().cpu() for tensor in run(device)]
        except Exception:
            results[name] = traceback.format_exc()
    return results


if __name__ == "__main__":
    torch.save(run_all(sys.argv[1]), sys.argv[2])
    if sys.argv[1] == "shark":
        print(torch.shark.metrics())
