"""Makes PyTorch know the device; called once, at the end of ``import torch``."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

import torch
import torch._C._dynamo.eval_frame as frames
import torch._tensor_str
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

from torch_shark import _C, choices, compiler, device, native, sharing
from torch_shark.config import config, knobs, warn_of_unknown_variables
from torch_shark.integrations import cache_artifacts, flex_attention, safetensors


def register() -> None:
    """Register the device's name, module, tensor methods and hooks."""
    native.choose()
    rename_privateuse1_backend("shark")
    torch._register_device_module("shark", device)  # type: ignore[no-untyped-call]
    generate_methods_for_privateuse1_backend(for_storage=True)
    register_optimizer_step_post_hook(lambda *_: _C.flush_optimizer())
    # What a lazy module lets its parameters do before they have a shape: to be moved.
    lazy: Any = torch.nn.UninitializedParameter
    lazy._allowed_methods.append(torch.Tensor.shark)  # type: ignore[attr-defined]
    sharing.register()
    safetensors.register()
    flex_attention.register()
    cache_artifacts.register()
    choices.register()
    _hide_state_from_dynamo()
    _print_from_host()
    _settle_before_settings()
    compiler.install()
    warn_of_unknown_variables()
    config.on_change(_apply_config)
    atexit.register(_shut_down)


def _apply_config() -> None:
    """Tell the core what it reads of the knobs; what was recorded runs under the old ones."""
    for name in knobs():
        getattr(config, name)  # a wrong setting is told at once, not where it is first used
    native.check_choice()
    policy = native.policy()
    _settle()
    _C.set_policy(policy)
    _C.set_settings(compiler.settings_number())
    _C.set_debug(config.debug)
    _C.set_blocking(config.blocking)
    _C.set_verify(config.verify)
    _C.set_window_limits(native.window_operators(), config.pending_bytes)


# What Dynamo may trace: it gives the same whenever it is asked.
_CONSTANT = {
    *["current_device", "device_count", "get_amp_supported_dtype", "get_device_name"],
    *["is_available", "is_bf16_supported", "is_current_stream_capturing", "is_initialized"],
}


def _hide_state_from_dynamo() -> None:
    """Have functions that read or change the device's state run as they are, between two graphs.

    As ``torch._dynamo.disable`` does it, which takes seconds to import.
    """
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for name in device.__all__:
        function: Any = getattr(device, name)
        if isinstance(function, FunctionType) and name not in _CONSTANT:
            frames.set_code_exec_strategy(function.__code__, skip)
            function._torchdynamo_disable = True  # type: ignore[attr-defined]


def _print_from_host() -> None:
    """Format tensors on the host: printing one would record and compile a dozen operators."""
    original = torch._tensor_str._tensor_str

    def tensor_str(self: torch.Tensor, indent: int) -> Any:
        on_host = self.cpu() if self.device.type == "shark" else self
        return original(on_host, indent)  # type: ignore[no-untyped-call]

    torch._tensor_str._tensor_str = tensor_str


def _settle_before_settings() -> None:
    """Run what is recorded before a global setting changes that kernels read when they run."""
    for name in (
        "set_default_dtype",
        "set_flush_denormal",
        "set_float32_matmul_precision",
        "use_deterministic_algorithms",
    ):
        setattr(torch, name, _after_settling(getattr(torch, name)))
    if native.native_device() == "cuda":  # recorded operators draw from the generators of CUDA
        _settle_before_seeds()
    set_num_threads = _after_settling(torch.set_num_threads)

    @wraps(set_num_threads)
    def set_threads(count: int) -> None:
        set_num_threads(count)
        _C.set_native_threads(count)

    setattr(torch, "set_num_threads", set_threads)  # noqa: B010 (mypy minds its type)


def _settle_before_seeds() -> None:
    """Run what is recorded before something else seeds the generators that it draws from."""
    for module in (torch, torch.random):
        for name in ("manual_seed", "seed"):
            setattr(module, name, _after_settling(getattr(module, name)))
    for name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state"):
        setattr(torch.cuda, name, _after_settling(getattr(torch.cuda, name)))


def _after_settling(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def settled(*args: Any, **kwargs: Any) -> Any:
        _settle()
        return function(*args, **kwargs)

    return settled


def _settle() -> None:
    """Run what is recorded; a forked child (a data loader's worker, say) has nothing to run."""
    if not _C.in_forked_child():
        _C.settle()


def _shut_down() -> None:
    """Run what is pending, end the thread and let go of executables before Python goes."""
    _C.set_policy("native")  # nobody reads what is pending: it is not worth a compilation
    try:
        _settle()
    except Exception as error:
        reason = str(error).split("\n")[0]
        print(f"[shark] an operator failed, and nothing waited for it: {reason}", file=sys.stderr)
    _C.stop()
    _C.remove_planner()
    compiler.forget()
    # Not at an exit of its own: it may be imported by work that ran just now.
    if (runtime := sys.modules.get("torch_shark.runtime.device")) is not None:
        runtime.close_all()
