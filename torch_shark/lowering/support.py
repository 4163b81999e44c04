"""Which entries are never compiled, and why. What is not named here is tried.

The reasons were found by running each operator compiled and comparing with the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from torch_shark.kernels.kernel import find_kernel
from torch_shark.lowering.bodies_math import EXACT_POWERS
from torch_shark.lowering.operators import Operator
from torch_shark.lowering.views import has_view, overlaps_itself
from torch_shark.record import Entry, HostScalar, StorageInfo, TensorRef

_WRONG = "the compiled values are wrong: "
_SHAPE = "it changes the geometry of its storage"
_NO_LOWERING = "IREE has no lowering for it"

# Functions of analysis, factorisations, transforms, order statistics, and a few of no kind.
_NOT_LOWERED = """
    digamma erfinv i0 igamma igammac lgamma mvlgamma polygamma special_airy_ai
    special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_erfcx special_hermite_polynomial_h
    special_hermite_polynomial_he special_i0e special_i1 special_i1e special_laguerre_polynomial_l
    special_legendre_polynomial_p special_log_ndtr special_modified_bessel_i0
    special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri
    special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
    special_spherical_bessel_j0 special_zeta
    _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd cholesky cholesky_inverse
    cholesky_solve geqrf linalg_cholesky_ex linalg_eig linalg_householder_product linalg_inv_ex
    linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor_ex
    linalg_lu_solve linalg_matrix_exp linalg_pinv.atol_rtol_tensor linalg_qr
    linalg_solve_triangular lu_unpack ormqr triangular_solve
    _fft_c2c _fft_c2r _fft_r2c
    cummax cummin histc kthvalue median median.dim mode nanmedian nanmedian.dim
    _cdist_forward _thnn_fused_lstm_cell _upsample_bilinear2d_aa all.dims angle as_strided_copy
    as_strided_scatter block_diag copysign.Scalar copysign.Tensor cumprod diagonal_scatter dist
    embedding_renorm erfc fractional_max_pool2d fractional_max_pool3d frexp.Tensor grid_sampler_3d
    grid_sampler_3d_backward max_pool3d_with_indices_backward mkldnn_rnn_layer nextafter
    searchsorted.Scalar searchsorted.Tensor segment_reduce signbit upsample_bicubic2d
    upsample_bilinear2d upsample_trilinear3d
"""

NEVER_COMPILE: dict[str, str] = {
    "aten::_embedding_bag": _WRONG + "empty bags",
    "aten::_embedding_bag_forward_only": _WRONG + "empty bags",
    "aten::logcumsumexp": _WRONG + "inf for large values",
    "aten::sort": _WRONG + "NaN comes first",
    "aten::sort.stable": "it does not compile",
    "aten::topk": _WRONG + "order of NaN",
    "aten::argsort": _WRONG + "NaN comes first",
    "aten::_index_put_impl_": "its unsafe form skips the index check",
    "aten::index_fill.int_Scalar": "its indices are not checked",
    "aten::index_fill.int_Tensor": "its indices are not checked",
    "aten::_unsafe_masked_index": "its indices are not checked",
    "aten::grid_sampler_2d": "a NaN among its coordinates becomes an index",
    "aten::masked_scatter": "the size of its source is not checked",
    "aten::multi_margin_loss": "its indices are not checked",
    "aten::multilabel_margin_loss_forward": "its indices are not checked",
    "aten::take": "its indices are not checked",
    "aten::put": "its indices are not checked",
    "aten::nll_loss2d_forward": "its indices are not checked",
    "aten::nll_loss2d_backward": "its indices are not checked",
    "aten::max_unpool2d": "its indices are not checked",
    "aten::max_unpool3d": "its indices are not checked",
    "aten::index_reduce": "its indices are not checked",
    "aten::scatter_reduce.two": _WRONG + "include_self",
    "aten::max_pool3d_with_indices": "the compiler ends the process",
    "aten::resize_": _SHAPE,
    "aten::resize_as_": _SHAPE,
    "aten::set_": _SHAPE,
    "aten::adaptive_max_pool2d": "it does not compile",
    "aten::fmax": "it does not compile with broadcast",
    "aten::fmin": "it does not compile with broadcast",
    "aten::__lshift__.Tensor": "it does not compile",
    "aten::__lshift__.Scalar": "it does not compile",
    "aten::atan2": _WRONG + "NaN for two zeros or two infinities",
    "aten::fmod.Tensor": _WRONG + "NaN for an infinite divisor",
    "aten::fmod.Scalar": _WRONG + "NaN for an infinite divisor",
    "aten::floor_divide": _WRONG + "infinity for an infinite dividend",
    "aten::upsample_linear1d": _WRONG + "NaN beside infinities",
    "aten::rrelu_with_noise_backward": _WRONG + "its slope outside training",
    "aten::logaddexp": _WRONG + "NaN is lost beside infinities",
    "aten::logaddexp2": _WRONG + "NaN is lost beside infinities",
    "aten::adaptive_max_pool3d": _WRONG + "NaN and -inf are lost",
    "aten::_unsafe_masked_index_put_accumulate": _WRONG + "it changes its input",
    "aten::pow.Tensor_Tensor": _WRONG + "large results lose digits",
    "aten::pow.Scalar": _WRONG + "large results lose digits",
    "aten::log10": "IREE cannot link this function",
    "aten::_local_scalar_dense": "it hands a value to the host",
    "aten::isin.Tensor_Tensor": "it sorts what it looks among",
    "aten::_linalg_det": _WRONG + "it is eliminated without a choice of pivots",
    **dict.fromkeys(map("aten::{}".format, _NOT_LOWERED.split()), _NO_LOWERING),
}

_DTYPES = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.bool,
    }
)
_NO_FLOAT64 = frozenset(
    [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cos",
        "cosh",
        "elu",
        "erf",
        "erfc",
        "exp2",
        "expm1",
        "gelu",
        "gelu_backward",
        "log",
        "log10",
        "log1p",
        "log2",
        "mish",
        "sin",
        "sinc",
        "sinh",
        "softplus",
        "special_xlog1py",
        "tan",
        "tanh",
    ]
)
# Reductions and scans that have no body of ours which adds up in float32.
_SUMS_IN_OPERAND_DTYPE = frozenset(
    [
        *["cumsum", "logcumsumexp", "linalg_vector_norm", "norm", "prod"],
        *["avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "_adaptive_avg_pool2d"],
        *["var", "std", "var_mean", "std_mean"],
    ]
)
_OVERFLOWS_IN_HALF = frozenset(["soft_margin_loss", "soft_margin_loss_backward"])
_ADD_UP = frozenset({"sum", "nansum", "mean", "cumsum", "cumprod", "prod"})
_INTEGER_DIVISION = frozenset(["div", "floor_divide", "remainder", "fmod", "pow", "gcd", "lcm"])
_PUTS = ("index_put", "_unsafe_index_put")
_BY_INDEX_LISTS = ("index", "_unsafe_index", *_PUTS)
ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
_NO_TAGS = (
    torch.Tag.dynamic_output_shape,
    torch.Tag.data_dependent_output,
    torch.Tag.inplace_view,
)


def _fused_optimizer_writes(scale_arg: int, last: int, entry: Entry) -> tuple[int, ...]:
    """A fused optimizer changes its gradients only where it unscales them."""
    unscales = entry.args[scale_arg] is not None
    return tuple(i for i in range(last + 1) if entry.args[i] and (i != 1 or unscales))


# Operators that write more or fewer arguments than their schema says.
_REAL_WRITES: dict[str, Callable[[Entry], tuple[int, ...]]] = {
    **{
        f"aten::_fused_{name}_{lr}": partial(_fused_optimizer_writes, *places)
        for name, places in (("adam", (13, 4)), ("adamw", (13, 4)), ("sgd", (10, 2)))
        for lr in ("", ".tensor_lr")
    },
    "aten::native_batch_norm": lambda entry: (
        tuple(i for i in (3, 4) if entry.args[i] is not None) if entry.args[5] else ()
    ),
}

# A write of less than this share of a storage above this size costs a copy of all of it.
_SMALL_WRITE_SHARE = 4
_LARGE_STORAGE_BYTES = 1 << 20


def written_arguments(operator: Operator, entry: Entry) -> tuple[int, ...]:
    """Returns the positions of the arguments that the entry writes."""
    real = _REAL_WRITES.get(entry.op)
    return operator.written if real is None else real(entry)


def written_values(operator: Operator, entry: Entry) -> list[Any]:
    """Returns what the entry writes of its arguments, lists flattened; absent ones are None."""
    positions = written_arguments(operator, entry)
    return [value for i in positions for value in _as_list(entry.args[i])]


def draws_random(operator: Operator, entry: Entry) -> bool:
    """Tells whether the entry takes numbers from a generator."""
    if entry.op == ATTENTION:
        return bool(entry.args[3] != 0.0)
    return torch.Tag.nondeterministic_seeded in operator.overload.tags


def native_reason(
    operator: Operator | None, entry: Entry, storages: Sequence[StorageInfo]
) -> str | None:
    """Returns why an entry has to run natively, or None if its compilation may be tried."""
    if operator is None:
        return "it is not an operator of torch.ops"
    if (kernel := find_kernel(entry.op)) is not None:
        return kernel.refuses(entry.args, entry.outputs) or _reason_in_data(entry, storages)
    if not entry.op.startswith("aten::"):
        return "it is not an ATen operator, and has no kernel in MLIR"
    name = operator.functional or entry.op
    reason = NEVER_COMPILE.get(name) or NEVER_COMPILE.get(entry.op)
    if reason is not None:
        return reason
    by_index = operator.name in ("aten::index.Tensor", "aten::_unsafe_index.Tensor")
    if not by_index and any(tag in operator.overload.tags for tag in _NO_TAGS):
        return "its result's shape depends on data"
    if draws_random(operator, entry):
        return "it draws random numbers"
    return (
        _reason_in_data(entry, storages)
        or _reason_in_writes(operator, entry, storages)
        or _reason_in_values(name, entry)
        or _reason_in_default_dtype(operator, entry)
    )


def _reason_in_data(entry: Entry, storages: Sequence[StorageInfo]) -> str | None:
    for value in argument_values(entry):
        if isinstance(value, HostScalar) and value.dtype.is_complex:
            return "it has a complex scalar"
        if isinstance(value, str) and value == "generator":
            return "it takes a generator"
        if isinstance(value, TensorRef):
            if value.dtype not in _DTYPES:
                return f"{value.dtype} is not compiled"
            if 0 in value.sizes:
                return "it reads an empty tensor"
            if not has_view(value, storages[value.storage]):
                return f"no chain of views gives {value.sizes} by {value.strides}"
    for ref in entry.outputs:
        if ref is not None and 0 not in ref.sizes:
            if ref.dtype not in _DTYPES:
                return f"{ref.dtype} is not compiled"
            if not has_view(ref, storages[ref.storage]):
                return "its result is not dense"
    return None


def _reason_in_writes(
    operator: Operator, entry: Entry, storages: Sequence[StorageInfo]
) -> str | None:
    if operator.written and operator.functional is None:
        return "it writes its arguments in a way of its own"
    seen: set[TensorRef] = set()
    for ref in written_values(operator, entry):
        if isinstance(ref, HostScalar):
            return f"it writes a tensor of the host ({entry.op})"
        if ref is None:
            continue
        if ref in seen:
            return "it writes a tensor twice"
        seen.add(ref)
        info = storages[ref.storage]
        if overlaps_itself(ref):
            return "it writes to a tensor that overlaps itself"
        if any(_may_meet(ref, other) for other in argument_values(entry)):
            return "it reads what it writes by another geometry"
        written = math.prod(ref.sizes) * ref.dtype.itemsize
        if info.nbytes > _LARGE_STORAGE_BYTES and written * _SMALL_WRITE_SHARE < info.nbytes:
            return "it writes a small part of a large storage"
    return None


def _may_meet(written: TensorRef, other: Any) -> bool:
    """Whether another reference reaches into the range of a written one: then order matters."""
    if not isinstance(other, TensorRef) or other.storage != written.storage or other == written:
        return False
    ends = [
        ref.offset + sum((n - 1) * s for n, s in zip(ref.sizes, ref.strides, strict=True))
        for ref in (written, other)
    ]
    return written.offset <= ends[1] and other.offset <= ends[0]


def _reason_in_values(name: str, entry: Entry) -> str | None:
    packet = name.removeprefix("aten::").partition(".")[0]
    refs = [value for value in argument_values(entry) if isinstance(value, TensorRef)]
    results = [ref.dtype for ref in entry.outputs if ref is not None]
    given = [ref.dtype for ref in refs]
    floats = [dtype for dtype in (*given, *results) if dtype.is_floating_point]
    if torch.float64 in floats and packet in _NO_FLOAT64:
        return "IREE cannot link this function in float64"
    if packet in _SUMS_IN_OPERAND_DTYPE and any(
        dtype in (torch.float16, torch.bfloat16) for dtype in floats
    ):
        return _WRONG + "IREE adds up half-width values in 16 bits"
    if packet in _OVERFLOWS_IN_HALF and torch.float16 in floats:
        return "the CPU's intermediate values overflow in 16 bits"
    if packet.startswith("upsample_nearest") and packet.endswith("_backward"):
        grown, given = entry.args[1:3]
        if any(large % small for large, small in zip(grown, given[2:], strict=True)):
            return _WRONG + "gradients of scales that are no whole numbers"
    if packet == "convolution_backward" and _may_crash(entry):
        return "IREE's compiler crashes on some gradients of convolutions"
    if packet in _ADD_UP and not _adds_as_given(given[0], (results or given)[-1]):
        return "numbers are converted to the output's dtype before they are added up"
    if packet in _INTEGER_DIVISION and not (results or given)[0].is_floating_point:
        return "integer division by zero is not checked"
    if packet in _BY_INDEX_LISTS and any(
        item is not None and item.dtype == torch.bool for item in entry.args[1]
    ):
        return "it selects by a mask"
    if packet == "max_pool2d_with_indices_backward" and not _tiles(entry):
        return "the gradient of pools that overlap is scattered on the stack"
    adds = packet in ("index_add", "scatter_add") or (packet in _PUTS and entry.args[3])
    if adds and refs[0].dtype == torch.bool:
        return _WRONG + "bools are added as bits"
    if packet == "div" and entry.args[-1] == "floor":
        return NEVER_COMPILE["aten::floor_divide"]
    if name == "aten::pow.Tensor_Scalar" and float(entry.args[1]) not in EXACT_POWERS:
        return NEVER_COMPILE["aten::pow.Scalar"]
    if entry.op.startswith(ATTENTION):
        query, key = entry.args[1:3] if entry.op.endswith("_backward") else entry.args[:2]
        if query.sizes[1] != key.sizes[1]:
            return "attention with grouped heads is not written out"
    return None


def _adds_as_given(source: torch.dtype, result: torch.dtype) -> bool:
    """Whether a sum that is converted at its end is the sum of what was converted first."""
    if not source.is_floating_point:
        return not result.is_floating_point and result != torch.bool
    return result in (source, torch.float32) or (source, result) == (torch.float32, torch.float64)


def _reason_in_default_dtype(operator: Operator, entry: Entry) -> str | None:
    """Integers become floats of the call's default dtype, and planning comes later."""
    is_said = any(
        kind.startswith("ScalarType") and value is not None
        for kind, value in zip(operator.types, entry.args, strict=True)
    )
    typed = [
        value.dtype
        for value in argument_values(entry)
        if isinstance(value, TensorRef) or (isinstance(value, HostScalar) and not value.wrapped)
    ]
    if not is_said and typed and not any(dtype.is_floating_point for dtype in typed):
        for ref in entry.outputs:
            if ref is not None and ref.dtype.is_floating_point and ref.dtype != torch.float32:
                return f"integers become {ref.dtype}, the default at the call"
    return None


def _may_crash(entry: Entry) -> bool:
    """Whether a convolution has three dimensions, or is dilated, or strided by an oblong kernel."""
    _, _, weight, _, stride, _, dilation = entry.args[:7]
    kernel = weight.sizes[2:]
    is_strided = len(set(kernel)) > 1 and any(n > 1 for n in stride)
    return len(kernel) > 2 or any(n > 1 for n in dilation) or is_strided


def _tiles(entry: Entry) -> bool:
    """Whether the windows of a max pool lie side by side, inside the input."""
    grad, source, kernel, stride, padding, dilation = entry.args[:6]
    sides = range(-2, 0)
    return (
        list(stride or kernel) == list(kernel)
        and not any(padding)
        and set(dilation) == {1}
        and all(grad.sizes[d] * kernel[d + len(kernel)] <= source.sizes[d] for d in sides)
    )


def argument_values(entry: Entry) -> Iterator[Any]:
    """Yields the argument values, those inside lists one by one."""
    for arg in entry.args:
        yield from _as_list(arg)


def _as_list(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, (list, tuple)) else [value]
