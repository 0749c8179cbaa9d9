"""sparse_csr_tensor, to_sparse_csr, crow_indices, ...: make and read sparse matrices of layouts csr, csc, bsr, bsc.

The class is in `sparse/compressed_tensor.py`, which is imported when the first sparse tensor is made.
(PyTorch: SparseCsrTensor.cpp, ValidateCompressedIndicesCommon.h.)
"""

from typing import Any

import numpy as np

from ...base import dtypes
from ...config import settings
from ...dispatch.declare import composite
from ...tensor import Tensor, from_array
from ...views.named.arguments import sizes_of
from ..create.from_data import as_tensor, finish
from .layout_names import BLOCKED, COMPRESSED, ROWS, layout_of, named_layout
from .parts import host_of


def _compressed() -> Any:
    from ...sparse import compressed_tensor  # with jax.experimental.sparse, when the first one is made

    return compressed_tensor


@composite(method=False)
def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """A sparse matrix in a compressed `layout` (xgrad.sparse_csr, sparse_csc, sparse_bsr or sparse_bsc).

    `compressed_indices`: (rows + 1,), where each row's entries start (of sparse_csc and sparse_bsc each column's; of
    sparse_bsr and sparse_bsc counted in blocks).  `plain_indices`: (nnz,), the column (row) of each entry.  `values`:
    (nnz,), or (nnz, *blocksize) for blocks; it is differentiated in them.  `size`: default the smallest that fits.

    It converts (`to_dense`, `to_sparse(layout=)`), multiplies (`@`, `mm`, `mv`, `addmm`, `xgrad.sparse.mm`), and does
    what works entry by entry; other operators, batches and dense dimensions are refused.

    Indices that lead nowhere, and a place that is there twice, are always a `RuntimeError`, as is what does not fit
    together; with `check_invariants=True` also indices that are not in order.  They are read on the host.

    >>> import xgrad
    >>> a = xgrad.sparse_compressed_tensor([0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0], (2, 3), layout=xgrad.sparse_csr)
    >>> a
    tensor(crow_indices=tensor([0, 1, 3]),
           col_indices=tensor([1, 0, 2]),
           values=tensor([1., 2., 3.]), size=(2, 3), nnz=3,
           layout=xgrad.sparse_csr)
    >>> a @ xgrad.ones(3)
    tensor([1., 5.])
    """
    if layout is None or layout_of(layout) not in COMPRESSED:
        got = "none" if layout is None else named_layout(layout_of(layout))
        raise RuntimeError(f"sparse_compressed_tensor expected sparse compressed tensor layout but got {got}")
    made, layout = _compressed(), layout_of(layout)
    parts = [_indices(x, device) for x in (compressed_indices, plain_indices)]
    values = as_tensor(values, dtype=dtype, device=device)
    names = ("crow_indices", "col_indices") if layout in ROWS else ("ccol_indices", "row_indices")
    block = _check_shapes(parts, values, layout, names)
    first, plain = (host_of(part, f"sparse_{layout}_tensor") for part in parts)
    b = block or (1, 1)
    if size is None:
        majors, minors = len(first) - 1, int(plain.max(initial=-1)) + 1
        size = (majors * b[0], minors * b[1]) if layout in ROWS else (minors * b[0], majors * b[1])
    size = _check_size(sizes_of((size,)), b, len(first), layout, names)
    counts = size[0] // b[0], size[1] // b[1]
    ordered = settings.check_sparse if check_invariants is None else bool(check_invariants)
    _check_places(first, plain, counts if layout in ROWS else counts[::-1], layout, names, ordered)
    index = made.places(layout, first, plain, block)
    like = made.compressed(layout, *parts, block, made._integers(index), values, size)
    result = made.from_values(like, values)
    return result if result.requires_grad else finish(result, requires_grad)


def _indices(x: Any, device: Any) -> Tensor:
    """Copy indices, so that no write of a user can change them."""
    index = as_tensor(x, device=device)
    if index.dtype.kind in "iu":
        return from_array(index.detach().clone()._read())
    if index.numel():
        raise RuntimeError(f"sparse_compressed_tensor: indices must be integers, but got {index.dtype.name}")
    return index.to(dtypes.default_integer())


def _check_shapes(parts: list, values: Tensor, layout: str, names: tuple) -> tuple[int, int] | None:
    """Check dimensions and lengths; return the block size, if the layout has one."""
    for part, name in zip(parts, names):
        if part.ndim < 1:
            raise RuntimeError(f"{name} must have dimensionality >= 1 but got {part.ndim}")
    if parts[0].ndim != parts[1].ndim:
        raise RuntimeError(
            f"{names[0]} and {names[1]} dimensionalities must be equal but got {parts[0].ndim} and {parts[1].ndim}, "
            "respectively"
        )
    blocked = 2 if layout in BLOCKED else 0
    if values.ndim <= blocked:
        raise RuntimeError(
            f"values must have dimensionality > sum of batch and block dimensionalities (=0 + {blocked}) but got "
            f"{values.ndim}"
        )
    if parts[0].ndim > 1 or values.ndim > 1 + blocked:
        raise NotImplementedError(
            f"{named_layout(layout)} tensors are matrices here: batches and dense dimensions are not supported, but "
            f"got indices of {parts[0].ndim} and values of {values.ndim} dimensions. Use sparse_coo_tensor, or a list "
            "of matrices."
        )
    if values.shape[0] != parts[1].shape[0]:
        raise RuntimeError(
            f"{names[1]}.shape[-1] must be equal to nnz (={values.shape[0]}) as defined by values.shape[0], but got "
            f"{parts[1].shape[0]}"
        )
    if not parts[0].shape[0]:
        raise RuntimeError(f"{names[0]} must have at least one element, but is empty")
    return (values.shape[1], values.shape[2]) if blocked else None


def _check_size(size: Any, block: tuple, length: int, layout: str, names: tuple) -> tuple[int, int]:
    if len(size) != 2:
        raise RuntimeError(
            "tensor dimensionality must be sum of batch, base, and dense dimensionalities (=0 + 2 + 0) but got "
            f"{len(size)}"
        )
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {list(size)}")
    for i, (n, b) in enumerate(zip(size, block)):
        if not b or n % b:
            raise RuntimeError(
                f"tensor shape[{i}] (={n}) must be divisible with blocksize[{i}] (={b}) as defined by values shape"
            )
    what, dim = ("rows", 0) if layout in ROWS else ("columns", 1)
    expected = size[dim] // block[dim] + 1
    if length != expected:
        kind = f"{what[:-1]} blocks" if layout in BLOCKED else what
        raise RuntimeError(
            f"{names[0]}.shape[-1] must be equal to the number of {kind} + 1 (={expected}), but got {length}"
        )
    return tuple(size)


def _check_places(first: np.ndarray, plain: np.ndarray, counts: tuple, layout: str, names: tuple, order: bool) -> None:
    """Check the values of indices; with `order` also that the entries of each row (column) are in order."""
    nnz, (majors, minors) = len(plain), counts
    what = ("rows", "cols") if layout in ROWS else ("cols", "rows")
    if first[0] != 0:
        raise RuntimeError(f"`{names[0]}[..., 0] == 0` is not satisfied: it is {first[0]}")
    if first[-1] != nnz:
        raise RuntimeError(f"`{names[0]}[..., -1] == nnz` is not satisfied: it is {first[-1]}, with {nnz} values")
    steps = np.diff(first)
    if (steps < 0).any() or (steps > minors).any():
        raise RuntimeError(
            f"`0 <= {names[0]}[..., 1:] - {names[0]}[..., :-1] <= n{what[1]}` is not satisfied: the steps are from "
            f"{steps.min()} to {steps.max()}, with {minors} {what[1]}"
        )
    if nnz and not (plain.min() >= 0 and plain.max() < minors):
        raise RuntimeError(
            f"`0 <= {names[1]} < n{what[1]}` is not satisfied: they are from {plain.min()} to {plain.max()}, with "
            f"{minors} {what[1]}"
        )
    places = np.repeat(np.arange(majors), steps) * minors + plain
    if len(np.unique(places)) < nnz or (order and (np.diff(places) <= 0).any()):
        raise RuntimeError(
            f"`{names[1]}[..., {names[0]}[..., i - 1]:{names[0]}[..., i]] for all i = 1, ..., n{what[0]} are sorted "
            "and distinct along the last dimension values` is not satisfied. Entries at one place: use "
            "sparse_coo_tensor, which adds them up."
        )


def _constructor(layout: str, first: str, plain: str, shape: str) -> None:
    def make(
        compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
        device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
        check_invariants: bool | None = None,
    ) -> Tensor:  # fmt: skip
        return sparse_compressed_tensor(
            compressed_indices, plain_indices, values, size, dtype=dtype, layout=layout, device=device,
            requires_grad=requires_grad, check_invariants=check_invariants,
        )  # fmt: skip

    make.__name__ = make.__qualname__ = f"{layout}_tensor"
    make.__doc__ = (
        f"A sparse matrix of layout {layout}: `{first}` say where the entries of each start, `{plain}` where each "
        f"stands, `values` are of shape {shape}.\n\n    See `sparse_compressed_tensor` for all arguments and errors."
    )
    composite(make.__name__, method=False)(make)


_constructor("sparse_csr", "crow_indices", "col_indices", "(nnz,)")
_constructor("sparse_csc", "ccol_indices", "row_indices", "(nnz,)")
_constructor("sparse_bsr", "crow_indices", "col_indices", "(nnz, *blocksize)")
_constructor("sparse_bsc", "ccol_indices", "row_indices", "(nnz, *blocksize)")


# -- methods ----------------------------------------------------------------------------------------------------------


def _to(input: Tensor, layout: str, blocksize: Any, dense_dim: int | None, name: str) -> Any:
    where = f"dense_to_{layout}"
    if input._sparse:
        if dense_dim is not None:
            source = named_layout(input.layout)
            raise RuntimeError(
                f"to_{layout}: conversion from {source} to {named_layout(layout)} with dense_dim argument given is not "
                "supported"
            )
        return _compressed().converted(input, layout, blocksize)
    if dense_dim:
        raise NotImplementedError(
            f"{where}: dense_dim={dense_dim} is not supported, entries are numbers here. Use to_sparse(sparse_dim), of "
            "layout sparse_coo."
        )
    return _compressed().from_dense(input, layout, blocksize, name, where)


@composite(function=False)
def to_sparse_csr(input: Tensor, dense_dim: int | None = None) -> Tensor:
    """The matrix in layout sparse_csr, with an entry for each element that is not zero.  Needs the values.

    >>> import xgrad
    >>> xgrad.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse_csr().crow_indices()
    tensor([0, 1, 1])
    """
    return _to(input, "sparse_csr", None, dense_dim, "ToSparseCsrBackward0")


@composite(function=False)
def to_sparse_csc(input: Tensor, dense_dim: int | None = None) -> Tensor:
    """The matrix in layout sparse_csc, with an entry for each element that is not zero.  Needs the values."""
    return _to(input, "sparse_csc", None, dense_dim, "ToSparseCscBackward0")


@composite(function=False)
def to_sparse_bsr(input: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The matrix in layout sparse_bsr, with an entry for each block that is not all zero.  Needs the values.

    Raises `RuntimeError` for a block size that does not divide the shape.
    """
    return _to(input, "sparse_bsr", blocksize, dense_dim, "ToSparseBsrBackward0")


@composite(function=False)
def to_sparse_bsc(input: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The matrix in layout sparse_bsc, with an entry for each block that is not all zero.  Needs the values.

    Raises `RuntimeError` for a block size that does not divide the shape.
    """
    return _to(input, "sparse_bsc", blocksize, dense_dim, "ToSparseBscBackward0")


def _part(name: str, kind: str) -> None:
    def method(input: Tensor) -> Any:
        raise RuntimeError(
            f"{name} expected sparse {kind} compressed tensor layout but got {named_layout(input.layout)}"
        )

    method.__name__, method.__doc__ = name, f"The {name} of a tensor with a sparse layout compressed by {kind}s."
    composite(name, function=False)(method)


_part("crow_indices", "row")
_part("col_indices", "row")
_part("ccol_indices", "column")
_part("row_indices", "column")
