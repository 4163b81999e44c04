"""The gap list: operators that the CPU has and the device refuses.

Each raises NotImplementedError at its call. A wrong value is never a gap, and an entry that works
is an error of the tests: the list says what is missing, no more and no less.
"""

SPARSE = "the device has strided tensors only"

GAPS = {
    "sparse.mm": SPARSE,
    "sparse.sampled_addmm": SPARSE,
    "to_sparse": SPARSE,
}
