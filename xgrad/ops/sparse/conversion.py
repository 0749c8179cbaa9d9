"""sparse_coo_tensor, to_sparse, to_dense, coalesce, indices, values, ...: make, convert and read sparse_coo tensors.

The class is in `sparse/tensor.py`, which is imported (and `jax.experimental.sparse` with it) when the first sparse
tensor is made.  (PyTorch: SparseTensor.cpp, TensorConversions.cpp.)
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...base.dtypes import as_dtype
from ...config import settings
from ...dispatch.call import call
from ...dispatch.declare import composite
from ...tensor import Tensor, from_array
from ...views.named.arguments import sizes_of
from ...views.storage import Tracer
from ..create.from_data import as_tensor, finish
from ..index.index_checks import on_host
from .layout_names import layout_of, named_layout
from .parts import host_of, private


def _sparse() -> Any:
    from ...sparse import tensor  # with jax.experimental.sparse, when the first one is made

    return tensor


def _not_sparse(name: str, kind: str = "sparse coordinate tensor") -> RuntimeError:
    return RuntimeError(f"{name} expected {kind} layout but got Strided")


@composite(method=False)
def sparse_coo_tensor(
    indices: Any, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:  # fmt: skip
    """A sparse tensor with `values` at `indices`, differentiable in `values`.

    `indices`: integers of shape (sparse dimensions, n).  `values`: (n, *dense dimensions).  `size`: the whole shape; by
    default the smallest in which the indices lie.  Entries at one place add up (`coalesce()` does it).  The parts are
    copied before anybody writes to them.  `check_invariants=False` skips the look at the indices, which is also skipped
    on an accelerator unless True is given.  `is_coalesced=True` says that they are sorted and distinct.

    Raises `RuntimeError` for parts that do not fit together, for indices out of range, and for an `is_coalesced` that
    is not so.

    >>> import xgrad
    >>> xgrad.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    made = _sparse()
    if values is None:  # sparse_coo_tensor(size)
        size = sizes_of((indices,))
        indices = from_array(jnp.zeros((len(size), 0), dtypes.default_integer()))
        values = from_array(jnp.zeros((0,), settings.default_dtype if dtype is None else as_dtype(dtype)))
        is_coalesced = True
    index = as_tensor(indices, device=device)
    if index.dtype.kind not in "iu":
        index = index.to(dtypes.default_integer())
    values = as_tensor(values, dtype=dtype, device=device)
    if index.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(index.shape)}")
    if not values.ndim or values.shape[0] != index.shape[1]:
        n = values.shape[0] if values.ndim else 1
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {index.shape[1]}, nnz from values: {n}"
        )
    if check_invariants is None and settings.check_sparse:
        check_invariants = True
    host = None if check_invariants is False else _seen(index, check_invariants)
    sparse, dense = index.shape[0], values.ndim - 1
    if size is None:
        if host is None:
            host = np.asarray(index._read())
        size = (*(int(row.max(initial=-1)) + 1 for row in host), *values.shape[1:])
    size = sizes_of((size,))
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {list(size)}")
    if len(size) != sparse + dense:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {sparse}, "
            f"dense_dim = {dense}"
        )
    if tuple(values.shape[1:]) != size[sparse:]:
        raise RuntimeError(
            f"values has incorrect size, expected {[index.shape[1], *size[sparse:]]}, got {list(values.shape)}"
        )
    if host is not None:
        _check_places(host, size)
    if is_coalesced and host is not None and made.distinct(index, size)[0] is not None:
        raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")
    result = made.from_parts(index, values, size, bool(is_coalesced))
    return result if result.requires_grad else finish(result, requires_grad)


def _seen(index: Tensor, required: bool | None) -> np.ndarray | None:
    """The indices on the host; None for indices on an accelerator, unless they are `required`."""
    if required and not isinstance(index._read(), Tracer):
        return np.asarray(index._read())
    return on_host(private(index))  # a twin: what NumPy sees is no longer ours to write to


def _check_places(host: np.ndarray, size: tuple) -> None:
    for dim, row in enumerate(host):
        if row.size and row.min() < 0:
            raise RuntimeError(f"found negative index {row.min()} for dim {dim}")
        if row.size and row.max() >= size[dim]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {size[dim]} but found index {row.max()}"
            )


@composite(function=False)
def to_dense(input: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor with all its zeros; a dense one itself.

    The gradient of a sparse tensor has its entries; with `masked_grad=False` it has one wherever it is not zero.
    """
    return input if dtype is None else input.to(as_dtype(dtype))


@composite(function=False)
def to_sparse(
    input: Tensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """The tensor as a sparse one, with an entry for each element that is not zero (not all zero, in its dense
    dimensions, which are those after the first `sparse_dim`, or the last `dense_dim`).  Needs the values: not under a
    JAX trace.

    `layout`: xgrad.sparse_coo, the default, or for matrices sparse_csr, sparse_csc, sparse_bsr or sparse_bsc; the last
    two need a `blocksize`.

    >>> import xgrad
    >>> xgrad.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    tensor(indices=tensor([[0],
                           [1]]),
           values=tensor([2.]),
           size=(2, 2), nnz=1, layout=xgrad.sparse_coo)
    """
    kind = "sparse_coo" if layout is None else layout_of(layout)
    if sparse_dim is not None and not (layout is None and blocksize is None and dense_dim is None):
        raise TypeError("to_sparse() takes sparse_dim, or else layout, blocksize and dense_dim, but not both")
    if kind == "strided":
        return input
    if kind != "sparse_coo":
        from ...sparse import compressed_tensor  # as `_sparse` says

        if dense_dim:
            raise NotImplementedError(
                f"to_sparse: {named_layout(kind)} with dense_dim={dense_dim} is not supported. Use layout=sparse_coo."
            )
        return compressed_tensor.from_dense(input, kind, blocksize, "ToSparseBackward1", "dense_to_sparse")
    if blocksize is not None:
        raise RuntimeError(
            "dense_to_sparse: conversion from Strided to Sparse with blocksize argument given is not supported"
        )
    if dense_dim is not None:
        if not 0 <= dense_dim <= input.ndim:
            raise RuntimeError(
                f"dense_to_sparse: dense_dim argument must be in [0,{input.ndim}] range, but {dense_dim} is given"
            )
        sparse_dim = input.ndim - dense_dim
    made = _sparse()
    n = input.ndim if sparse_dim is None else sparse_dim
    if not 0 <= n <= input.ndim:
        raise RuntimeError(f"dense_to_sparse: sparse_dim argument must be in [0,{input.ndim}] range, but {n} is given")
    if n == 0 and input.ndim:
        raise RuntimeError("dense_to_sparse: sparse_dim argument must be in >0 when self.dim()>0")
    host = (host_of(input, "to_sparse") != 0).any(axis=tuple(range(n, input.ndim)))
    index = np.stack(np.nonzero(host)) if n else np.zeros((0, int(host)), int)
    places = from_array(jnp.asarray(index.astype(dtypes.default_integer())))
    name = "ToSparseBackward1" if sparse_dim is None or dense_dim is not None else "ToSparseBackward0"
    return made.entries_at(input, places, True, name, lambda grad, needs: (made.densely(grad),))


@composite(function=False)
def sparse_mask(input: Tensor, mask: Tensor) -> Tensor:
    """The elements at the places where the sparse `mask` has entries, as a sparse tensor with its indices."""
    if not isinstance(mask, Tensor) or not mask._sparse:
        raise NotImplementedError("Could not run 'sparse_mask': expected mask to be sparse, but it is a dense tensor")
    if input.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(input.shape)} but mask has size "
            f"{list(mask.shape)}"
        )
    made = _sparse()
    entries: Any = mask
    size, index = entries._sizes, entries._index

    def rule(grad: Any, needs: int) -> tuple:
        # The gradient of an element that several entries show is the sum of theirs.
        rows = call(made.gather, (made.densely(grad), index), ())
        return (call(made.to_dense, (rows, index), (size,)),)

    return made.entries_at(input, index, entries._coalesced, "SparseMaskBackward0", rule)


@composite(function=False)
def coalesce(input: Tensor) -> Tensor:
    """A sparse tensor with sorted, distinct indices, the values at one place summed; itself if it is so."""
    raise _not_sparse("coalesce")


@composite(function=False)
def is_coalesced(input: Tensor) -> bool:
    """True if a sparse tensor is known to have sorted, distinct indices."""
    raise _not_sparse("is_coalesced")


@composite(function=False)
def indices(input: Tensor) -> Tensor:
    """The indices of a coalesced sparse tensor: (sparse dimensions, entries)."""
    raise _not_sparse("indices")


@composite(function=False)
def values(input: Tensor) -> Tensor:
    """The values of a coalesced sparse tensor, through which it is differentiated: (entries, *dense dimensions)."""
    raise _not_sparse("values", "sparse tensor")


def _unavailable(name: str, doc: str) -> None:
    def method(input: Tensor) -> Any:
        raise NotImplementedError(f"Could not run '{name}' on a dense tensor: it is for sparse ones")

    method.__name__, method.__doc__ = name, doc
    composite(name, function=False)(method)


_unavailable("_indices", "The indices of a sparse tensor, coalesced or not.")
_unavailable("_values", "The values of a sparse tensor, coalesced or not, outside of its graph.")
_unavailable("_nnz", "The number of a sparse tensor's entries.")


@composite(function=False)
def sparse_dim(input: Tensor) -> int:
    """The number of dimensions that the indices count; 0 for a dense tensor."""
    return 0


@composite(function=False)
def dense_dim(input: Tensor) -> int:
    """The number of dimensions that each entry has."""
    return input.ndim
