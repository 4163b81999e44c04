"""Programs without a model: norms and chains alone, a simulation, an optimizer, a loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm, relu, softmax

from torch_shark.bench.registry import Compiled, Entry, Step

CELLS = 2048  # to a side
SIDE = 256  # of the loop's matrices


def normalize(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Layer norm over the last dimension."""
    return layer_norm(x, x.shape[-1:], weight, bias)


def bias_chain(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A scale and a bias for each feature, relu, and what came in."""
    return relu(x * scale + bias) + x


def apply(
    function: Callable[..., torch.Tensor],
    shapes: tuple[tuple[int, ...], ...],
    device: torch.device,
    compiled: Compiled,
) -> Step:
    """A function of random tensors of given shapes."""
    call = compiled(function)
    inputs = [torch.randn(shape).to(device) for shape in shapes]
    return lambda: [call(*inputs)]


def diffuse(heat: torch.Tensor, source: torch.Tensor) -> None:
    """One explicit step of the heat equation, in place, with a source and losses to the air.

    Args:
        heat: temperature above the air's, (rows, columns); the rim is held as it is.
        source: heat per step, of that shape.
    """
    inside = heat[1:-1, 1:-1]
    neighbours = heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:]
    inside += 0.2 * (neighbours - 4 * inside) + source[1:-1, 1:-1] - 0.01 * inside


def simulate(device: torch.device, compiled: Compiled) -> Step:
    """A plate of 4M cells."""
    heat = torch.rand(CELLS, CELLS).to(device)
    source = (0.01 * torch.rand(CELLS, CELLS)).to(device)
    advance = compiled(diffuse)

    def step() -> list[torch.Tensor]:
        advance(heat, source)
        return [heat]

    return step


def bert_shapes() -> list[tuple[int, ...]]:
    """The shapes of BERT-base's parameters."""
    square, wide, norm = [(768, 768), (768,)], [(3072, 768), (3072,)], [(768,), (768,)]
    layer = [*4 * square, *norm, *wide, (768, 3072), (768,), *norm]
    return [(30522, 768), (512, 768), (2, 768), *norm, *12 * layer, *square]


def adamw(form: str | None, device: torch.device, compiled: Compiled) -> Step:
    """AdamW over parameters of the shapes of BERT-base's, with gradients that stay.

    Args:
        form: how it goes over them, "foreach" or "fused"; None for one after another.
        device: where they are.
        compiled: what to do to the step.
    """
    shapes = bert_shapes()
    parameters = [nn.Parameter((0.02 * torch.randn(shape)).to(device)) for shape in shapes]
    for parameter, shape in zip(parameters, shapes, strict=True):
        parameter.grad = (0.001 * torch.randn(shape)).to(device)
    update = compiled(
        torch.optim.AdamW(parameters, foreach=form == "foreach", fused=form == "fused").step
    )
    probes = [parameters[1].detach(), parameters[-1].detach()]

    def step() -> list[torch.Tensor]:
        update()
        return probes

    return step


def relax(x: torch.Tensor, weight: torch.Tensor, rate: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten relaxations, about 60 operators.

    Args:
        x: the state, a square matrix.
        weight: a matrix of that shape.
        rate: how far to go.

    Returns:
        The new state, and how far it is from the old one, a scalar.
    """
    before = x
    for _ in range(10):
        x = x + rate * (torch.tanh(x @ weight) - x)
        x = x * 0.99
    return x, (x - before).abs().mean()


def data_loop(device: torch.device, compiled: Compiled) -> Step:
    """Each step reads how far it went, to choose the next one's rate."""
    state = torch.randn(SIDE, SIDE).to(device)
    weight = (torch.randn(SIDE, SIDE) * 2 / SIDE**0.5).to(device)
    advance = compiled(relax)
    rate = 0.5

    def step() -> list[torch.Tensor]:
        nonlocal state, rate
        state, distance = advance(state, weight, rate)
        rate = 0.25 if distance.item() > 0.4 else 0.5
        return [state]

    return step


ENTRIES = (
    Entry("heat", f"2-D heat, {CELLS} x {CELLS} cells", simulate),
    *(
        Entry(
            name,
            f"AdamW, 110M parameters, {about}",
            partial(adamw, form),
            training=True,
            fused=partial(adamw, "fused"),
        )
        for name, about, form in (
            ("adamw-single", "single-tensor", None),
            ("adamw-foreach", "foreach", "foreach"),
        )
    ),
    *(
        Entry(name, about, partial(apply, function, shapes), pure=True)
        for name, about, function, shapes in (
            ("softmax", "softmax, 12 x 512 x 512", partial(softmax, dim=-1), ((12, 512, 512),)),
            ("layer-norm", "layer norm, 512 x 768", normalize, ((512, 768), (768,), (768,))),
            ("gelu", "gelu, 512 x 3072", gelu, ((512, 3072),)),
            (
                "bias-chain",
                "relu(x * scale + bias) + x, 512 x 3072",
                bias_chain,
                ((512, 3072), (3072,), (3072,)),
            ),
        )
    ),
    Entry(
        "data-loop",
        f"60 operators on {SIDE} x {SIDE}, then a sync; 200 steps",
        data_loop,
        steps=200,
    ),
)
