"""Lifted scalars: values that change between calls and must not cause a second compilation.

Every host scalar is lifted, every number that fills a tensor, and every float in an argument that
the core lifts. Other arguments' values are constants of the region's key.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from torch_shark import _C
from torch_shark.lowering.interface import ScalarKind
from torch_shark.lowering.operators import Operator, find_operator
from torch_shark.record import Entry, HostScalar, TensorRef

# A fill with a number known to the compiler is a constant, and its folding is wrong in places: of
# signs, and of bools as integers. So integers are lifted here too.
_FILLS = frozenset({"aten::fill.Scalar", "aten::fill_.Scalar"})


def _with_written_forms(names: frozenset[str]) -> frozenset[str]:
    """Adds in-place forms ("aten::add_.Tensor"), and drops what this torch does not have."""
    found = set(names)
    for name in names:
        base, dot, overload = name.partition(".")
        in_place = f"{base}_{dot}{overload}"
        if find_operator(in_place) is not None:
            found.add(in_place)
    return frozenset(name for name in found if find_operator(name) is not None)


# Kernels compare in the operands' common dtype, half-width or not.
COMPARISONS: frozenset[str] = _with_written_forms(
    frozenset(
        f"aten::{name}.{overload}"
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for overload in ("Scalar", "Tensor", "Scalar_out", "Tensor_out")
    )
)


@cache
def liftable_positions(op: str) -> frozenset[int]:
    """Returns the positions of the arguments in which an operator lifts floats."""
    return frozenset(_C.lifted_arguments(op))


def lifted_kind(operator: Operator, position: int, value: Any) -> ScalarKind | None:
    """Returns the vector by which an argument's value is passed, or None if it is not lifted."""
    if isinstance(value, HostScalar):
        return "f64" if value.dtype.is_floating_point else "i64"
    if isinstance(value, int) and operator.name in _FILLS:
        return "i64"
    if isinstance(value, float) and position in liftable_positions(operator.name):
        return "f64"
    return None


def compute_dtype(entry: Entry, scalar: HostScalar) -> torch.dtype:
    """Returns the dtype for a lifted scalar so that the operator gives its recorded dtypes.

    It is the dtype in which the native kernel computes: that of the tensors and wrapped numbers
    together, by PyTorch's promotion, and float32 for half-width operands, unless these are
    compared, or all tensors are 0-d: there a float32 would widen the result. Integers are filled
    with the number as it is. The fused optimizers reckon with their numbers in double.
    """
    if entry.op.startswith("aten::_fused_"):
        return torch.float64
    if entry.op in _FILLS and not entry.args[0].dtype.is_floating_point:
        return scalar.dtype
    tensors = [
        value
        for arg in entry.args
        for value in (arg if isinstance(arg, (list, tuple)) else [arg])
        if isinstance(value, TensorRef)
    ]
    operands: list[Any] = [
        torch.empty((1,) * min(len(ref.sizes), 1), dtype=ref.dtype, device="meta")
        for ref in {(r.dtype, bool(r.sizes)): r for r in tensors}.values()
    ]
    for arg in [*entry.args, scalar]:
        if isinstance(arg, HostScalar):
            operands.append(
                _sample(arg.dtype)
                if arg.wrapped
                else torch.empty((), dtype=arg.dtype, device="meta")
            )
    common = _promote(operands)
    is_half = common in (torch.float16, torch.bfloat16)
    is_wide = is_half and entry.op not in COMPARISONS and any(ref.sizes for ref in tensors)
    return torch.float32 if is_wide else common


def _sample(dtype: torch.dtype) -> float | int | bool:
    return 1.0 if dtype.is_floating_point else (True if dtype == torch.bool else 1)


def _promote(operands: list[Any]) -> torch.dtype:
    """The dtype that `torch.result_type` would give for all operands together."""
    with_dims = [o.dtype for o in operands if isinstance(o, torch.Tensor) and o.dim()]
    zero_dim = [o.dtype for o in operands if isinstance(o, torch.Tensor) and not o.dim()]
    wrapped = [
        torch.get_default_dtype() if isinstance(o, float) else torch.tensor(o).dtype
        for o in operands
        if not isinstance(o, torch.Tensor)
    ]
    result: torch.dtype | None = None
    for group in (with_dims, zero_dim, wrapped):
        for dtype in group:
            if result is None:
                result = dtype
            elif (
                group is with_dims
                or _category(dtype) > _category(result)
                or (group is zero_dim and not with_dims and _category(dtype) == _category(result))
            ):
                result = torch.promote_types(result, dtype)
    assert result is not None
    return result


def _category(dtype: torch.dtype) -> int:
    if dtype == torch.bool:
        return 0
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1
