"""A compiled region, loaded and called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import iree.runtime as rt

from torch_shark.errors import ExecutableLoadError, SharkError
from torch_shark.lowering.interface import BufferType, RegionInterface
from torch_shark.runtime.device import close_at_exit, get_device
from torch_shark.runtime.interop import NativeBuffer, ViewType, import_buffer
from torch_shark.runtime.scalars import Scalar, scalar_vectors

# IREE makes two functions of each: one that waits, and one that takes fences instead.
_ASYNC = "$async"

_DRIVERS = {"cpu": "local-task"}


class ExecutableRunError(SharkError, RuntimeError):
    """IREE's runtime reported an error from a call.

    Args:
        function: the function that was called, with its module.
        reason: what the runtime said.
    """

    def __init__(self, function: str, reason: str) -> None:
        super().__init__(function, reason)

    def __str__(self) -> str:
        function, reason = self.args
        return f"[shark] IREE's runtime failed in {function}.\n{reason}"


class Executable:
    """A region's executable on the target's device.

    Calls from several threads take turns; IREE runs without the GIL.

    Args:
        vmfb: the executable as IREE's compiler wrote it.
        interface: how it is called.
        target: what it was compiled for.
        origin: where the bytes came from, for errors.

    Raises:
        ExecutableLoadError: IREE does not take the bytes or the device does not take the kernels,
            or the interface names a function that is not in them.
        ForkedProcessError: this process is a fork of the one that made the device.
    """

    def __init__(
        self,
        vmfb: bytes,
        interface: RegionInterface,
        *,
        target: str = "cpu",
        origin: str = "the compiler",
    ) -> None:
        self.interface = interface
        self._device = get_device(_DRIVERS[target])
        self._device.check_process()
        try:
            self._context, module = self._device.load(vmfb)
        except Exception as error:  # the bindings raise whatever IREE's status code maps to
            raise ExecutableLoadError(target, origin, str(error)) from error
        module_name, _, name = interface.function.rpartition(".")
        self._function = module.lookup_function(name + _ASYNC)
        if self._function is None or module.name != module_name:
            found = [f"{module.name}.{exported}" for exported in module.function_names]
            reason = f"expected function {interface.function}, got {', '.join(found)}"
            raise ExecutableLoadError(target, origin, reason)

        self._results = rt.VmVariantList(0)
        self._input_types = [_view_type(buffer) for buffer in interface.inputs]
        self._output_types = [_view_type(buffer) for buffer in interface.outputs]
        self._scalars = scalar_vectors(self._device, interface.scalars)
        close_at_exit(self)

    def __call__(
        self,
        inputs: Sequence[NativeBuffer],
        outputs: Sequence[NativeBuffer],
        scalars: Sequence[Scalar] = (),
    ) -> None:
        """Run the region and wait for it.

        Args:
            inputs: as `prepare` takes them, like the others.
            outputs: overwritten.
            scalars: lifted ones.

        Raises:
            ExecutableRunError: IREE reports an error; else what `prepare` raises.
        """
        with self._device.lock:
            begin, arguments, wait = self.prepare(inputs, outputs, scalars)
            try:
                begin(*arguments)
                wait()
            except Exception as error:
                self.restart()
                raise ExecutableRunError(self.interface.function, str(error)) from error

    def prepare(
        self,
        inputs: Sequence[NativeBuffer],
        outputs: Sequence[NativeBuffer],
        scalars: Sequence[Scalar] = (),
    ) -> tuple[Callable[..., None], tuple[Any, ...], Callable[[], None]]:
        """Return the call that begins a run, its arguments, and the call that waits for its end.

        The run begins when those before it on the device are over; to wait for it is to wait for
        them. Once this has returned it has to begin, or else `restart` be called.

        Args:
            inputs: one buffer for each input of the interface, kept until the end of the run.
            outputs: one buffer for each output, likewise; overwritten. None may share memory with
                an input or another output: IREE orders no reads before such a write. What is
                overwritten in place holds the old content.
            scalars: one value for each scalar of the interface.

        Raises:
            ValueError: the number of buffers or scalars is not the interface's.
            BufferImportError: a buffer is too small or its address not aligned.
            ExecutableRunError: the executable is closed.
            ForkedProcessError: this process is a fork of the one that made the device.
        """
        if len(scalars) != len(self.interface.scalars):
            raise ValueError(
                f"[shark] expected {len(self.interface.scalars)} scalars, got {len(scalars)}"
            )
        if self._context is None:
            raise ExecutableRunError(self.interface.function, "The executable is closed.")
        self._device.check_process()
        read = self._views(inputs, self._input_types)
        read += [vector.fill(scalars) for vector in self._scalars]
        written = self._views(outputs, self._output_types)
        before, after = self._device.timeline.next()
        arguments = rt.VmVariantList(len(read) + len(written) + 3)
        for view in read:
            arguments.push_ref(view)
        if self.interface.size is not None:
            arguments.push_int(self.interface.size)
        for value in (*written, before, after):
            arguments.push_ref(value)
        return self._context.invoke, (self._function, arguments, self._results), after.wait

    def restart(self) -> None:
        """Go on after a run that failed, or did not begin. Earlier ones have to be waited for."""
        self._device.timeline.restart()

    def _views(
        self, buffers: Sequence[NativeBuffer], types: list[ViewType]
    ) -> list[rt.HalBufferView]:
        device = self._device
        return [
            import_buffer(device, buffer).view(view_type)
            for buffer, view_type in zip(buffers, types, strict=True)
        ]

    def close(self) -> None:
        """Unload the executable; it can't be called afterwards."""
        with self._device.lock:
            self._scalars = []
            self._context = self._function = None
            self._results = None


def _view_type(buffer: BufferType) -> ViewType:
    return buffer.sizes, int(rt.HalElementType[buffer.element_type])
