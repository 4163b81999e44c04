"""What is worth a compile on the CPU, before anything has been measured.

Products, convolutions and attention belong to the vendor's kernels, which IREE's do not reach; a
region has to save more than its call costs. What passes here is still measured.
"""

from __future__ import annotations

import math

from torch_shark.kernels.kernel import find_kernel
from torch_shark.lowering.operators import base_name
from torch_shark.lowering.partition import Placed
from torch_shark.lowering.region import RegionPlan
from torch_shark.record import Entry, TensorRef

# Microseconds, and bytes per microsecond, of one core: rough, and only ever used as ratios.
_OPERATOR = 1.5
_INVOKE = 45.0
_BANDWIDTH = 8000.0

_VENDOR_KERNELS = frozenset(
    [
        # Products
        *["mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear"],
        *["matmul", "addr", "ger", "outer", "einsum"],
        # Convolutions, pooling, attention, recurrences
        *["convolution", "convolution_backward", "_convolution", "convolution_overrideable"],
        *["mkldnn_convolution", "max_pool2d_with_indices", "max_pool2d_with_indices_backward"],
        *["_scaled_dot_product_flash_attention_for_cpu"],
        *["_scaled_dot_product_flash_attention_for_cpu_backward"],
        # Passes over rows that ATen has vectorised by hand
        *["_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"],
        # Moves of memory
        *["embedding", "index_select", "gather", "cat", "embedding_dense_backward"],
    ]
)


def belongs_to_vendor(operator: str) -> bool:
    """Tell whether an operator, such as "aten::mm.out", has a kernel that compiling cannot beat."""
    return base_name(operator) in _VENDOR_KERNELS


def can_gain(plan: RegionPlan, placed: Placed) -> bool:
    """Tell whether a region of a window can be faster than the native replay of its entries."""
    storages = placed.record.storages
    if any(find_kernel(placed.record.entries[e].op) is not None for e in plan.entries):
        return True  # its user has written it to be tried
    native = sum(_OPERATOR + _bytes(placed.record.entries[e]) / _BANDWIDTH for e in plan.entries)
    moved = sum(storages[s].nbytes for s in (*plan.inputs, *plan.outputs))
    # A part is written, then copied to its place.
    moved += sum(3 * math.prod(ref.sizes) * ref.dtype.itemsize for ref in plan.parts)
    return _INVOKE + moved / _BANDWIDTH < native


def _bytes(entry: Entry) -> int:
    """The bytes that an entry's operands and results hold."""
    return sum(
        math.prod(ref.sizes) * ref.dtype.itemsize
        for value in (*entry.args, list(entry.outputs))
        for ref in (value if isinstance(value, (list, tuple)) else (value,))
        if isinstance(ref, TensorRef)
    )
