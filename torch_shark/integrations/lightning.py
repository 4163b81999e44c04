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
    """Make the accelerator known to one distribution of Lightning."""
    accelerators = import_module(f"{trainer_package}.accelerators")
    kind = type("SharkAccelerator", (SharkAccelerator, accelerators.Accelerator), {})
    fabric = import_module(f"{fabric_package}.accelerators")
    for registry in (accelerators.AcceleratorRegistry, fabric.ACCELERATOR_REGISTRY):
        registry.register("shark", kind, description="torch.device('shark')")
    connector = import_module(f"{trainer_package}.trainer.connectors.accelerator_connector")
    _connect(connector._AcceleratorConnector, "_precision_flag", trainer_package)
    connector = import_module(f"{fabric_package}.connector")
    _connect(connector._Connector, "_precision_input", fabric_package)


def _connect(connector_class: Any, precision_flag: str, package: str) -> None:
    """Mend two choices that Lightning makes for an accelerator that it does not know.

    Its strategy of a single device is on the CPU, and its mixed precision casts on CUDA.
    """
    single_device = import_module(f"{package}.strategies").SingleDeviceStrategy
    mixed_precision = import_module(f"{package}.plugins.precision").MixedPrecision
    choose_strategy = connector_class._choose_strategy
    init_precision = connector_class._check_and_init_precision

    @wraps(choose_strategy)
    def strategy(connector: Any) -> Any:
        chosen = choose_strategy(connector)
        if _is_ours(connector) and isinstance(chosen, single_device):
            return single_device(connector._parallel_devices[0])
        return chosen

    @wraps(init_precision)
    def precision(connector: Any) -> Any:
        flag = getattr(connector, precision_flag)
        if _is_ours(connector) and flag in ("16-mixed", "bf16-mixed"):
            return mixed_precision(flag, "shark")
        return init_precision(connector)

    connector_class._choose_strategy = strategy
    connector_class._check_and_init_precision = precision


def _is_ours(connector: Any) -> bool:
    return isinstance(connector.accelerator, SharkAccelerator)


for _trainer_package, _fabric_package in (
    ("lightning.pytorch", "lightning.fabric"),
    ("pytorch_lightning", "lightning_fabric"),
):
    if find_spec(_trainer_package.split(".")[0]) is not None:
        _register(_trainer_package, _fabric_package)
