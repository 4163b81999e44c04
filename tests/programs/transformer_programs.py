"""Programs over transformers' models, with random weights.

A program takes the device's name and is a generator: it yields what a step gave, and at the end the
parameters, their gradients and the buffers of what it trained. The device has a random generator of
its own: a program seeds once more when all that it makes on the host is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    ResNetConfig,
    ResNetForImageClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

Batch = dict[str, torch.Tensor]


def state(model: nn.Module) -> dict[str, Any]:
    """What training left behind."""
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"state": dict(model.state_dict()), "gradients": gradients}


def train(model: nn.Module, batch: Batch, device: str, steps: int) -> Iterator[Any]:
    """Train as users write it: move, AdamW, a loss that is read at every step."""
    model.to(device).train()
    batch = {name: value.to(device) for name, value in batch.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-6)
    torch.manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        yield loss.item()
    yield state(model)


def bert(size: int = 32, layers: int = 2, vocabulary: int = 97) -> BertForSequenceClassification:
    """A BERT that classifies sentences."""
    shape = BertConfig(
        vocab_size=vocabulary,
        hidden_size=size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * size,
        max_position_embeddings=128,
        num_labels=3,
    )
    return BertForSequenceClassification(shape)


def sentences(batch: int, length: int, vocabulary: int = 97) -> Batch:
    """Tokens of sentences of several lengths, padded."""
    lengths = torch.randint(length // 2, length + 1, (batch, 1))
    return {
        "input_ids": torch.randint(1, vocabulary, (batch, length)),
        "attention_mask": (torch.arange(length) < lengths).long(),
    }


def train_bert(
    device: str, batch: int = 3, length: int = 8, steps: int = 4, **shape: int
) -> Iterator[Any]:
    """Fine-tune a classifier, then ask it."""
    model = bert(**shape)
    inputs = sentences(batch, length)
    yield from train(model, {**inputs, "labels": torch.randint(3, (batch,))}, device, steps)
    model.eval()
    with torch.no_grad():
        yield model(**{name: value.to(device) for name, value in inputs.items()}).logits


def gpt2(size: int = 32, layers: int = 2, vocabulary: int = 97) -> GPT2LMHeadModel:
    """A GPT-2."""
    shape = GPT2Config(
        vocab_size=vocabulary,
        n_positions=128,
        n_embd=size,
        n_layer=layers,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(shape)


def train_gpt2(
    device: str, batch: int = 2, length: int = 8, steps: int = 4, **shape: int
) -> Iterator[Any]:
    """Train on the next token."""
    model = gpt2(**shape)
    tokens = torch.randint(1, model.config.vocab_size, (batch, length))
    yield from train(model, {"input_ids": tokens, "labels": tokens}, device, steps)


def generate(
    model: PreTrainedModel, device: str, batch: int, length: int, **how: Any
) -> Iterator[Any]:
    """Generate twice, with the scores of each new token."""
    model.to(device).eval()
    prompt = torch.randint(1, model.config.vocab_size, (batch, length)).to(device)
    mask = torch.ones_like(prompt)
    torch.manual_seed(1)
    for _ in range(2):
        result = model.generate(
            prompt,
            attention_mask=mask,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
            **how,
        )
        yield result.sequences, result.scores


def generate_gpt2(
    device: str, batch: int = 2, length: int = 4, shape: dict[str, int] | None = None, **how: Any
) -> Iterator[Any]:
    """Write on."""
    yield from generate(gpt2(**(shape or {})), device, batch, length, **how)


def t5(size: int = 32, layers: int = 1, vocabulary: int = 97) -> T5ForConditionalGeneration:
    """A T5: an encoder and a decoder that attends to it."""
    shape = T5Config(
        vocab_size=vocabulary,
        d_model=size,
        d_kv=size // 4,
        d_ff=4 * size,
        num_layers=layers,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(shape)


def train_t5(
    device: str, batch: int = 2, length: int = 6, steps: int = 4, **shape: int
) -> Iterator[Any]:
    """Train on pairs of sentences."""
    model = t5(**shape)
    pairs = sentences(batch, length, model.config.vocab_size)
    labels = torch.randint(1, model.config.vocab_size, (batch, length))
    labels[:, -1] = -100
    yield from train(model, {**pairs, "labels": labels}, device, steps)


def generate_t5(device: str, batch: int = 2, length: int = 4, **how: Any) -> Iterator[Any]:
    """Translate."""
    yield from generate(t5(), device, batch, length, **how)


def images(batch: int, side: int, classes: int) -> Batch:
    """Noise, and what it is said to show."""
    return {
        "pixel_values": torch.randn(batch, 3, side, side),
        "labels": torch.randint(classes, (batch,)),
    }


def train_vit(
    device: str, size: int = 32, layers: int = 2, batch: int = 2, side: int = 16, steps: int = 4
) -> Iterator[Any]:
    """Train a vision transformer on images."""
    shape = ViTConfig(
        hidden_size=size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * size,
        image_size=side,
        patch_size=8,
        num_labels=5,
    )
    yield from train(ViTForImageClassification(shape), images(batch, side, 5), device, steps)


def train_resnet(
    device: str,
    sizes: tuple[int, ...] = (8, 16),
    batch: int = 2,
    side: int = 32,
    steps: int = 4,
) -> Iterator[Any]:
    """Train a ResNet on images; then use its running statistics."""
    shape = ResNetConfig(
        embedding_size=sizes[0],
        hidden_sizes=list(sizes),
        depths=[1] * len(sizes),
        layer_type="basic",
        num_labels=5,
    )
    model, inputs = ResNetForImageClassification(shape), images(batch, side, 5)
    yield from train(model, inputs, device, steps)
    model.eval()
    with torch.no_grad():
        yield model(inputs["pixel_values"].to(device)).logits
