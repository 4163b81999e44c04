"""Lightning on the device.

``import torch_shark.integrations.lightning`` makes ``Trainer(accelerator="shark")`` and
``Fabric(accelerator="shark")`` work, of the package ``lightning`` and of ``pytorch_lightning``.
"""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from torch_shark import device as shark


class SharkAccelerator:
    """What Lightning asks of an accelerator; mixed into the base class of each of its packages."""

    def setup_device(self, device: torch.device) -> None:
        """Make a device the current one.

        Raises:
            ValueError: the strategy is on another device.
        """
        if device.type != "shark":
            raise ValueError(f"[shark] expected a strategy on a shark device, got one on {device}")
        shark.set_device(device)

    def get_device_stats(self, device: torch.device) -> dict[str, int]:
        """What `DeviceStatsMonitor` logs: memory, in bytes."""
        return shark.memory_stats(device)

    def teardown(self) -> None:
        """Give memory that is kept for reuse back."""
        shark.empty_cache()

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        """The indices of the devices of a Trainer.

        Args:
            devices: how many (-1 for all), or which; text is taken as Lightning takes it.

        Raises:
            ValueError: there is no such device.
        """
        if isinstance(devices, str):
            indices = [int(index) for index in devices.split(",") if index.strip()]
            devices = indices if "," in devices else indices[0]
        if isinstance(devices, int):
            devices = list(range(shark.device_count() if devices == -1 else devices))
        if not set(devices) <= set(range(shark.device_count())):
            raise ValueError(
                f"[shark] expected devices below {shark.device_count()}, got {devices}"
            )
        return devices

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """The devices of these indices."""
        return [torch.device("shark", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """How many devices ``devices="auto"`` takes."""
        return shark.device_count()

    @staticmethod
    def is_available() -> bool:
        """Whether the device can be used."""
        return shark.is_available()

    @staticmethod
    def name() -> str:
        """The name in ``accelerator=``."""
        return "shark"


def _register(trainer_package: str, fabric_package: str) -> None:
    """Add the accelerator to the registries of one distribution of Lightning."""
    accelerators = import_module(f"{trainer_package}.accelerators")
    kind = type("SharkAccelerator", (SharkAccelerator, accelerators.Accelerator), {})
    fabric = import_module(f"{fabric_package}.accelerators")
    for registry in (accelerators.AcceleratorRegistry, fabric.ACCELERATOR_REGISTRY):
        registry.register("shark", kind, description="torch.device('shark')")
    connector = import_module(f"{trainer_package}.trainer.connectors.accelerator_connector")
    _place(connector._AcceleratorConnector, import_module(f"{trainer_package}.strategies"))
    connector = import_module(f"{fabric_package}.connector")
    _place(connector._Connector, import_module(f"{fabric_package}.strategies"))


def _place(connector_class: Any, strategies: Any) -> None:
    """Put the strategy of a single device there: Lightning has the CPU for one it does not know."""
    choose = connector_class._choose_strategy

    @wraps(choose)
    def choose_strategy(connector: Any) -> Any:
        strategy = choose(connector)
        if isinstance(connector.accelerator, SharkAccelerator) and isinstance(
            strategy, strategies.SingleDeviceStrategy
        ):
            return strategies.SingleDeviceStrategy(connector._parallel_devices[0])
        return strategy

    connector_class._choose_strategy = choose_strategy


for _trainer_package, _fabric_package in (
    ("lightning.pytorch", "lightning.fabric"),
    ("pytorch_lightning", "lightning_fabric"),
):
    if find_spec(_trainer_package.split(".")[0]) is not None:
        _register(_trainer_package, _fabric_package)
