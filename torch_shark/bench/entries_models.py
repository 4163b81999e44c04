"""Models of transformers and an LSTM, with random weights: forward, and whole training steps.

Models in training have no dropout, so that the results of all peers can be compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MobileNetV2Config,
    MobileNetV2ForImageClassification,
    ResNetConfig,
    ResNetForImageClassification,
)

from torch_shark.bench.registry import Compiled, Entry, Step

CLASSES = 1000
LENGTHS = 40
NEW_TOKENS = 32

MINILM = BertConfig(
    hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536
)
BERT = BertConfig()


class Encoder(nn.Module):
    """A BERT that returns the vectors of its tokens, as one tensor."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The last layer's vectors, (batch, length, hidden), of tokens, (batch, length)."""
        vectors: torch.Tensor = self.bert(tokens).last_hidden_state
        return vectors


class Classifier(nn.Module):
    """One of transformers' classifiers, returning its logits as one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The logits, (batch, classes)."""
        logits: torch.Tensor = self.model(inputs).logits
        return logits


def resnet50() -> nn.Module:
    """ResNet-50 for 1000 classes."""
    config = ResNetConfig()
    config.num_labels = CLASSES
    return Classifier(ResNetForImageClassification(config))


def mobilenet() -> nn.Module:
    """MobileNetV2 for 1000 classes."""
    config = MobileNetV2Config(classifier_dropout_prob=0.0)
    config.num_labels = CLASSES
    return Classifier(MobileNetV2ForImageClassification(config))


def forward(
    make: Callable[[], nn.Module],
    inputs: Callable[[], torch.Tensor],
    device: torch.device,
    compiled: Compiled,
) -> Step:
    """A model that is evaluated on one batch."""
    model = compiled(make().eval().to(device))
    batch = inputs().to(device)
    return lambda: [model(batch)]


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    compiled: Compiled,
) -> Step:
    """A classifier that is trained on one batch; the step's result is its loss."""
    compiled_model, update = compiled(model), compiled(optimizer.step)

    def step() -> list[torch.Tensor]:
        loss = cross_entropy(compiled_model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        update()
        return [loss.detach()]

    return step


def tokens(batch: int, length: int) -> torch.Tensor:
    """Random tokens of BERT's vocabulary."""
    return torch.randint(0, BERT.vocab_size, (batch, length))


def images(batch: int) -> torch.Tensor:
    """Random images of the size of ImageNet's."""
    return torch.randn(batch, 3, 224, 224)


def train_bert(device: torch.device, compiled: Compiled) -> Step:
    """BERT-base, one text of 128 tokens, AdamW."""
    config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = Classifier(BertForSequenceClassification(config)).train().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    labels = torch.tensor([1])
    return train(model, optimizer, tokens(1, 128).to(device), labels.to(device), compiled)


def train_images(make: Callable[[], nn.Module], device: torch.device, compiled: Compiled) -> Step:
    """A network for images, eight of them, SGD with momentum."""
    model = make().train().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    inputs, labels = images(8), torch.randint(CLASSES, (8,))
    return train(model, optimizer, inputs.to(device), labels.to(device), compiled)


def decode_gpt2(device: torch.device, compiled: Compiled) -> Step:
    """GPT-2 small continues a text of 16 tokens, greedily, keeping keys and values."""
    config = GPT2Config()
    model: nn.Module = GPT2LMHeadModel(config)
    model = compiled(model.eval().to(device))
    prompt = torch.randint(0, config.vocab_size, (1, 16)).to(device)

    def step() -> list[torch.Tensor]:
        text, cache, chosen = prompt, None, []
        for _ in range(NEW_TOKENS):
            output = model(text, cache=cache, use_cache=True)
            cache = output.cache
            last = output.logits[:, -1]
            text = last.argmax(-1, keepdim=True)
            chosen.append(text)
        return [torch.cat(chosen, 1), last]

    return step


def lengths(device: torch.device, compiled: Compiled) -> Step:
    """A text of another length at each step, 9 to 243 tokens, in no order."""
    model = compiled(Encoder(MINILM).eval().to(device))
    order = torch.randperm(LENGTHS).tolist()
    texts = itertools.cycle([tokens(1, 9 + 6 * place).to(device) for place in order])
    return lambda: [model(next(texts))]


class Lstm(nn.Module):
    """Two layers of LSTM, returning what they give for each moment."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(256, 256, num_layers=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The hidden states, (length, batch, hidden), of inputs of that shape."""
        states: torch.Tensor = self.lstm(x)[0]
        return states


def _forward(name: str, about: str, make: Callable[[], nn.Module], inputs: Any) -> Entry:
    return Entry(name, about, partial(forward, make, inputs), pure=True)


ENTRIES = (
    *(
        _forward(name, about, partial(Encoder, config), partial(tokens, batch, length))
        for name, about, config, batch, length in (
            ("minilm-b1", "MiniLM-L12, 1 x 128 tokens", MINILM, 1, 128),
            ("minilm-b8", "MiniLM-L12, 8 x 128 tokens", MINILM, 8, 128),
            ("bert-128", "BERT-base, 1 x 128 tokens", BERT, 1, 128),
            ("bert-512", "BERT-base, 1 x 512 tokens", BERT, 1, 512),
        )
    ),
    Entry("bert-train", "BERT-base, 1 x 128 tokens, step with AdamW", train_bert, training=True),
    _forward("resnet-b1", "ResNet-50, 1 image", resnet50, partial(images, 1)),
    _forward("resnet-b8", "ResNet-50, 8 images", resnet50, partial(images, 8)),
    Entry(
        "resnet-train",
        "ResNet-50, 8 images, step with SGD",
        partial(train_images, resnet50),
        training=True,
    ),
    _forward("mobilenet-b1", "MobileNetV2, 1 image", mobilenet, partial(images, 1)),
    _forward("mobilenet-b8", "MobileNetV2, 8 images", mobilenet, partial(images, 8)),
    Entry(
        "mobilenet-train",
        "MobileNetV2, 8 images, step with SGD",
        partial(train_images, mobilenet),
        training=True,
    ),
    Entry(
        "gpt2-decode",
        f"GPT-2 small, {NEW_TOKENS} tokens with KV cache",
        decode_gpt2,
        pure=True,
        passes=NEW_TOKENS,
    ),
    _forward("lstm", "LSTM, 2 layers of 256, 64 x 16", Lstm, partial(torch.randn, 64, 16, 256)),
    Entry("lengths", f"MiniLM-L12, {LENGTHS} texts of different lengths", lengths, steps=LENGTHS),
)
