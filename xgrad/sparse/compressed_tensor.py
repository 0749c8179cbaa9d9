"""CompressedTensor: stores a sparse matrix in the layout sparse_csr, sparse_csc, sparse_bsr or sparse_bsc.

    layout       compressed by   compressed indices   plain indices   values
    sparse_csr   rows            crow_indices         col_indices     (nnz,)
    sparse_csc   columns         ccol_indices         row_indices     (nnz,)
    sparse_bsr   rows            crow_indices         col_indices     (nnz, *blocksize)
    sparse_bsc   columns         ccol_indices         row_indices     (nnz, *blocksize)

Beside these it has, as every sparse tensor does, the place of each element (`_index`) and the elements in that order
(`_entries`): so it is differentiated, multiplied and summed as a sparse_coo tensor, and only its parts show the layout.
Invariants: each place occurs once; a sparse gradient of it has its layout.
This module is loaded with the first sparse tensor.  (PyTorch: SparseCsrTensorImpl.h, SparseCsrTensor.cpp.)
"""

from collections.abc import Callable
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np

from ..base import dtypes
from ..config import Unrecorded, state
from ..dispatch.call import call
from ..dispatch.operator import Operator
from ..ops.sparse.layout_names import BLOCKED, ROWS, named_layout
from ..ops.sparse.parts import host_of, private
from ..tensor import Tensor, blank, from_array, mark
from .node import record, refusal
from .operators import KEEP_ZERO, dispatch_coordinates, is_scalar
from .tensor import Pattern, SparseTensor, densely, gather, make


class CompressedTensor(SparseTensor):
    """A matrix of a compressed sparse layout; made by `xgrad.sparse_csr_tensor` and its like, and `to_sparse_csr`."""

    _compressed: Tensor  # (rows or columns + 1,), counted in blocks
    _plain: Tensor  # (nnz,)
    _block: tuple[int, int] | None

    # -- its parts ------------------------------------------------------------------------------------------------

    is_sparse = False  # PyTorch's word for sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        return self.layout == "sparse_csr"

    def _nnz(self) -> int:
        return self._plain.shape[0]

    def _parts(self) -> tuple:
        """The parts that are printed: names and tensors."""
        names = ("crow_indices", "col_indices") if self.layout in ROWS else ("ccol_indices", "row_indices")
        return (names[0], self._compressed), (names[1], self._plain), ("values", self._values())

    def _part(self, name: str) -> Tensor:
        kind = "row" if name in ("crow_indices", "col_indices") else "column"
        if (kind == "row") is not (self.layout in ROWS):
            raise RuntimeError(
                f"{name} expected sparse {kind} compressed tensor layout but got {named_layout(self.layout)}"
            )
        return private(self._compressed if name.startswith("c") and name[1] in "rc" else self._plain)

    def crow_indices(self) -> Tensor:
        return self._part("crow_indices")

    def col_indices(self) -> Tensor:
        return self._part("col_indices")

    def ccol_indices(self) -> Tensor:
        return self._part("ccol_indices")

    def row_indices(self) -> Tensor:
        return self._part("row_indices")

    def _shape_of_values(self) -> tuple[int, ...]:
        return (self._nnz(), *(self._block or ()))

    def _values(self) -> Tensor:
        values = super()._values()
        return values if self._block is None else values.view(self._shape_of_values())

    def values(self) -> Any:
        if not (state.grad_enabled and self.requires_grad):
            return self._values()
        with Unrecorded():
            values = private(self._entries).reshape(self._shape_of_values())
        like = self._with(self._entries)
        return record("ValuesBackward0", values, (self,), lambda grad, needs: (from_values(like, grad),))

    def _coordinates_only(self, name: str) -> NoReturn:
        raise RuntimeError(
            f"{name} expected sparse coordinate tensor layout but got {named_layout(self.layout)}: call to_sparse() "
            "first"
        )

    def indices(self) -> NoReturn:
        self._coordinates_only("indices")

    def _indices(self) -> NoReturn:
        self._coordinates_only("_indices")

    def coalesce(self) -> NoReturn:
        self._coordinates_only("coalesce")

    def is_coalesced(self) -> NoReturn:
        self._coordinates_only("is_coalesced")

    # -- others of its kind ---------------------------------------------------------------------------------------

    def _with(self, entries: Tensor, index: Tensor | None = None) -> "CompressedTensor":
        first, plain = self._compressed, self._plain
        if index is None:
            index = self._index
        else:
            first, plain = (part.to(index._placed()) for part in (first, plain))
        return compressed(self.layout, first, plain, self._block, index, entries, self._sizes)

    def _on(self, place: Callable) -> "CompressedTensor":
        parts = self._index, self._compressed, self._plain, self._entries
        index, first, plain, entries = (private(t, place) for t in parts)
        return compressed(self.layout, first, plain, self._block, index, entries, self._sizes)

    def _form(self) -> Callable:
        layout, block = self.layout, self._block
        return lambda grad: converted(grad, layout, block) if grad._sparse else grad

    def t(self) -> Any:
        turned = {"sparse_csr": "sparse_csc", "sparse_csc": "sparse_csr"}
        turned |= {"sparse_bsr": "sparse_bsc", "sparse_bsc": "sparse_bsr"}
        index, entries, block = self._index.flip(0), private(self._entries), self._block
        if block is not None:
            inside = from_array(jnp.arange(self._entries.shape[0]).reshape(-1, *block).swapaxes(1, 2).ravel())
            index, entries, block = index[:, inside], entries[inside], block[::-1]
        result = compressed(
            turned[self.layout], self._compressed, self._plain, block, index, entries, self._sizes[::-1]
        )
        return record("TBackward0", result, (self,), lambda grad, needs: (grad.t(),))

    def to_sparse(
        self, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None
    ) -> Any:
        if sparse_dim not in (None, 2):
            raise RuntimeError(
                f"sparse_compressed_to_sparse: conversion from {named_layout(self.layout)} to Sparse with sparse_dim "
                f"argument !=2 is not supported, got {sparse_dim}"
            )
        if dense_dim is not None:
            raise RuntimeError(
                f"to_sparse: conversion from {named_layout(self.layout)} with dense_dim argument given is not supported"
            )
        return converted(self, layout or "sparse_coo", blocksize, "ToSparseBackward1")

    def sparse_mask(self, mask: Tensor) -> NoReturn:
        raise refusal("sparse_mask")

    def _become(self, other: SparseTensor) -> None:
        with Unrecorded():
            other = converted(other, self.layout, self._block)
        assert isinstance(other, CompressedTensor)
        self._compressed, self._plain, self._block = other._compressed, other._plain, other._block
        super()._become(other)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        parts = (private(t) for t in (self._compressed, self._plain))
        rest = private(self._index), private(self._entries), self._sizes
        return _rebuilt, (self._requires_grad, self.layout, *parts, self._block, *rest)


for _name in ("crow_indices", "col_indices", "ccol_indices", "row_indices"):
    getattr(CompressedTensor, _name).__doc__ = f"The {_name} of a tensor with that layout."


def compressed(
    layout: str, compressed_indices: Tensor, plain: Tensor, block: Any, index: Tensor, entries: Tensor, size: Any
) -> CompressedTensor:
    """Make a tensor of parts that fit together, are outside of all graphs, and that no other tensor writes to."""
    made = blank(CompressedTensor)
    made.layout, made._compressed, made._plain, made._block = layout, compressed_indices, plain, block
    made._index, made._entries, made._sizes, made._coalesced = index, entries, tuple(size), False
    if state.inference:
        mark(made)
    return made


def _rebuilt(requires_grad: bool, *parts: Any) -> CompressedTensor:
    """Make the leaf that unpickling returns."""
    made = compressed(*parts)
    made._requires_grad = requires_grad
    return made


def from_values(like: CompressedTensor, values: Tensor, name: str = "SparseCompressedTensorBackward0") -> Any:
    """Make a tensor with the places of `like` and these values, through which it is differentiated."""
    shape, index = tuple(values.shape), like._index
    result = like._with(private(values.detach().reshape(-1)))

    def rule(grad: Any, needs: int) -> tuple:
        if isinstance(grad, CompressedTensor) and grad._index is index:
            return (grad.values(),)
        return (call(gather, (densely(grad), index), ()).reshape(shape),)

    return record(name, result, (values,), rule)


# -- places -----------------------------------------------------------------------------------------------------------


def places(layout: str, compressed_indices: np.ndarray, plain: np.ndarray, block: Any) -> np.ndarray:
    """The place of each element, (2, elements), in the order of the values."""
    major = np.repeat(np.arange(len(compressed_indices) - 1), np.diff(compressed_indices))
    at = np.stack([major, plain] if layout in ROWS else [plain, major])
    if block is None:
        return at
    corners = at[:, :, None, None] * np.asarray(block)[:, None, None, None]
    return (corners + np.indices(block)[:, None]).reshape(2, -1)


def _structure(layout: str, index: np.ndarray, size: tuple, block: Any) -> tuple:
    """(compressed indices, plain indices, places, the position among the values of each element at `index`)."""
    b = block or (1, 1)
    corners = index // np.asarray(b)[:, None]
    major, minor = corners if layout in ROWS else corners[::-1]
    counts = (size[0] // b[0], size[1] // b[1])
    majors, minors = counts if layout in ROWS else counts[::-1]
    known, which = np.unique(major * minors + minor, return_inverse=True)
    first = np.concatenate([[0], np.cumsum(np.bincount(known // max(minors, 1), minlength=majors))])
    plain = known % max(minors, 1)
    inside = index - corners * np.asarray(b)[:, None]
    where = np.ravel(which) * (b[0] * b[1]) + inside[0] * b[1] + inside[1]
    return first, plain, places(layout, first, plain, block), where


def _integers(array: np.ndarray) -> Tensor:
    return from_array(jnp.asarray(array.astype(dtypes.default_integer())))


# -- conversions ------------------------------------------------------------------------------------------------------


def block_of(layout: str, block: Any, size: tuple[Any, ...], source: str, where: str) -> tuple[int, int] | None:
    """Check the block size of a conversion, and return it."""
    if layout not in BLOCKED:
        if block is not None:
            raise RuntimeError(
                f"{where}: conversion from {source} to {named_layout(layout)} with blocksize argument given is not "
                "supported"
            )
        return None
    if block is None:
        raise RuntimeError(
            f"{where}: conversion from {source} to {named_layout(layout)} without blocksize argument given is not "
            "supported: give blocksize=(rows, columns)"
        )
    block = tuple(block) if isinstance(block, (tuple, list)) else (block, block)
    if len(block) != 2:
        raise RuntimeError(f"{where}: blocksize needs to be a tuple of size 2, but got {len(block)}")
    if any(b <= 0 for b in block):
        raise RuntimeError(f"{where}: blocksize needs to be positive, but got {list(block)}")
    if size[0] % block[0] or size[1] % block[1]:
        raise RuntimeError(
            f"{where}: tensor sparse size ({size[0]},{size[1]}) must be divisible by given blocksize "
            f"({block[0]},{block[1]})"
        )
    return block


def from_dense(input: Tensor, layout: str, block: Any, name: str, where: str) -> Any:
    """Convert a dense matrix to a compressed layout."""
    if input.ndim != 2:
        raise NotImplementedError(
            f"{where}: {named_layout(layout)} tensors are matrices here, without batches and dense dimensions, but got "
            f"{input.ndim} dimensions. Use to_sparse(sparse_dim), of layout sparse_coo, or a list of matrices."
        )
    size = tuple(input.shape)
    block = block_of(layout, block, size, "Strided", where)
    host = host_of(input, where)
    first, plain, at, _ = _structure(layout, np.stack(np.nonzero(host)), size, block)
    index = _integers(at)
    with Unrecorded():
        entries = call(gather, (input, index), ())
    made = compressed(layout, _integers(first), _integers(plain), block, index, entries, size)
    return record(name, made, (input,), lambda grad, needs: (densely(grad),))


_NODES = {
    "sparse_csr": "ToSparseCsrBackward0", "sparse_csc": "ToSparseCscBackward0", "sparse_bsr": "ToSparseBsrBackward0",
    "sparse_bsc": "ToSparseBscBackward0", "sparse_coo": "ToSparseBackward1",
}  # fmt: skip


def converted(source: Any, layout: str, block: Any = None, name: str | None = None) -> Any:
    """Convert a sparse tensor to another layout; return it if it has that layout."""
    where = "sparse_compressed_to_sparse" if isinstance(source, CompressedTensor) else "to_sparse"
    size = source._sizes
    mine: Any = getattr(source, "_block", None)
    if source.layout == layout and (block is None or tuple(block) == mine):
        return source
    if source.layout == layout and layout in BLOCKED:
        raise RuntimeError(
            f"{where}: conversion from {named_layout(layout)} to itself with blocksize changed from {list(mine)} to "
            f"{list(block)} is not supported. Use to_dense(), or to_sparse(), in between."
        )
    if source._index.shape[0] != 2 or source.dense_dim():
        raise NotImplementedError(
            f"{where}: {named_layout(layout)} tensors are matrices here, but got {source.sparse_dim()} sparse and "
            f"{source.dense_dim()} dense dimensions. Stay with sparse_coo."
        )
    block = block_of(layout, block, size, named_layout(source.layout), where)
    if not isinstance(source, CompressedTensor):
        source = source.coalesce()
    host, order = host_of(source._index, where), None
    if layout == "sparse_coo":
        order = np.lexsort((host[1], host[0]))
        result = make(_integers(host[:, order]), _at(source, order), size, True)
    else:
        first, plain, at, stand = _structure(layout, host, size, block)
        entries = jnp.zeros((at.shape[1],), source.dtype).at[jnp.asarray(stand)].set(source._entries._read())
        result = compressed(layout, _integers(first), _integers(plain), block, _integers(at), from_array(entries), size)
    pattern = Pattern(source)

    def rule(grad: Any, needs: int) -> tuple:
        return (pattern.masked(grad) if grad._sparse else grad,)

    return record(name or _NODES[layout], result, (source,), rule)


def _at(source: SparseTensor, order: np.ndarray) -> Tensor:
    return from_array(source._entries._read()[jnp.asarray(order)])


# -- operators --------------------------------------------------------------------------------------------------------

_BY_COORDINATES = frozenset(["add", "sub", "mul"])
_AS_THEY_ARE = frozenset(["mm", "matmul", "mv", "addmm", "sum"])
_ON_VALUES = frozenset(["mul", "div", "true_divide", "neg", "clone"])


def dispatch_compressed(op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """Run an operator with a compressed tensor among its arguments."""
    name = op.name
    sparse = [a for a in args if isinstance(a, SparseTensor)]
    first = next(a for a in sparse if isinstance(a, CompressedTensor))
    alone = len(sparse) == 1 and all(a is first or is_scalar(a) for a in args)
    if alone and (name in _ON_VALUES or (name in KEEP_ZERO and args[0] is first)):
        if "div" in name and args[0] is not first:
            raise refusal("a number divided by a sparse tensor")
        values = call(op, tuple(first.values() if a is first else a for a in args), statics)
        return from_values(first, values, op.node_name)
    if name in _BY_COORDINATES:
        args = tuple(converted(a, "sparse_coo") if isinstance(a, CompressedTensor) else a for a in args)
        result = dispatch_coordinates(op, args, statics)
    elif name == "sum" and statics[0] is not None:
        raise refusal("sum over dimensions, unless of to_sparse(),")
    elif name in _AS_THEY_ARE or name.endswith("_backward") or name == "_fit":
        result = dispatch_coordinates(op, args, statics)
    else:
        raise refusal(name)
    if not isinstance(result, SparseTensor):
        return result
    return product_of(result, first) if name in _AS_THEY_ARE else converted(result, first.layout, first._block)


def product_of(result: Any, first: SparseTensor) -> Any:
    """Convert a sparse product to PyTorch's layout: by rows, unless of blocks."""
    layout = "sparse_csr" if first.layout == "sparse_csc" else first.layout
    return converted(result, layout, getattr(first, "_block", None))
