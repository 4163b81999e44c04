"""What is worth a compile on the CPU, before anything has been measured.

Convolutions, pooling and scattered sums belong to the vendor's kernels, which IREE's do not reach.
Whether matrix products and attention do, with the passes over rows between them, depends on the
machine. They take long to compile, so a plan is narrow at first, without them; a window that runs
for long is planned wide, with them, and the two are measured. A region has to save more than its
call costs. What passes here is still measured.
"""

from __future__ import annotations

import math

from torch_shark.kernels.kernel import find_kernel
from torch_shark.lowering.operators import base_name
from torch_shark.lowering.partition import Placed
from torch_shark.lowering.region import RegionPlan
from torch_shark.record import Entry, TensorRef, WindowRecord

# Microseconds, and bytes per microsecond, of one core: rough, and only ever used as ratios.
_OPERATOR = 1.5
_INVOKE = 45.0
_BANDWIDTH = 8000.0

_NEVER_TRIED = frozenset(
    [
        *["convolution", "convolution_backward", "_convolution", "convolution_overrideable"],
        *["mkldnn_convolution", "max_pool2d_with_indices", "max_pool2d_with_indices_backward"],
        "embedding_dense_backward",
    ]
)
_PRODUCTS = frozenset(
    [
        *["mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear"],
        *["matmul", "addr", "ger", "outer", "einsum"],
        *["_scaled_dot_product_flash_attention_for_cpu"],
        *["_scaled_dot_product_flash_attention_for_cpu_backward"],
    ]
)
_AMONG_PRODUCTS = frozenset(
    [
        # Passes over rows that ATen has vectorised by hand
        *["_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"],
        # Moves of memory
        *["embedding", "index_select", "gather", "cat"],
    ]
)
_NOT_IN_NARROW_REGIONS = _NEVER_TRIED | _PRODUCTS | _AMONG_PRODUCTS


def belongs_to_vendor(operator: str, wide: bool) -> bool:
    """Tell whether an operator, such as "aten::mm.out", is left to the vendor's kernel untried.

    Args:
        operator: its name.
        wide: whether products are tried.
    """
    return base_name(operator) in (_NEVER_TRIED if wide else _NOT_IN_NARROW_REGIONS)


def can_widen(record: WindowRecord) -> bool:
    """Tell whether a window has products, which are in no narrow region."""
    return any(_is_product(entry) for entry in record.entries)


def has_product(plan: RegionPlan, placed: Placed) -> bool:
    """Tell whether a region of a window has a product."""
    return any(_is_product(placed.record.entries[e]) for e in plan.entries)


def can_gain(plan: RegionPlan, placed: Placed) -> bool:
    """Tell whether a region of a window can be faster than the native replay of its entries."""
    storages = placed.record.storages
    if any(find_kernel(placed.record.entries[e].op) is not None for e in plan.entries):
        return True  # its user has written it to be tried
    if has_product(plan, placed):
        return True  # bytes tell nothing of its time
    native = sum(_OPERATOR + _bytes(placed.record.entries[e]) / _BANDWIDTH for e in plan.entries)
    moved = sum(storages[s].nbytes for s in (*plan.inputs, *plan.outputs))
    # A part is written, then copied to its place.
    moved += sum(3 * math.prod(ref.sizes) * ref.dtype.itemsize for ref in plan.parts)
    return _INVOKE + moved / _BANDWIDTH < native


def _is_product(entry: Entry) -> bool:
    return base_name(entry.op) in _PRODUCTS


def _bytes(entry: Entry) -> int:
    """The bytes that an entry's operands and results hold."""
    return sum(
        math.prod(ref.sizes) * ref.dtype.itemsize
        for value in (*entry.args, list(entry.outputs))
        for ref in (value if isinstance(value, (list, tuple)) else (value,))
        if isinstance(ref, TensorRef)
    )
