"""What the device does not do as the CPU does: the gap list, and what no two runs agree on.

A gap raises NotImplementedError at its call. A wrong value is never one, and an entry that works is
an error of the tests: the lists say what is missing, no more and no less.
"""

SPARSE = "the device has strided tensors only"

# Operator: why.
GAPS = {
    "sparse.mm": SPARSE,
    "sparse.sampled_addmm": SPARSE,
    "to_sparse": SPARSE,
}

LOOKED_AT_LATE = "an index is looked at when the operator runs, so the next sync raises"

# Operator: why one of its error inputs raises later than at its call. The error is the CPU's.
LATE_ERRORS = {
    "gather": LOOKED_AT_LATE,
    "scatter": LOOKED_AT_LATE,
    "scatter_add": LOOKED_AT_LATE,
}

# Operator: why the CPU itself gives other bits from call to call. Such results are compared within
# the tolerances of torch.testing.
UNSETTLED = {
    "linalg.lstsq": "LAPACK's gelsy gets pivots that PyTorch leaves unset",
}
