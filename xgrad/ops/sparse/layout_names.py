"""Checks `layout=` arguments, and names layouts in error messages, for the operators of sparse tensors."""

from typing import Any

COMPRESSED = ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
ROWS = frozenset(["sparse_csr", "sparse_bsr"])  # layouts that are compressed by rows
BLOCKED = frozenset(["sparse_bsr", "sparse_bsc"])


def layout_of(layout: Any) -> str:
    """Check a layout, and return it.  Raises `TypeError` for anything else."""
    if layout not in (*COMPRESSED, "sparse_coo", "strided"):
        raise TypeError(
            f"argument 'layout' must be xgrad.strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr or sparse_bsc, "
            f"not {layout!r}"
        )
    return layout


def named_layout(layout: str) -> str:
    """A layout's name in messages: "SparseCsr", "Sparse", "Strided"."""
    return "Sparse" if layout == "sparse_coo" else "".join(part.title() for part in layout.split("_"))
