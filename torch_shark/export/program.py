"""A bundle, loaded: a callable that needs IREE's runtime alone, no compiler and no Dynamo."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import iree.runtime as rt
import torch

from torch_shark import processor
from torch_shark.errors import ExecutableLoadError
from torch_shark.export.bundle import check_files, read_manifest
from torch_shark.export.errors import BundleError, NoDeviceError
from torch_shark.export.manifest import SCOPE, Manifest, TargetEntry
from torch_shark.export.signature import TensorSpec
from torch_shark.export.transfer import to_device, to_host
from torch_shark.runtime import ExecutableRunError
from torch_shark.runtime.device import Device, close_at_exit, get_device


class Program:
    """An exported model, loaded for one target.

    Buffers that the model writes (`state`) begin as they were exported and stay from call to call;
    load the bundle again for fresh ones. Calls from several threads take turns.

    Args:
        path: the bundle's folder.
        target: one of the bundle's targets, such as "cpu:x86-64-v3"; by default the first one that
            this machine has a device for.

    Attributes:
        target: the target that was chosen.
        state: the names of the buffers that calls write.

    Raises:
        BundleError: the folder is no bundle, is damaged or from a later version, or lacks `target`.
        NoDeviceError: this machine has no device for it.
        ExecutableLoadError: IREE's runtime refuses the executable.
    """

    def __init__(self, path: Path, target: str | None = None) -> None:
        manifest = read_manifest(path)
        entry, self._device = _choose(path, manifest, target)
        files = (entry.file,) if manifest.parameters is None else (entry.file, manifest.parameters)
        check_files(path, manifest, files)
        self.target = entry.name
        self.state = manifest.state
        self._signature = manifest.signature
        self._name = manifest.function
        self._lock = threading.Lock()
        self._load(path, entry, manifest)
        self._dtypes = [
            getattr(torch, spec.dtype)
            for spec in manifest.signature.outputs
            if isinstance(spec, TensorSpec)
        ]
        close_at_exit(self)

    def _load(self, path: Path, entry: TargetEntry, manifest: Manifest) -> None:
        device, origin = self._device, str(path / entry.file)
        try:
            modules = [device.hal_module]
            if manifest.parameters is not None:
                index = rt.ParameterIndex()
                index.load(str(path / manifest.parameters))
                provider = index.create_provider(scope=SCOPE)
                modules.append(rt.create_io_parameters_module(device.instance, provider))
            module = rt.VmModule.copy_buffer(device.instance, (path / entry.file).read_bytes())
            self._context = rt.VmContext(device.instance, [*modules, module])
            self._function = module.lookup_function(manifest.function.rpartition(".")[2])
        except Exception as error:  # the bindings raise whatever IREE's status code maps to
            raise ExecutableLoadError(entry.name, origin, str(error)) from error
        if self._function is None:
            reason = f"expected function {manifest.function}, got {module.function_names}"
            raise ExecutableLoadError(entry.name, origin, reason)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model.

        Args:
            *args: as in the export: the same structure, all tensors on the CPU or all on shark.
            **kwargs: likewise.

        Returns:
            What the model returned, on the device of the arguments; without gradients.

        Raises:
            TypeError: number, structure or dtypes are not those of the export.
            ValueError: shapes, devices or fixed values are not.
            ExecutableRunError: IREE's runtime reports an error.
            ForkedProcessError: this process is a fork of the one that loaded the bundle.
        """
        tensors, sizes = self._signature.flatten(args, kwargs)
        where = _device_of(tensors)
        results = self._run([tensor.cpu() for tensor in tensors])
        return self._signature.unflatten([result.to(where) for result in results], sizes)

    def _run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self._device.check_process()
        arguments = rt.VmVariantList(len(tensors))
        results = rt.VmVariantList(len(self._dtypes))
        with self._lock:
            if self._context is None:
                raise ExecutableRunError(self._name, "The program is closed.")
            try:
                for tensor in tensors:
                    arguments.push_ref(to_device(self._device, tensor))
                self._context.invoke(self._function, arguments, results)
                return [
                    to_host(self._device, results.get_as_object(i, rt.HalBufferView), dtype)
                    for i, dtype in enumerate(self._dtypes)
                ]
            except Exception as error:
                raise ExecutableRunError(self._name, str(error)) from error

    def close(self) -> None:
        """Unload the program; it can't be called afterwards."""
        with self._lock:
            self._context = self._function = None


def _choose(path: Path, manifest: Manifest, wanted: str | None) -> tuple[TargetEntry, Device]:
    """Return the target to run and its device."""
    entries = [t for t in manifest.targets if wanted is None or wanted == t.name]
    if not entries:
        known = ", ".join(entry.name for entry in manifest.targets)
        raise BundleError(path, f"expected a target among: {known}; got {wanted!r}")
    reasons = {}
    for entry in entries:
        lacking = set(entry.cpu_features) - (processor.features() or set(entry.cpu_features))
        if lacking:
            reasons[entry.name] = f"the CPU lacks {', '.join(sorted(lacking))}"
            continue
        try:
            return entry, get_device(entry.driver)
        except Exception as error:  # as above
            reasons[entry.name] = str(error)
    raise NoDeviceError(path, reasons)


def _device_of(tensors: list[torch.Tensor]) -> torch.device:
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1 or any(device.type not in ("cpu", "shark") for device in devices):
        found = ", ".join(sorted(map(str, devices)))
        raise ValueError(f"[shark] expected all tensors on the CPU or all on shark, got {found}")
    return devices.pop() if devices else torch.device("cpu")
