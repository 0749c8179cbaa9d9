"""Indexing operators: along one dimension (`index_*`), of the flattened tensor (`take`, `put`), by masks, and the
advanced index behind `x[...]` (`index`, `index_put`).

What reads by an index has the gradient that scatter-adds, so duplicates accumulate; only the index is saved.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import dtypes
from ..tensor import Tensor, from_foreign
from .call import call, call_inplace
from .indices import check_range, on_host, require_integers
from .promotion import broadcast_shapes, check_broadcast, conj, wrap_dim
from .registry import composite, operator
from .scatter import adjoint_of_read, in_range, wrapped_in_range
from .views import sizes_of

Tracer = jax.core.Tracer


# -- along one dimension ------------------------------------------------------------------------------------------------


def _vector(self: Any, index: Any, dim: int, name: str) -> tuple[Any, Any, int]:
    """(self, index, dim) with at least one dimension each."""
    require_integers(index, name)
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but it has {index.ndim} dimensions")
    return (self if self.ndim else self.reshape(1)), index.reshape(-1), wrap_dim(dim, self.ndim)


def _at(self: Any, index: Any, dim: int) -> Any:
    return self.at[(*(slice(None),) * dim, index)]


def _source(self: Any, index: Any, source: Any, dim: int, name: str) -> Any:
    """The source of a write along a dimension, checked."""
    if source.dtype != self.dtype:
        raise RuntimeError(f"{name}(): self and source expected to have the same dtype, but got (self) {self.dtype.name} "
                           f"and (source) {source.dtype.name}")  # fmt: skip
    if not source.ndim:
        source = source.reshape((1,) * self.ndim)
    if source.ndim != self.ndim or source.shape[dim] != index.size:
        raise IndexError(
            f"{name}(): Number of indices ({index.size}) should be equal to source.size(dim) of a source with as many "
            f"dimensions as self; shapes are {list(source.shape)} and {list(self.shape)}"
        )
    if any(m != n for d, (m, n) in enumerate(zip(source.shape, self.shape)) if d != dim):
        raise RuntimeError(
            f"{name}(): source {list(source.shape)} and self {list(self.shape)} must have the same sizes apart from "
            f"dimension {dim}"
        )
    return source


@operator(signature="input, dim, index", check=in_range)
def index_select(self, index, *, dim):
    """The slices of `input` along `dim` that a vector of indices names.

    >>> import xgrad
    >>> xgrad.tensor([1, 2, 3]).index_select(0, xgrad.tensor([2, 0]))
    tensor([3, 1])
    """
    x, index, dim = _vector(self, index, dim, "index_select")
    out = jnp.take(x, index, axis=dim)
    return out if self.ndim else out.reshape(()) if index.size == 1 else out


index_select.derivative(self=adjoint_of_read)


def _selected(grad: Any, index: Any, dim: int, shapes: Any) -> Any:
    """The gradient of a source that was written along a dimension."""
    x, index, dim = _vector(grad, index, dim, "index_select")
    return jnp.take(x, index, axis=dim).reshape(shapes[2])


@operator(signature="input, dim, index, source, *, alpha=1", inplace=True, check=in_range)
def index_add(self, index, source, alpha=1, *, dim):
    """A copy of `input` with `alpha * source` added to the slices along `dim` that `index` names."""
    x, index, dim = _vector(self, index, dim, "index_add")
    scaled = _source(x, index, source, dim, "index_add") * jnp.asarray(alpha).astype(self.dtype)
    return _at(x, index, dim).add(scaled).reshape(self.shape)


index_add.derivative(
    self=lambda grad: grad,
    source=lambda grad, index, alpha, dim, shapes: _selected(grad, index, dim, shapes)
    * conj(jnp.asarray(alpha)).astype(grad.dtype),
)


@operator(signature="input, dim, index, source", inplace=True, check=in_range)
def index_copy(self, index, source, *, dim):
    """A copy of `input` with the slices of `source` written at the places along `dim` that `index` names."""
    x, index, dim = _vector(self, index, dim, "index_copy")
    return _at(x, index, dim).set(_source(x, index, source, dim, "index_copy")).reshape(self.shape)


@operator(signature="input, dim, index, value", inplace=True, check=wrapped_in_range)
def index_fill(self, index, value, *, dim):
    """A copy of `input` with `value`, a number or a 0-dim tensor, in the slices along `dim` that `index` names."""
    x, index, dim = _vector(self, index, dim, "index_fill")
    if jnp.ndim(value):
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {jnp.ndim(value)} dimension(s)."
        )
    return _at(x, index, dim).set(jnp.asarray(value).astype(self.dtype)).reshape(self.shape)


def _outside(grad: Any, index: Any, dim: int) -> Any:
    x, index, dim = _vector(grad, index, dim, "index_fill")
    return _at(x, index, dim).set(0).reshape(grad.shape)


index_copy.derivative(self=_outside, source=_selected)
index_fill.derivative(self=_outside, value=lambda grad, index, dim: index_select(grad, index, dim=dim).sum())


# -- of the flattened tensor ----------------------------------------------------------------------------------------------


def _in_flat_range(args: tuple, statics: tuple) -> None:
    check_range(args[1], args[0].shape.numel(), 0, negative=True)


@operator(check=_in_flat_range)
def take(self, index):
    """The elements of the flattened input at the given indices, in the shape of `index`."""
    require_integers(index, "take")
    return self.reshape(-1).at[index].get(mode="fill")


take.derivative(self=adjoint_of_read)


@operator(inplace=True, check=_in_flat_range, out=False)
def put(self, index, source, *, accumulate=False):
    """A copy of `input` with the elements of `source` written (or added) at indices of the flattened tensor."""
    require_integers(index, "put")
    if source.dtype != self.dtype:
        raise RuntimeError(f"put_(): self and source expected to have the same dtype, got {self.dtype.name} and "
                           f"{source.dtype.name}")  # fmt: skip
    if source.size != index.size:
        raise RuntimeError(f"put_(): Expected source and index to have the same number of elements, got {source.size} and "
                           f"{index.size}")  # fmt: skip
    at = self.reshape(-1).at[index.reshape(-1)]
    return (at.add if accumulate else at.set)(source.reshape(-1)).reshape(self.shape)


put.derivative(
    self=lambda grad, index, accumulate: grad
    if accumulate
    else grad.reshape(-1).at[index.reshape(-1)].set(0).reshape(grad.shape),
    source=lambda grad, index, shapes: grad.reshape(-1)[index.reshape(-1)].reshape(shapes[2]),
)


# -- masks ----------------------------------------------------------------------------------------------------------------


def _require_mask(mask: Any, name: str) -> None:
    if mask.dtype != bool:
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype {mask.dtype.name}")


@operator(inplace=True, out=False)
def masked_fill(self, mask, value):
    """A copy of `input` with `value`, a number or a 0-dim tensor, where the mask, which broadcasts, is true.

    >>> import xgrad
    >>> x = xgrad.tensor([1.0, -1.0])
    >>> x.masked_fill(x < 0, 0.0)
    tensor([1., 0.])
    """
    _require_mask(mask, "masked_fill_")
    if jnp.ndim(value):
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {jnp.ndim(value)} dimension(s)."
        )
    check_broadcast(self, mask)
    value = jnp.asarray(value)
    if dtypes.category(value.dtype) > max(dtypes.category(self.dtype), 2 if self.dtype in dtypes.INEXACT else 0):
        raise RuntimeError(f"value cannot be converted to type {self.dtype.name} without overflow")
    return jnp.where(mask, value.astype(self.dtype), self)


masked_fill.derivative(
    self=lambda grad, mask: jnp.where(mask, 0, grad), value=lambda grad, mask: jnp.where(mask, grad, 0).sum()
)


def _enough(args: tuple, statics: tuple) -> None:
    self, mask, source = args
    values = on_host(mask)
    if values is not None and values.dtype == bool:
        shape = broadcast_shapes(tuple(self.shape), values.shape)
        n = int(np.broadcast_to(values, shape).sum())
        if n > source.shape.numel():
            raise RuntimeError(
                f"masked_scatter: Number of elements of source < number of ones in mask: {source.shape.numel()} < {n}"
            )


@operator(inplace=True, out=False, check=_enough)
def masked_scatter(self, mask, source):
    """A copy of `input` with the elements of `source`, in their order, where the mask is true."""
    _require_mask(mask, "masked_scatter_")
    if source.dtype != self.dtype:
        raise RuntimeError(f"masked_scatter_: expected self and source to have same dtypes but got {self.dtype.name} and "
                           f"{source.dtype.name}")  # fmt: skip
    shape = broadcast_shapes(self.shape, mask.shape)
    self, mask = jnp.broadcast_to(self, shape), jnp.broadcast_to(mask, shape)
    if not source.size:
        return self
    order = jnp.cumsum(mask.reshape(-1)).reshape(shape) - 1
    return jnp.where(mask, source.reshape(-1).at[jnp.maximum(order, 0)].get(mode="clip"), self)


def _scattered_source(grad: Any, mask: Any, shapes: Any) -> Any:
    flat = jnp.broadcast_to(mask, grad.shape).reshape(-1)
    n = int(np.prod(shapes[2], dtype=int))
    # What is not masked goes to the place n, which is outside, and is dropped.
    places = jnp.where(flat, jnp.cumsum(flat) - 1, n)
    return jnp.zeros(n, grad.dtype).at[places].add(grad.reshape(-1), mode="drop").reshape(shapes[2])


masked_scatter.derivative(self=lambda grad, mask: jnp.where(mask, 0, grad), source=_scattered_source)


@operator(function=False, method=False, out=False, node="MaskedSelectBackward0")
def _masked(self, index, *, shape):
    return jnp.broadcast_to(self, shape).reshape(-1)[index]


_masked.derivative(self=adjoint_of_read)


@composite
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements of `input` where the mask is true, both broadcast, as a vector.

    The size depends on values, so not under a trace: use `masked_fill` or `where` there.
    """
    _require_mask(mask, "masked_select")
    shape = broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    index = np.flatnonzero(np.broadcast_to(_truth(mask, "masked_select"), shape))
    result = call(_masked.operator, (input, _indices(index)), (shape,))
    if out is None:
        return result
    from .call import write_out

    return write_out("masked_select", result, out)


@jax.jit
def _is_true(array: Any) -> Any:
    return array != 0


def _truth(x: Tensor, what: str) -> np.ndarray:
    """Where `x` is not zero, on the host: one byte an element is read.  Raises `RuntimeError` under a trace."""
    array = x._read()
    if isinstance(array, Tracer):
        raise RuntimeError(
            f"{what} makes a tensor whose shape depends on values, which a trace (jax.jit, vmap, grad, xgrad.compile) does "
            "not know. Use xgrad.where(mask, a, b), masked_fill, or nonzero_static with a fixed size."
        )
    return np.asarray(array if array.dtype == bool else _is_true(array))


def _indices(values: np.ndarray) -> Tensor:
    return from_foreign(jax.device_put(values.astype(dtypes.default_integer(), copy=False)))


@composite
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Tensor | None = None) -> Any:
    """The indices of the elements that are not zero, one a row; `as_tuple`: one vector for each dimension.

    >>> import xgrad
    >>> xgrad.tensor([[0, 1], [2, 0]]).nonzero()
    tensor([[0, 1],
            [1, 0]])
    """
    truth = _truth(input, "nonzero")
    if as_tuple:
        return tuple(_indices(i) for i in np.nonzero(truth if truth.ndim else truth.reshape(1)))
    result = _indices(np.argwhere(truth))
    if out is None:
        return result
    from .call import write_out

    return write_out("nonzero", result, out)


@composite
def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, one a row."""
    return nonzero(input)


@operator(differentiable=False, out=False, signature="input, *, size, fill_value=-1")
def nonzero_static(self, *, size, fill_value=-1):
    """As `nonzero`, with exactly `size` rows: cut, or filled up; works under a trace."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    if not self.ndim:
        return jnp.zeros((size, 0), dtypes.default_integer())
    return jnp.argwhere(self, size=size, fill_value=fill_value).astype(dtypes.default_integer())


@composite(method=False)
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Indices of the flattened tensor of the given shape as one index for each of its dimensions."""
    if indices.dtype not in dtypes.INTEGERS:
        raise ValueError(f"expected 'indices' to be integer dtype, but got {indices.dtype.name}")
    sizes = sizes_of((shape,)) if not isinstance(shape, int) else (shape,)
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    return call(_unraveled.operator, (indices,), (sizes,))


@operator(function=False, method=False, out=False, differentiable=False)
def _unraveled(self, *, sizes):
    strides = np.cumprod((1, *sizes[:0:-1]))[::-1]
    return tuple(self // int(s) % n for s, n in zip(strides, sizes))


# -- the advanced index -----------------------------------------------------------------------------------------------------


def _full_index(self: Any, indices: tuple, places: tuple) -> tuple:
    """`indices` at their dimensions, all else whole.  PyTorch and NumPy agree from here on."""
    shapes = [i.shape for i in indices]
    try:
        jnp.broadcast_shapes(*shapes)
    except ValueError:
        shown = ", ".join(str(list(s)) for s in shapes)
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {shown}") from None
    full: list = [slice(None)] * self.ndim
    for place, index in zip(places, indices):
        full[place] = index
    return tuple(full)


@operator("index", function=False, method=False, out=False)
def index_(self, *indices, places):
    """`self` indexed by integer tensors in the dimensions `places`."""
    return self.at[_full_index(self, indices, places)].get(mode="fill")


def _index_adjoint(grad: Any, function: Any, indices: Any, shapes: Any, dtypes: Any) -> Any:
    return jax.vjp(lambda x: function(x, *indices), jnp.zeros(shapes[0], dtypes[0]))[1](grad.astype(dtypes[0]))[0]


index_.derivative(self=_index_adjoint)


@operator("index_put", function=False, method=False, out=False)
def index_put_array(self, values, *indices, places, accumulate):
    """A copy of `self` with `values`, which broadcast, written or added at an advanced index."""
    at = self.at[_full_index(self, indices, places)]
    if getattr(values, "weak_type", False):
        values = values.astype(self.dtype)
    if values.dtype != self.dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{dtypes.TORCH_NAMES.get(self.dtype, self.dtype.name)} for the destination and "
            f"{dtypes.TORCH_NAMES.get(values.dtype, values.dtype.name)} for the source."
        )
    shape = jax.eval_shape(lambda: at.get()).shape
    try:
        values = jnp.broadcast_to(values, shape)
    except ValueError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of shape "
            f"{list(shape)}"
        ) from None
    return at.add(values) if accumulate else at.set(values)


index_put_array.derivative(
    self=lambda grad, indices, places, accumulate: grad
    if accumulate
    else grad.at[_full_index(grad, indices, places)].set(0),
    values=lambda grad, indices, places: index_(grad, *indices, places=places),
)


def expand_masks(self: Tensor, indices: Any) -> tuple[tuple[int, ...], list[Tensor]]:
    """Index tensors and masks, None for a whole dimension, as (dimensions, integer tensors), checked."""
    places: list[int] = []
    tensors: list[Tensor] = []
    dim = 0
    for number, index in enumerate(indices):
        if index is None:
            dim += 1
            continue
        if index.dtype in (dtypes.bool, dtypes.uint8):
            shape = tuple(self.shape[dim : dim + index.ndim])
            if tuple(index.shape) != shape:
                raise IndexError(
                    f"The shape of the mask {list(index.shape)} at index {number} does not match the shape of the indexed "
                    f"tensor {list(self.shape)} at index {dim}"
                )
            found = [_indices(i) for i in np.nonzero(_truth(index, "indexing with a boolean mask"))]
        elif index.dtype in (dtypes.int32, dtypes.int64):
            found = [index]
        else:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        if dim + len(found) > self.ndim:
            raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
        for i in found:
            if i is index:
                check_range(i, self.shape[dim], dim, negative=True)
            places.append(dim)
            tensors.append(i)
            dim += 1
    return tuple(places), tensors


def write_at(self: Tensor, places: tuple, indices: list, values: Any, accumulate: bool, inplace: bool) -> Tensor:
    """`index_put` with prepared indices; without any the whole tensor is meant."""
    run = call_inplace if inplace else call
    return run(index_put_array.operator, (self, values, *indices), (places, bool(accumulate)))


@composite
def index_put(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """A copy of `input` with `values` written (or added) at the places that a tuple of index tensors names."""
    places, tensors = expand_masks(input, indices)
    return write_at(input, places, tensors, values, accumulate, False)


@composite("index_put_")
def index_put_(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write `values` (or add them) at the places that a tuple of index tensors names, in place."""
    places, tensors = expand_masks(input, indices)
    return write_at(input, places, tensors, values, accumulate, True)
