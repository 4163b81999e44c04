"""What IREE compiles for: flags, the runtime's driver, the native device, shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


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
        cpu_features: what the CPU has to have to run an executable, as Linux names it.
    """

    name: str
    flags: tuple[str, ...]
    driver: str
    native_device: str
    sharing: Literal["alias", "copy"]
    host_features: bool
    variants: tuple[tuple[str, ...], ...] = ()
    cpu_features: tuple[str, ...] = ()

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


def shipping_target(name: str) -> Target:
    """Return the target of a bundle."""
    return get_target(name)
