"""Users' kernels: MLIR as the body of an operator, `torch.shark.register_kernel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torch_shark import _C
from torch_shark.kernels.kernel import KernelError, find_kernel, library_of, set_kernel

if TYPE_CHECKING:
    from torch_shark.lowering.operators import Operator

__all__ = ["KernelError", "register_kernel"]


def register_kernel(operator: str, mlir: str) -> None:
    """Give an operator a body in MLIR, which is compiled into the regions where it is called.

    An operator that has a kernel for the CPU keeps it for what runs natively, and both have to give
    the same. One that has none is computed by the body on the CPU too, for shark tensors and for
    those of the CPU. A second call for the same operator replaces the body.

    For `torch.compile` and `torch.shark.export` the operator needs what PyTorch wants of any: a
    function that tells the shapes of its results (`torch.library.register_fake`), and one for its
    gradients if it has some (`torch.library.register_autograd`).

    Args:
        operator: the name of an operator that is defined, "mylib::swiglu" or
            "mylib::swiglu.overload"; or a schema that defines it now,
            "mylib::swiglu(Tensor x, float alpha=1.0) -> Tensor". It takes tensors, floats, ints and
            bools, writes none of them, and returns tensors that are no views.
        mlir: the text of a module, or of functions alone, in any dialects that IREE compiles. Its
            one public `func.func` takes the operator's arguments in their order and returns its
            results. Tensors are `tensor<?x4xf32>` or `!torch.vtensor<[?,4],f32>`; floats are `f64`,
            ints `i64`, bools `i1`, or `!torch.float`, `!torch.int`, `!torch.bool`.

    Raises:
        KernelError: there is no such operator, it is of another kind, or the MLIR is wrong; the
            error names the operator and the line.
    """
    from torch_shark.kernels.on_cpu import CpuKernel
    from torch_shark.kernels.parse import parse_kernel

    name = _define(operator) if "(" in operator else operator
    found = _find(name)
    kernel = parse_kernel(found, mlir)
    namespace, _, rest = name.partition("::")
    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU"):
        library_of(namespace).impl(rest, CpuKernel(found), "CPU")
    _C.synchronize()
    set_kernel(kernel)
    _C.record_always(name)
    _forget_plans()


def _define(schema: str) -> str:
    """Define an operator, unless it is defined as such already; return its name."""
    name = schema.partition("(")[0].strip()
    namespace, _, rest = schema.partition("::")
    if not rest:
        raise KernelError(name, "expected a name with a namespace, as 'mylib::swiglu'")
    try:
        parsed = torch._C.parse_schema(schema)
        known = torch._C._jit_get_schemas_for_operator(parsed.name)
        if not any(str(other) == str(parsed) for other in known):
            library_of(namespace).define(rest)
    except RuntimeError as error:
        raise KernelError(name, f"PyTorch does not take its schema: {error}") from error
    return name


def _find(name: str) -> Operator:
    """Return an operator that can have a kernel."""
    from torch_shark.lowering.operators import find_operator

    find_operator.cache_clear()  # it may have been asked for before it was defined
    operator = find_operator(name) if "::" in name else None
    if operator is None:
        raise KernelError(name, "there is no such operator; a schema would define one")
    schema = operator.overload._schema
    if name.startswith("aten::"):
        raise KernelError(name, "PyTorch's own operators have bodies already")
    aliased = [a.name or "a result" for a in schema.arguments + schema.returns if a.alias_info]
    if aliased:
        raise KernelError(name, f"{aliased[0]} is written or aliased; a body makes new tensors")
    if any(str(value.type) != "Tensor" for value in schema.returns):
        raise KernelError(name, f"expected tensors for results, got {schema}")
    if _has(name, "CompositeImplicitAutograd") and not _has(name, "CPU"):
        raise KernelError(name, "it is composite: PyTorch takes it apart before any device sees it")
    if _has(name, "PrivateUse1") and find_kernel(name) is None:
        raise KernelError(name, "it has a kernel for the device already")
    return operator


def _has(name: str, key: str) -> bool:
    has: bool = torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    return has


def _forget_plans() -> None:
    """Have windows planned anew: those that had the operator know nothing of its kernel."""
    from torch_shark import compiler

    compiler.forget()
    compiler.install()
