"""An exported program with its operators written out, as regions are."""

from __future__ import annotations

import warnings

from torch.export import ExportedProgram

from torch_shark.lowering import decompositions


def decompose(program: ExportedProgram) -> ExportedProgram:
    """Return the program in operators that IREE has a lowering for."""
    with warnings.catch_warnings():
        # PyTorch copies pytree specs by way of a class that it deprecates itself.
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
        decomposed: ExportedProgram = program.run_decompositions(decompositions.table())
    return decomposed
