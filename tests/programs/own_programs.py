"""Programs whose models are written out: what people write with torch alone.

Each is a generator of the kind that `transformer_programs` describes.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)
from transformer_programs import state


class UNet(nn.Module):
    """Two levels down and up, each level's features handed across; told the time of diffusion."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 2 * width), nn.SiLU())
        self.first = self.block(3, width)
        self.second = self.block(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = self.block(2 * width, width)
        self.out = nn.Conv2d(width, 3, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.GroupNorm(4, outputs),
            nn.SiLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.SiLU(),
        )

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(torch.arange(8, device=x.device) * (-math.log(1e4) / 8))
        angles = time[:, None] * rates
        embedded = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        first = self.first(x)
        second = self.second(F.avg_pool2d(first, 2)) + embedded[:, :, None, None]
        smooth = F.interpolate(F.max_pool2d(second, 2), scale_factor=2, mode="bilinear")
        return self.out(self.last(torch.cat([first, self.up(second + smooth)], dim=1)))


def train_unet(
    device: str, width: int = 8, batch: int = 2, side: int = 8, steps: int = 4
) -> Iterator[Any]:
    """Learn to tell noise from pictures; clip gradients, keep a moving average of the weights."""
    model = UNet(width).to(device)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1)
    keep = torch.cos(torch.linspace(0, math.pi / 2, 100, device=device))
    pictures = torch.randn(batch, 3, side, side, device=device)
    for _ in range(steps):
        time = torch.randint(100, (batch,), device=device)
        noise = torch.randn_like(pictures)
        share = keep[time][:, None, None, None]
        predicted = model(share * pictures + (1 - share**2).sqrt() * noise, time)
        loss = F.mse_loss(predicted, noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(model)
        yield loss.item()
    yield state(model), state(average)["state"]


class LanguageModel(nn.Module):
    """Words, an LSTM, and the next word."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, size)
        self.lstm = nn.LSTM(size, size, num_layers=2, dropout=0.2, batch_first=True)
        self.out = nn.Linear(size, words)

    def forward(self, tokens: torch.Tensor, memory: Any = None) -> tuple[torch.Tensor, Any]:
        hidden, memory = self.lstm(self.words(tokens), memory)
        return self.out(hidden), memory


def train_lstm(
    device: str, words: int = 31, size: int = 16, batch: int = 3, length: int = 5, steps: int = 4
) -> Iterator[Any]:
    """Truncated backpropagation through time: what the LSTM remembers goes from step to step."""
    model = LanguageModel(words, size).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    text = torch.randint(words, (batch, steps * length + 1))
    memory = None
    torch.manual_seed(1)
    for i in range(0, steps * length, length):
        given = text[:, i : i + length].to(device)
        wanted = text[:, i + 1 : i + length + 1].to(device)
        logits, memory = model(given, memory)
        memory = [value.detach() for value in memory]
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        yield loss.item()
    yield state(model)


class GraphLayer(nn.Module):
    """A message along each edge; a node takes the sum, the mean and the largest of its messages."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.message = nn.Linear(2 * size, size)
        self.update = nn.Linear(4 * size, size)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        messages = self.message(torch.cat([nodes[source], nodes[target]], dim=1)).relu()
        total = torch.zeros_like(nodes).index_add(0, target, messages)
        count = torch.zeros(len(nodes), device=nodes.device)
        count.scatter_add_(0, target, torch.ones_like(target, dtype=nodes.dtype))
        index = target[:, None].expand_as(messages)
        largest = torch.zeros_like(nodes).scatter_reduce(0, index, messages, "amax")
        mean = total / count.clamp(min=1)[:, None]
        return self.update(torch.cat([nodes, total, mean, largest], dim=1)).relu()


class GraphNetwork(nn.Module):
    """Layers of messages, then one prediction per graph of the batch."""

    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.enter = nn.Embedding(7, size)
        self.layers = nn.ModuleList(GraphLayer(size) for _ in range(layers))
        self.norm = nn.BatchNorm1d(size)
        self.out = nn.Linear(size, 1)

    def forward(self, kinds: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor, graphs: int):
        nodes = self.enter(kinds)
        for layer in self.layers:
            nodes = nodes + self.norm(layer(nodes, edges))
        pooled = nodes.new_zeros(graphs, nodes.shape[1]).index_add_(0, graph, nodes)
        return self.out(pooled).squeeze(1)


def train_gnn(
    device: str,
    size: int = 8,
    layers: int = 2,
    graphs: int = 3,
    nodes: int = 5,
    edges: int = 12,
    steps: int = 4,
) -> Iterator[Any]:
    """Predict a number for each of several graphs in one batch."""
    model = GraphNetwork(size, layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    kinds = torch.randint(7, (graphs * nodes,)).to(device)
    first = torch.arange(graphs).repeat_interleave(edges) * nodes
    ends = (torch.randint(nodes, (2, graphs * edges)) + first).to(device)
    graph = torch.arange(graphs, device=device).repeat_interleave(nodes, output_size=len(kinds))
    wanted = torch.randn(graphs).to(device)
    for _ in range(steps):
        loss = F.smooth_l1_loss(model(kinds, ends, graph, graphs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
    yield state(model)


class Autoencoder(nn.Module):
    """A variational autoencoder of small pictures."""

    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.moments = nn.LazyLinear(2 * latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, 4 * width),
            nn.Unflatten(1, (width, 2, 2)),
            nn.Upsample(scale_factor=2),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        mean, log_variance = self.moments(self.encoder(pictures)).chunk(2, dim=1)
        deviation = (log_variance / 2).exp()
        # Dynamo, in a process that has used it, turns validation off for good.
        latent = torch.distributions.Normal(mean, deviation, validate_args=True).rsample()
        fit = F.binary_cross_entropy_with_logits(self.decoder(latent), pictures, reduction="sum")
        distance = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        return (fit + distance) / len(pictures)


def train_vae(
    device: str, width: int = 8, latent: int = 4, batch: int = 3, steps: int = 4
) -> Iterator[Any]:
    """Train on pictures, with a learning rate that falls; then dream some."""
    model = Autoencoder(width, latent)
    pictures = torch.rand(batch, 1, 8, 8)
    with torch.no_grad():
        model(pictures)  # the lazy layer learns its size
    model.to(device)
    pictures = pictures.to(device)
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        loss = model(pictures)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()
    yield state(model)
    with torch.no_grad():
        yield model.decoder(torch.randn(2, latent, device=device)).sigmoid()


class CartPole:
    """The cart and pole of Barto, Sutton and Anderson (1983), in plain numbers on the host."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def reset(self) -> list[float]:
        """Begin near the upright."""
        self.state = [self.chance.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool]:
        """Push left (0) or right (1) for a fiftieth of a second."""
        _, speed, angle, turn = self.state
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * turn**2 * math.sin(angle)) / 1.1
        drop = 9.8 * math.sin(angle) - math.cos(angle) * push
        bend = drop / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        pull = push - 0.05 * bend * math.cos(angle) / 1.1
        changes = speed, pull, turn, bend
        self.state = [old + 0.02 * change for old, change in zip(self.state, changes, strict=True)]
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state, 1.0, fallen


def train_dqn(
    device: str, size: int = 16, batch: int = 8, episodes: int = 2, steps: int = 12
) -> Iterator[Any]:
    """Deep Q-learning: the game on the host, the network on the device, a target that follows."""
    chance = random.Random(0)
    game = CartPole(chance)
    network, target = (
        nn.Sequential(nn.Linear(4, size), nn.ReLU(), nn.Linear(size, 2)).to(device) for _ in "ab"
    )
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2, amsgrad=True)
    memory: deque[tuple[list[float], int, float, list[float], bool]] = deque(maxlen=10_000)
    for _ in range(episodes):
        seen, rewards = game.reset(), 0.0
        for _ in range(steps):
            if chance.random() < 0.3:
                action = chance.randrange(2)
            else:
                with torch.no_grad():
                    action = network(torch.tensor([seen], device=device)).argmax(1).item()
            following, reward, fallen = game.step(action)
            memory.append((seen, action, reward, following, fallen))
            seen, rewards = following, rewards + reward
            if len(memory) >= batch:
                columns = zip(*chance.sample(list(memory), batch), strict=True)
                before, taken, gained, after, ended = (
                    torch.tensor(column, device=device) for column in columns
                )
                with torch.no_grad():
                    best = target(after).max(1).values.masked_fill(ended, 0.0)
                value = network(before).gather(1, taken[:, None]).squeeze(1)
                loss = F.smooth_l1_loss(value, gained + 0.99 * best)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_value_(network.parameters(), 100)
                optimizer.step()
                with torch.no_grad():
                    for followed, leading in zip(
                        target.parameters(), network.parameters(), strict=True
                    ):
                        followed.lerp_(leading, 0.05)
                yield action, loss.item()
            if fallen:
                break
        yield rewards
    yield state(network), state(target)["state"]
