"""SparseTensor: the class of tensors of layout sparse_coo, such as gradients of an embedding with `sparse=True`.

It has PyTorch's parts: `indices` of shape (sparse dimensions, nnz) and `values` of shape (nnz, *dense dimensions), two
dense Tensors outside of all graphs; nodes and `.grad` refer to the SparseTensor itself.  Programs take the parts as one
`jax.experimental.sparse.BCOO`.  Entries at one place add up.  A gradient of a sparse tensor is a gradient of the dense
one that it stands for, place by place, so every rule here may take it dense or sparse, coalesced or not.

dispatch/ passes an operator with a SparseTensor among its arguments to `_interpreter`; an operator that is not in the
table of `operators.py` is an error with its name, and so is each access to the one array that does not exist (`_read`).
This module is loaded when the first sparse tensor is made.  (PyTorch: SparseTensorImpl.h, SparseTensor.cpp.)
"""

from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO

from ..base import dtype_object, dtypes
from ..base.devices import device
from ..base.size import Size, unchecked
from ..config import Unrecorded, state
from ..dispatch.call import call
from ..dispatch.operator import Operator
from ..engine.fit import fit
from ..engine.node import InputMetadata
from ..engine.sparse_gradient import Shape
from ..ops.sparse.layout_names import named_layout
from ..ops.sparse.parts import private, same
from ..tensor import Tensor, blank, from_array, mark
from ..tensor_methods.printing import format_sparse
from ..views.storage import Detached, Tracer, value_needed
from .node import caller, record, refusal


def bcoo(values: Any, indices: Any, size: tuple[Any, ...]) -> BCOO:
    """Make JAX's sparse array from the arrays of a sparse tensor."""
    return BCOO((values, indices.T), shape=size)


def _dense(values: Any, indices: Any, *, size: tuple) -> Any:
    if values.dtype == bool:
        return bcoo(values.astype(jnp.int8), indices, size).todense() != 0
    return bcoo(values, indices, size).todense()


def gathered(self: Any, indices: Any) -> Any:
    if not indices.shape[0]:  # all dimensions are dense: each entry is the whole
        return jnp.broadcast_to(self, (indices.shape[1], *self.shape))
    return self[tuple(indices)]


def _summed(values: Any, places: Any, *, n: int) -> Any:
    if values.dtype == bool:
        return jax.ops.segment_max(values, places, n)
    return jax.ops.segment_sum(values, places, n)


# Operators over the dense parts; PyTorch has no names for them, so they are in no table.
to_dense: Operator = Operator("to_dense", _dense, wide=(True, True))
to_dense.derivative(values=lambda grad, indices: gathered(grad, indices))
gather: Operator = Operator("gather_entries", gathered, wide=(False, True))
sum_entries: Operator = Operator("sum_entries", _summed, wide=(True, True))
sum_entries.derivative(values=lambda grad, places: grad[places])
_fit_values = Operator("fit_values", lambda self, *, dtype: fit(self, self.shape, dtype))


class SparseTensor(Tensor):
    """A tensor of layout sparse_coo; made by `xgrad.sparse_coo_tensor`, `Tensor.to_sparse` and sparse gradients."""

    is_sparse: bool = True
    _sparse: bool = True
    layout: str = "sparse_coo"
    _owned: bool = False

    _index: Tensor  # (sparse dimensions, nnz)
    _entries: Tensor  # (nnz, *dense dimensions)
    _sizes: tuple[int, ...]
    _coalesced: bool

    # -- attributes -----------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        return unchecked(self._sizes)

    @property
    def dtype(self) -> dtype_object.dtype:
        return self._entries.dtype

    @property
    def _dtype(self) -> np.dtype:
        return self._entries._dtype

    def _like(self) -> Any:
        return InputMetadata(Shape(self._sizes), self._dtype)

    @property
    def device(self) -> device:
        return self._entries.device

    def _placed(self) -> Any:
        return self._entries._placed()

    @property
    def sharding(self) -> Any:
        return self._entries.sharding

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return False

    def sparse_dim(self) -> int:
        return self._index.shape[0]

    def dense_dim(self) -> int:
        return len(self._sizes) - self._index.shape[0]

    def is_coalesced(self) -> bool:
        return self._coalesced

    def _nnz(self) -> int:
        return self._index.shape[1]

    def _parts(self) -> tuple:
        """The parts that are printed: names and tensors."""
        return ("indices", self._index), ("values", self._values())

    def _indices(self) -> Tensor:
        return private(self._index)

    def _values(self) -> Tensor:
        """The values, outside of any graph; they share storage and version counter with this tensor."""
        entries = self._entries
        entries._share()
        if self._version_counter is None:
            self._bump(0)
        entries._version_counter = self._version_counter
        return entries.detach()

    def indices(self) -> Tensor:
        if not self._coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return private(self._index)

    def values(self) -> Any:
        if not self._coalesced:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        if not (state.grad_enabled and self.requires_grad):
            return self._values()
        pattern = Pattern(self)
        return record("ValuesBackward0", private(self._entries), (self,), lambda grad, needs: (pattern.of(grad),))

    def _bcoo(self) -> BCOO:
        """The value as JAX's sparse array, for a program."""
        made = bcoo(private(self._entries)._read(), self._index._read(), self._sizes)
        made.indices_sorted = made.unique_indices = self._coalesced
        return made

    # -- conversions ----------------------------------------------------------------------------------------------

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
        source = self if dtype is None else self._cast(dtypes.as_dtype(dtype))
        result = call(to_dense, (source._entries, source._index), (source._sizes,))
        pattern, masked = Pattern(source), masked_grad is not False

        def rule(grad: Any, needs: int) -> tuple:
            if masked:
                return (pattern.masked(grad),)
            return (grad if grad._sparse else grad.to_sparse(pattern.index.shape[0]),)

        return record("ToDenseBackward0", result, (source,), rule)

    def sparse_mask(self, mask: Tensor) -> Any:
        return self.to_dense().sparse_mask(mask)

    def coalesce(self) -> Any:
        if self._coalesced:
            return self
        return record("CoalesceBackward0", _coalesce(self), (self,), lambda grad, needs: (grad,))

    def _cast(self, dtype: np.dtype) -> "SparseTensor":
        if dtype == self._dtype:
            return self
        result = self._with(call(_fit_values, (self._entries,), (dtype,)))
        return record("ToCopyBackward0", result, (self,), lambda grad, needs: (grad,))

    def to(  # pyright: ignore[reportIncompatibleMethodOverride] - one function for PyTorch's three forms
        self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False,
        memory_format: Any = None,
    ) -> Any:  # fmt: skip
        if args and isinstance(args[0], SparseTensor):
            args = (args[0]._entries, *args[1:])
        moved = self._entries.to(*args, dtype=dtype, device=device, copy=copy)
        if moved is self._entries:
            return self
        here, there = self._placed(), moved._placed()
        result = self._with(moved, None if there is None or there == here else self._index.to(there))
        return record(
            "ToCopyBackward0", result, (self,), lambda grad, needs: (grad if here is None else grad.to(here),)
        )

    def _with(self, entries: Tensor, index: Tensor | None = None) -> "SparseTensor":
        """Make a tensor like this one with other values; on another device also with other indices."""
        return make(self._index if index is None else index, entries, self._sizes, self._coalesced)

    def _form(self) -> Callable | None:
        """A function that converts gradients to this tensor's layout; None for sparse_coo."""
        return None

    def cpu(self, memory_format: Any = None) -> Any:
        return self.to("cpu")

    def _on(self, place: Callable) -> "SparseTensor":
        """A copy of the tensor, with `place` applied to its arrays; not recorded."""
        index, entries = (private(t, place) for t in (self._index, self._entries))
        return make(index, entries, self._sizes, self._coalesced)

    def t(self) -> Any:
        if len(self._sizes) > 2 or self.dense_dim():
            raise RuntimeError(
                f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {self.sparse_dim()} sparse and "
                f"{self.dense_dim()} dense dimensions"
            )
        index = self._index.flip(0)
        result = make(index, private(self._entries), self._sizes[::-1], self._coalesced and len(self._sizes) < 2)
        return record("TBackward0", result, (self,), lambda grad, needs: (grad.t(),))

    # -- autograd's and Python's ----------------------------------------------------------------------------------

    def _shallow(self) -> "SparseTensor":
        """Make another tensor with the same arrays, which are immutable: a write to one does not change the other."""
        return self._on(same)

    def _alias(self) -> Any:
        alias = self._with(self._entries)
        if self._version_counter is None:
            self._bump(0)
        alias._inference = self._inference
        alias._version_counter = Detached() if self._inference else self._version_counter
        return alias

    def _become(self, other: "SparseTensor") -> None:
        """Take the value of another sparse tensor, in place."""
        self._index, self._entries, self._coalesced = other._index, other._entries, other._coalesced
        self._bump()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        parts = private(self._index), private(self._entries)
        return _rebuilt, (*parts, self._sizes, self._coalesced, self._requires_grad)

    def __copy__(self) -> "SparseTensor":
        copy = self._with(self._entries)
        copy._requires_grad = self._requires_grad
        return copy

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        if not self.is_leaf:
            return super().__deepcopy__(memo)
        copy = self._shallow()
        copy._requires_grad = self._requires_grad
        memo[id(self)] = copy
        if self._grad is not None:
            copy._grad = self._grad.__deepcopy__(memo)
        return copy

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return format_sparse(self)

    # -- errors: no single array exists --------------------------------------------------------------------------

    def _read(self) -> NoReturn:
        raise refusal(caller())

    _held = _share = _geometry = _read

    def _export(self, reason: str = "") -> NoReturn:
        raise refusal(caller())

    def _write(self, new: Any) -> NoReturn:
        raise refusal(caller())

    def _rewrite(self, program_of: Any, *operands: Any) -> NoReturn:
        raise refusal(caller())

    @property
    def storage_id(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage: this one is sparse")

    def tolist(self) -> NoReturn:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage: call to_dense() first")

    def numpy(self, *, force: bool = False) -> NoReturn:
        name = named_layout(self.layout)
        raise TypeError(f"can't convert {name} layout tensor to numpy. Use Tensor.to_dense() first.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self.numpy()

    @property
    def __jax_array__(self) -> NoReturn:  # pyright: ignore[reportIncompatibleMethodOverride]
        # No such attribute: XLA's programs then refuse it at once, and jax.numpy calls __array__, which says what to
        # do.
        raise AttributeError("a sparse tensor is not a jax.Array: call to_dense() first, or xgrad.sparse.to_bcoo")


def _named(name: str, dtype: np.dtype) -> None:
    def convert(self: SparseTensor, memory_format: Any = None) -> Tensor:
        return self._cast(dtypes.as_dtype(dtype))

    convert.__name__, convert.__doc__ = name, f"The tensor as {dtype.name}; itself if it is."
    setattr(SparseTensor, name, convert)


for _name, _dtype in {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "int": dtypes.int32, "long": dtypes.int64, "bool": dtypes.bool,
    "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
}.items():  # fmt: skip
    _named(_name, _dtype)


def make(indices: Tensor, values: Tensor, size: tuple[Any, ...], coalesced: bool) -> SparseTensor:
    """Make a sparse tensor of parts that are outside of all graphs, and that no other tensor writes to."""
    made = blank(SparseTensor)
    made._index, made._entries, made._sizes = indices, values, tuple(size)
    made._coalesced = coalesced or indices.shape[1] < 2
    if state.inference:
        mark(made)
    return made


def _rebuilt(indices: Tensor, values: Tensor, size: tuple, coalesced: bool, requires_grad: bool) -> SparseTensor:
    """Make the leaf that unpickling returns."""
    made = make(indices, values, size, coalesced)
    made._requires_grad = requires_grad
    return made


def empty(like: SparseTensor, size: tuple[Any, ...], sparse_dim: int | None = None) -> SparseTensor:
    """A sparse tensor without entries."""
    n = like.sparse_dim() if sparse_dim is None else sparse_dim
    indices = from_array(jnp.zeros((n, 0), like._index.dtype))
    return make(indices, from_array(jnp.zeros((0, *size[n:]), like.dtype)), size, True)


def entries_at(input: Tensor, index: Tensor, coalesced: bool, name: str, rule: Callable[..., Any]) -> SparseTensor:
    """Read the elements of a dense tensor at the places `index`, as a sparse tensor."""
    with Unrecorded():
        values = call(gather, (input, index), ())
    return record(name, make(index, values, tuple(input.shape), coalesced), (input,), rule)


class Pattern:
    """The places of a sparse tensor's entries: a gradient needs these, and not the values."""

    size: tuple[int, ...]

    def __init__(self, tensor: SparseTensor) -> None:
        self.index, self.size, self.coalesced = tensor._index, tensor._sizes, tensor._coalesced

    def unique(self) -> Tensor:
        """The indices, each place once."""
        if not self.coalesced:
            order, _ = distinct(self.index, self.size)
            if order is not None:
                self.index: Tensor = from_array(jnp.asarray(np.asarray(self.index._read())[:, order]))
            self.coalesced: bool = True
        return self.index

    def entries(self) -> tuple[int, ...]:
        """The shape of the values."""
        index = self.unique()
        return (index.shape[1], *self.size[index.shape[0] :])

    def of(self, values: Tensor) -> Tensor:
        """Make a coalesced sparse tensor with these values, recorded."""
        return from_parts(self.unique(), values, self.size, True)

    def masked(self, grad: Any) -> Tensor:
        """The part of a gradient at the places of this pattern, as a coalesced sparse tensor."""
        index = self.unique()
        if grad._sparse and grad._coalesced and grad._index is index:
            return grad
        return from_parts(index, call(gather, (densely(grad), index), ()), self.size, True)


def densely(grad: Any) -> Tensor:
    """Convert a gradient to a dense tensor; its own backward does not mask."""
    return grad.to_dense(masked_grad=False) if grad._sparse else grad


def distinct(indices: Tensor, size: tuple[Any, ...]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(the column of each distinct place, in order of places; the place of each column); None, None if it is so now."""
    array = indices._read()
    if isinstance(array, Tracer):
        raise value_needed(
            array,
            "coalesce() needs the indices of a sparse tensor, which are being traced (inside jax.jit, jax.vmap or "
            "jax.grad): how many places there are would be a shape. Coalesce outside, or work on dense gradients.",
        )
    host = np.asarray(array)
    linear = np.zeros(host.shape[1], np.int64)
    for row, n in zip(host, size, strict=False):
        linear = linear * n + row
    if (np.diff(linear) > 0).all():
        return None, None
    _, first, inverse = np.unique(linear, return_index=True, return_inverse=True)
    return first, inverse


def _coalesce(self: SparseTensor) -> SparseTensor:
    first, inverse = distinct(self._index, self._sizes)
    if first is None or inverse is None:
        return make(self._index, private(self._entries), self._sizes, True)
    host = np.asarray(self._index._read())
    places = from_array(jnp.asarray(np.ravel(inverse).astype(np.int32)))
    values = call(sum_entries, (self._entries, places), (len(first),))
    return make(from_array(jnp.asarray(host[:, first])), values, self._sizes, True)


def from_parts(indices: Tensor, values: Tensor, size: tuple[Any, ...], coalesced: bool) -> SparseTensor:
    """Make a sparse tensor of `values`, through which it is differentiated."""
    result = make(private(indices), private(values), size, coalesced)

    def rule(grad: Any, needs: int) -> tuple:
        if grad._sparse and grad._coalesced and grad._index is result_index:
            return (grad.values(),)
        return (call(gather, (densely(grad), indices), ()),)

    result_index = result._index
    return record("SparseCooTensorWithDimsAndTensorsBackward0", result, (values,), rule)
