"""What IREE compiles for: flags, the runtime's driver, the native device, shared memory."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, replace
from typing import Literal

from torch_shark import processor


@dataclass(frozen=True, slots=True)
class Target:
    """One compilation target.

    Attributes:
        name: what the user calls it.
        flags: the IREE compiler's flags; they are part of every cache key.
        driver: the URI of the IREE runtime's device.
        native_device: the type of the ATen device whose kernels replay operators.
        sharing: "alias" if IREE and the native device see the same bytes, else "copy".
        host_features: the executable depends on the CPU features of this machine.
        variants: sets of further flags, each of which is the fastest for some regions.
        cpu_features: what the CPU has to have to run an executable, as Linux names it; only for
            executables that other machines run.
        float64: whether it computes in float64; if not, such constants are taken for float32.
    """

    name: str
    flags: tuple[str, ...]
    driver: str
    native_device: str
    sharing: Literal["alias", "copy"]
    host_features: bool
    variants: tuple[tuple[str, ...], ...] = ()
    cpu_features: tuple[str, ...] = ()
    float64: bool = True

    def candidates(self) -> tuple[Target, ...]:
        """Return the target itself, then what it is with each variant's flags."""
        others = (replace(self, flags=(*self.flags, *more)) for more in self.variants)
        return (self, *others)


# Wanted by every target: f64 stays f64, and the importer's dialect is read.
_COMMON_FLAGS = ("--iree-input-type=torch", "--iree-input-demote-f64-to-f32=false")

_TARGETS = {
    "cpu": Target(
        name="cpu",
        flags=(
            *_COMMON_FLAGS,
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=host",
            "--iree-opt-level=O2",
        ),
        driver="local-task",
        native_device="cpu",
        sharing="alias",
        host_features=True,
        variants=(("--iree-opt-level=O3", "--iree-llvmcpu-stack-allocation-limit=1048576"),),
    ),
}


# The compiler's names for the CPUs that executables are shipped to, and what Linux calls that which
# those have to have: level 3 is that of 2013 and later, level 4 that of AVX-512.
_X86_2 = ("pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16")
_X86_3 = (*_X86_2, "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
_X86_4 = (*_X86_3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_CPUS = {
    "x86-64-v2": ("x86_64-unknown-linux-gnu", "x86-64-v2", _X86_2),
    "x86-64-v3": ("x86_64-unknown-linux-gnu", "x86-64-v3", _X86_3),
    "x86-64-v4": ("x86_64-unknown-linux-gnu", "x86-64-v4", _X86_4),
    "aarch64": ("aarch64-unknown-linux-gnu", "generic", ("fp", "asimd")),
}
# Those of the host that an executable may use; Linux lists hundreds of others.
_INSTRUCTIONS = re.compile(
    r"pni|ssse3|sse4.*|popcnt|cx16|avx.*|fma|f16c|bmi.|abm|movbe|adx|aes|vaes|sha_ni|gfni|vpclmul.*"
    r"|pclmul.*|amx.*|rdrnd|rdseed|fp|asimd.*|sve.*|bf16|i8mm|atomics"
)


@dataclass(frozen=True, slots=True)
class _Platform:
    """What the architectures of a target have in common, where executables are shipped.

    Attributes:
        default: the architecture that is meant where none is named.
        flags: the compiler's flags, with {} for the architecture.
        driver, native_device, sharing, float64: as of a target.
    """

    default: str
    flags: tuple[str, ...]
    driver: str
    native_device: str
    sharing: Literal["alias", "copy"]
    float64: bool


# sm_80 is PTX, which newer drivers compile for their GPU. AMD's code is for one architecture alone.
_PLATFORMS = {
    "cuda": _Platform(
        default="sm_80",
        flags=("--iree-hal-target-device=cuda", "--iree-cuda-target={}"),
        driver="cuda",
        native_device="cuda",
        sharing="alias",
        float64=True,
    ),
    "rocm": _Platform(
        default="gfx942",
        flags=("--iree-hal-target-device=hip", "--iree-rocm-target={}"),
        driver="hip",
        native_device="cuda",
        sharing="alias",
        float64=True,
    ),
    "vulkan": _Platform(
        default="vp_android_baseline_2022",
        flags=("--iree-hal-target-device=vulkan", "--iree-vulkan-target={}"),
        driver="vulkan",
        native_device="cpu",
        sharing="copy",
        float64=False,
    ),
    "metal": _Platform(
        default="macos",
        flags=("--iree-hal-target-device=metal", "--iree-metal-target-platform={}"),
        driver="metal",
        native_device="mps",
        sharing="copy",
        float64=False,
    ),
}

_SHIPPING_FLAGS = ("--iree-input-type=torch", "--iree-opt-level=O2")


def shipping_target(name: str) -> Target:
    """Return the target of executables that other machines run.

    Args:
        name: "cpu", "cuda", "rocm", "vulkan" or "metal"; an architecture may follow, as in
            "cuda:sm_89", "cpu:x86-64-v4" or "cpu:host", which is the CPU of this machine.

    Returns:
        The target, with its architecture in its name.

    Raises:
        ValueError: no target has this name; the message lists those known.
    """
    kind, _, architecture = name.partition(":")
    if (architecture or ":" not in name) and re.fullmatch(r"[\w.+-]*", architecture):
        if kind == "cpu":
            return _shipping_cpu(architecture or _default_cpu())
        if kind in _PLATFORMS:
            return _shipping_platform(kind, architecture or _PLATFORMS[kind].default)
    known = ", ".join(sorted(["cpu", *_PLATFORMS]))
    raise ValueError(
        f"[shark] expected a target among: {known}, or one with an architecture, as 'cuda:sm_89'; "
        f"got {name!r}"
    )


def _default_cpu() -> str:
    return "aarch64" if platform.machine() in ("aarch64", "arm64") else "x86-64-v3"


def _shipping_cpu(architecture: str) -> Target:
    if architecture == "host":
        flags: tuple[str, ...] = ("--iree-llvmcpu-target-cpu=host",)
        named = filter(_INSTRUCTIONS.fullmatch, processor.features() or ())
        features = tuple(sorted(named))
    elif architecture in _CPUS:
        triple, cpu, features = _CPUS[architecture]
        flags = (f"--iree-llvmcpu-target-triple={triple}", f"--iree-llvmcpu-target-cpu={cpu}")
    else:
        known = ", ".join(["host", *_CPUS])
        raise ValueError(f"[shark] expected a CPU among: {known}; got {architecture!r}")
    return Target(
        name=f"cpu:{architecture}",
        flags=(
            *_SHIPPING_FLAGS,
            "--iree-input-demote-f64-to-f32=false",
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            *flags,
        ),
        driver="local-task",
        native_device="cpu",
        sharing="alias",
        host_features=architecture == "host",
        cpu_features=features,
    )


def _shipping_platform(kind: str, architecture: str) -> Target:
    common = _PLATFORMS[kind]
    demote = f"--iree-input-demote-f64-to-f32={str(not common.float64).lower()}"
    return Target(
        name=f"{kind}:{architecture}",
        flags=(*_SHIPPING_FLAGS, demote, *(flag.format(architecture) for flag in common.flags)),
        driver=common.driver,
        native_device=common.native_device,
        sharing=common.sharing,
        host_features=False,
        float64=common.float64,
    )


def get_target(name: str) -> Target:
    """Returns the target of a name.

    Raises:
        ValueError: no target has this name; the message lists those known.
    """
    try:
        return _TARGETS[name]
    except KeyError:
        known = ", ".join(sorted(_TARGETS))
        raise ValueError(f"[shark] expected a target among: {known}; got {name!r}") from None
