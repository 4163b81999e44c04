"""The CPU's kernel of an operator that has none but its MLIR."""

from __future__ import annotations

import threading
from typing import Any

import iree.runtime as rt
import torch

from torch_shark import compiler
from torch_shark.export.transfer import to_device, to_host
from torch_shark.kernels.kernel import Kernel, KernelError, find_kernel
from torch_shark.lowering.elements import ELEMENTS
from torch_shark.lowering.operators import Operator
from torch_shark.runtime.device import close_at_exit, get_device
from torch_shark.targets import get_target

_DTYPES = {name: dtype for dtype, name in ELEMENTS.items() if dtype != torch.uint8}


class CpuKernel:
    """Runs the body that the operator has at the time, compiled alone when it is first called.

    Args:
        operator: whose.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._lock = threading.Lock()
        self._loaded: tuple[str, _Body] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the results.

        Raises:
            KernelError: the body is not for such arguments, or does not compile.
        """
        kernel = find_kernel(self._operator.name)
        assert kernel is not None
        rest = self._operator.overload._schema.arguments[len(args) :]
        values = [*args, *(kwargs.get(a.name, a.default_value) for a in rest)]
        refused = kernel.refuses(values, ())
        if refused is not None:
            raise KernelError(kernel.operator, f"{refused}; and it has no other")
        with self._lock:
            if self._loaded is None or self._loaded[0] != kernel.digest:
                self._loaded = kernel.digest, _Body(kernel)
            results = self._loaded[1].run(values)
        return results[0] if len(results) == 1 else tuple(results)


class _Body:
    def __init__(self, kernel: Kernel) -> None:
        self._dtypes = [_DTYPES[result.element] for result in kernel.results]
        self._device = get_device(get_target("cpu").driver)
        self._context, module = self._device.load(compiler.compile_kernel(kernel))
        self._function = module.lookup_function(kernel.function)
        close_at_exit(self)

    def run(self, values: list[Any]) -> list[torch.Tensor]:
        self._device.check_process()
        arguments = rt.VmVariantList(len(values))
        results = rt.VmVariantList(len(self._dtypes))
        for value in values:
            if isinstance(value, torch.Tensor):
                arguments.push_ref(to_device(self._device, value))
            elif isinstance(value, float):
                arguments.push_float(value)
            else:
                arguments.push_int(int(value))
        self._context.invoke(self._function, arguments, results)
        return [
            to_host(self._device, results.get_as_object(i, rt.HalBufferView), dtype)
            for i, dtype in enumerate(self._dtypes)
        ]

    def close(self) -> None:
        self._context = self._function = None
