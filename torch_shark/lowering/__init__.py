"""Lowering: from the entries of a region to an IREE executable, a file per step."""
