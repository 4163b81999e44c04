"""Frameworks that drive the loop."""

from functools import partial

import lightning
import pytest
import pytorch_lightning
import torch
from following import slow_when_compiled
from framework_programs import (
    Regression,
    compiled_losses,
    loader,
    regression,
    train_accelerate,
    train_fabric,
    train_lightning,
    train_lora,
    train_trainer,
)

SEEDED = {"shark::seed_", "aten::bernoulli_.float"}  # dropout, after a seed at each step


# peft asks transformers by a name that it deprecates.
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@slow_when_compiled
def test_lora(follow):
    follow(
        train_lora,
        slice(2, 4),
        windows=1,
        native={"aten::bernoulli_.float", "aten::arange.start_out", "aten::cat"},
    )


@slow_when_compiled
def test_accelerate(follow):
    follow(train_accelerate, slice(1, 3), windows=3, native=SEEDED)


@slow_when_compiled
def test_trainer(follow, tmp_path):
    follow(
        partial(train_trainer, folder=tmp_path),
        slice(1, 2),
        windows=30,
        native=SEEDED | {"aten::arange.start_out"},
    )


@slow_when_compiled
def test_trainer_compiles_by_a_backend(policy, tmp_path):
    expected = compiled_losses(tmp_path, None)
    torch._dynamo.reset()
    torch.shark.reset_metrics()
    losses = compiled_losses(tmp_path, "shark")
    torch._dynamo.reset()
    counts = torch.shark.metrics()
    assert counts.flushes["graph"] + counts.flushes["sync"] >= 40  # forward and backward of a step
    assert (counts.regions > 0) == (policy == "iree")
    assert len(losses) == 20
    assert losses == pytest.approx(expected, abs=1e-3)


# Lightning advises on checkpoint folders and workers, and asks torch by a name that it deprecates.
LIGHTNING_WARNS = pytest.mark.filterwarnings(
    "ignore::lightning.fabric.utilities.warnings.PossibleUserWarning",
    "ignore:.*LeafSpec:FutureWarning",
    "ignore:Checkpoint directory:UserWarning",
)


@LIGHTNING_WARNS
@slow_when_compiled
def test_lightning(follow, tmp_path):
    follow(
        partial(train_lightning, folder=tmp_path),
        slice(1, 2),
        windows=15,
        native=SEEDED | {"aten::copy_"},
    )


@LIGHTNING_WARNS
@pytest.mark.parametrize("policy", ["native"], indirect=True)
def test_lightning_in_mixed_precision(follow, tmp_path):
    program = partial(train_lightning, folder=tmp_path, precision="bf16-mixed")
    follow(program, slice(1, 2), windows=15, native=SEEDED | {"aten::copy_"})


@LIGHTNING_WARNS
def test_lightning_scales_the_loss_in_float16(native, tmp_path):
    *_, (losses, _, _) = train_lightning("shark", tmp_path, precision="16-mixed")
    first, last = torch.stack(losses[:3]).mean(), torch.stack(losses[-3:]).mean()
    assert last < 0.9 * first


def test_lightning_has_only_the_devices_that_are_there():
    assert lightning.Trainer(accelerator="shark", devices="auto", logger=False).num_devices == 1
    with pytest.raises(ValueError, match=r"\[shark\] expected devices below 1, got \[0, 1\]"):
        lightning.Trainer(accelerator="shark", devices=2)
    with pytest.raises(ValueError, match=r"\[shark\] expected devices below 1, got \[3\]"):
        lightning.Fabric(accelerator="shark", devices=[3])


@LIGHTNING_WARNS
def test_lightning_with_a_strategy_of_another_device_says_so():
    strategy = lightning.pytorch.strategies.SingleDeviceStrategy("cpu")
    trainer = lightning.Trainer(accelerator="shark", strategy=strategy, max_epochs=1, logger=False)
    with pytest.raises(ValueError, match=r"expected a strategy on a shark device, got one on cpu"):
        trainer.fit(Regression(), loader(regression()))


def test_the_package_of_the_other_name_knows_the_device():
    trainer = pytorch_lightning.Trainer(accelerator="shark", logger=False)
    assert trainer.strategy.root_device == torch.device("shark", 0)


def test_fabric(follow):
    follow(train_fabric, slice(1, 3), windows=6, native=SEEDED)
