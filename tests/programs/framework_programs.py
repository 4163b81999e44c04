"""Programs whose loop belongs to a framework, which is told of the device in its own way.

Each is a generator of the kind that `transformer_programs` describes, of one value per run of the
framework's loop. A framework's data loaders draw from the host's random numbers, which are
those of a model on the CPU too, but not of one on the device: loops seed at each step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import lightning
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)
from torch.utils.data import DataLoader, TensorDataset
from transformer_programs import bert, gpt2, sentences, state, train
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments

import torch_shark.integrations.accelerate  # makes the backend known
import torch_shark.integrations.lightning  # noqa: F401 (makes accelerator="shark" known)


def train_lora(device: str, batch: int = 2, length: int = 8, **shape: int) -> Iterator[Any]:
    """Train adapters of a frozen GPT-2 through `peft`, then merge them into its weights."""
    adapters = LoraConfig(r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True)
    model = get_peft_model(gpt2(**shape), adapters)
    tokens = torch.randint(1, model.config.vocab_size, (batch, length))
    yield from train(model, {"input_ids": tokens, "labels": tokens}, device, steps=4)
    merged = model.merge_and_unload().eval()
    with torch.no_grad():
        yield merged(tokens.to(device)).logits


def regression(rows: int = 24) -> TensorDataset:
    """Points and a number for each."""
    return TensorDataset(torch.randn(rows, 8), torch.randn(rows))


def loader(data: Any, batch_size: int = 8) -> DataLoader[Any]:
    """Shuffled batches."""
    order = torch.Generator().manual_seed(3)
    return DataLoader(data, batch_size=batch_size, shuffle=True, generator=order)


def network() -> nn.Sequential:
    """A network of two layers with dropout."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))


def on(device: str) -> Any:
    """Tell `accelerate` the device, as a user's environment does."""
    AcceleratorState._reset_state(reset_partial_state=True)  # it is kept for the process
    return mock.patch.dict(os.environ, ACCELERATE_TORCH_DEVICE=device)


def train_accelerate(device: str) -> Iterator[Any]:
    """`accelerate`: gradients of two batches in each step, clipped."""
    with on(device):
        accelerator = Accelerator(gradient_accumulation_steps=2)
        assert accelerator.device.type == device
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        model, optimizer, batches = accelerator.prepare(model, optimizer, loader(regression(32)))
        for _ in range(3):
            losses = []
            for step, (x, y) in enumerate(batches):
                set_seed(step)
                with accelerator.accumulate(model):
                    loss = F.mse_loss(model(x).squeeze(1), y)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                losses.append(accelerator.gather_for_metrics(loss.detach()))
            yield torch.stack(losses).tolist()
        yield accelerator.get_state_dict(model)


class SeedEachStep(TrainerCallback):
    """Dropout draws the same numbers wherever the model is."""

    def on_step_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        """The Trainer calls this before each step."""
        torch.manual_seed(state.global_step)


def train_trainer(device: str, folder: Path) -> Iterator[Any]:
    """The `Trainer` of transformers, with evaluation; the second begins where the first ended."""
    model = bert()
    inputs = {**sentences(6, 8), "labels": torch.randint(3, (6,))}
    rows = [{name: value[i] for name, value in inputs.items()} for i in range(6)]
    for _ in range(2):
        with on(device):
            arguments = TrainingArguments(
                output_dir=str(folder),
                per_device_train_batch_size=3,
                per_device_eval_batch_size=3,
                num_train_epochs=2,
                learning_rate=1e-3,
                adam_epsilon=1e-6,
                logging_steps=1,
                save_strategy="no",
                eval_strategy="epoch",
                report_to=[],
                disable_tqdm=True,
                seed=1,
                use_cpu=False,
            )
            trainer = Trainer(
                model,
                arguments,
                train_dataset=rows,
                eval_dataset=rows,
                callbacks=[SeedEachStep()],
            )
            assert trainer.model.device.type == device
            trainer.train()
            kept = ("loss", "grad_norm", "eval_loss")
            logs = [{k: e[k] for k in kept if k in e} for e in trainer.state.log_history]
            yield logs, dict(model.state_dict())


def compiled_losses(folder: Path, backend: str | None) -> list[float]:
    """The losses of 20 steps of the `Trainer` on the CPU, compiled by a backend if one is given.

    Without dropout: compiled or not, it draws other numbers.
    """
    torch.manual_seed(0)
    model = bert()
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    inputs = {**sentences(6, 8), "labels": torch.randint(3, (6,))}
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=3,
        max_steps=20,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=1,
        use_cpu=True,
        torch_compile_backend=backend,
    )
    rows = [{name: value[i] for name, value in inputs.items()} for i in range(6)]
    trainer = Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


class Regression(lightning.LightningModule):
    """The network as Lightning has it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.losses: list[torch.Tensor] = []

    def loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """The loss of a batch, which Lightning has moved to the device."""
        assert batch[0].device == self.device
        return F.mse_loss(self.network(batch[0]).squeeze(1), batch[1])

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        """Lightning calls this before each step."""
        torch.manual_seed(index)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """Lightning's own loop does the rest."""
        loss = self.loss(batch)
        self.losses.append(loss.detach())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        """After each epoch."""
        self.log("validation", self.loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def train_lightning(device: str, folder: Path, **options: Any) -> Iterator[Any]:
    """Lightning's `Trainer`, with validation; the second goes on from the first's checkpoint."""
    module, checkpoint = Regression(), None
    data = regression()
    for epochs in (2, 4):
        trainer = lightning.Trainer(
            accelerator=device,
            devices=1,
            max_epochs=epochs,
            default_root_dir=folder,
            logger=False,
            gradient_clip_val=1.0,
            enable_progress_bar=False,
            enable_model_summary=False,
            **options,
        )
        assert trainer.strategy.root_device.type == device
        trainer.fit(module, loader(data), DataLoader(data, batch_size=8), ckpt_path=checkpoint)
        checkpoint = trainer.checkpoint_callback.best_model_path
        yield module.losses, dict(trainer.callback_metrics), dict(module.state_dict())


def train_fabric(device: str) -> Iterator[Any]:
    """Lightning's `Fabric`: the loop is the user's."""
    fabric = lightning.Fabric(accelerator=device, devices=1)
    assert fabric.device.type == device
    weights, data = network().state_dict(), regression()
    with fabric.init_module():
        model = network()
    model.load_state_dict(weights)
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=1e-2))
    batches = fabric.setup_dataloaders(loader(data))
    for _ in range(3):
        for step, (x, y) in enumerate(batches):
            torch.manual_seed(step)
            loss = F.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
        yield loss.item()
    yield state(model.module)
