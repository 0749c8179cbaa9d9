"""index_select, index_add, ..., take, put: operators that index one dimension, or the flattened tensor.

The gradient of reading by an index is a scatter-add, so duplicates accumulate; only the index is saved.
"""

from typing import Any

import jax.numpy as jnp

from ...base import dtypes
from ...dispatch.declare import operator
from ...dispatch.promotion import cast, conj, wrap_dim
from ...dispatch.samples import COMPLEX, real, sample, whole
from ..create.scalars import fill_value
from .index_checks import check_range, require_integers, same_dtype
from .scatter import add, adjoint_of_read, in_range, wrapped_in_range

# -- along one dimension ----------------------------------------------------------------------------------------------


def _vector(self: Any, index: Any, dim: int, name: str) -> tuple[Any, Any, int]:
    """(self, index, dim) with at least one dimension each."""
    require_integers(index, name)
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but it has {index.ndim} dimensions")
    return (self if self.ndim else self.reshape(1)), index.reshape(-1), wrap_dim(dim, self.ndim)


def _at(self: Any, index: Any, dim: int) -> Any:
    return self.at[(*(slice(None),) * dim, index)]


def _source(self: Any, index: Any, source: Any, dim: int, name: str) -> Any:
    """Check the source of a write along a dimension, and return it with dimensions."""
    same_dtype(self, source, name)
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


@operator(
    signature="input, dim, index",
    check=in_range,
    samples=(
        sample(real(2, 3), whole(0, 3, 4), dim=1), sample(real(), whole(0, 1, 1), dim=0),
        sample(real(2, 3), whole(0, 3, 0), dim=1), *COMPLEX,
    ),
)  # fmt: skip
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


@operator(
    signature="input, dim, index, source, *, alpha=1",
    inplace=True,
    check=in_range,
    samples=(
        sample(real(2, 3), whole(0, 3, 4), real(2, 4), dim=1),
        sample(real(2, 3), whole(0, 2, 2), real(2, 3), 2.5, dim=0),
        sample(real(), whole(0, 1), real(), dim=0), *COMPLEX,
    ),
)  # fmt: skip
def index_add(self, index, source, alpha=1, *, dim):
    """A copy of `input` with `alpha * source` added to the slices along `dim` that `index` names."""
    x, index, dim = _vector(self, index, dim, "index_add")
    scaled = _source(x, index, source, dim, "index_add") * jnp.asarray(alpha).astype(self.dtype)
    return add(_at(x, index, dim), scaled).reshape(self.shape)


index_add.derivative(
    self=lambda grad: grad,
    source=lambda grad, index, alpha, dim, shapes: (
        _selected(grad, index, dim, shapes) * conj(jnp.asarray(alpha)).astype(grad.dtype)
    ),
)


@operator(
    signature="input, dim, index, source",
    inplace=True,
    check=in_range,
    samples=(
        sample(real(2, 4), whole(0, 4, 3), real(2, 3), dim=1), sample(real(2, 3), whole(0, 2, 2), real(2, 3), dim=0),
        sample(real(), whole(0, 1), real(), dim=0), *COMPLEX,
    ),
)  # fmt: skip
def index_copy(self, index, source, *, dim):
    """A copy of `input` with the slices of `source` written at the places along `dim` that `index` names."""
    x, index, dim = _vector(self, index, dim, "index_copy")
    return _at(x, index, dim).set(_source(x, index, source, dim, "index_copy")).reshape(self.shape)


def _fitting_in_range(args: tuple, statics: tuple) -> tuple:
    wrapped_in_range(args, statics)
    self, index, value = args
    if (
        isinstance(value, complex) or getattr(value, "dtype", None) in dtypes.COMPLEX
    ) and self.dtype not in dtypes.COMPLEX:
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    return self, index, fill_value(value, self.dtype)


@operator(
    signature="input, dim, index, value",
    inplace=True,
    check=_fitting_in_range,
    samples=(
        sample(real(2, 3), whole(0, 3, 2), 1.25, dim=1), sample(real(2, 3), whole(0, 2, 2), real(), dim=0),
        sample(real(), whole(0, 1), 1.25, dim=0), *COMPLEX,
    ),
)  # fmt: skip
def index_fill(self, index, value, *, dim):
    """A copy of `input` with `value`, a number or a 0-dim tensor, in the slices along `dim` that `index` names."""
    x, index, dim = _vector(self, index, dim, "index_fill")
    if jnp.ndim(value):
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got one with {jnp.ndim(value)} dimension(s)."
        )
    return _at(x, index, dim).set(cast(value, self.dtype)).reshape(self.shape)


def _outside(grad: Any, index: Any, dim: int) -> Any:
    x, index, dim = _vector(grad, index, dim, "index_fill")
    return _at(x, index, dim).set(jnp.zeros((), x.dtype)).reshape(grad.shape)


def _inside(grad: Any, index: Any, dim: int) -> Any:
    """The sum of the gradient over the filled elements, each of them once, however often the index names it."""
    kept = _outside(jnp.ones(grad.shape, bool), index, dim)
    return jnp.where(kept, 0, grad).sum()


index_copy.derivative(self=_outside, source=_selected)
index_fill.derivative(self=_outside, value=_inside)


# -- of the flattened tensor ------------------------------------------------------------------------------------------


def _in_flat_range(args: tuple, statics: tuple) -> None:
    check_range(args[1], args[0].shape.numel(), 0, negative=True)


@operator(
    check=_in_flat_range,
    samples=(
        sample(real(2, 3), whole(-6, 6, 2, 2)), sample(real(), whole(0, 1)), sample(real(2, 3), whole(0, 6, 0)),
        *COMPLEX,
    ),
)  # fmt: skip
def take(self, index):
    """The elements of the flattened input at the given indices, in the shape of `index`."""
    require_integers(index, "take")
    return self.reshape(-1).at[index].get(mode="fill")


take.derivative(self=adjoint_of_read)


@operator(
    inplace=True,
    check=_in_flat_range,
    out=False,
    samples=(
        sample(real(2, 3), whole(0, 6, 2, 2), real(2, 2)),
        sample(real(2, 3), whole(0, 6, 4), real(2, 2), accumulate=True),
        sample(real(), whole(0, 1), real()), *COMPLEX,
    ),
)  # fmt: skip
def put(self, index, source, *, accumulate=False):
    """A copy of `input` with the elements of `source` written (or added) at indices of the flattened tensor."""
    require_integers(index, "put")
    same_dtype(self, source, "put_")
    if source.size != index.size:
        raise RuntimeError(
            f"put_(): Expected source and index to have the same number of elements, got {source.size} and {index.size}"
        )
    at = self.reshape(-1).at[index.reshape(-1)]
    return (add(at, source.reshape(-1)) if accumulate else at.set(source.reshape(-1))).reshape(self.shape)


put.derivative(
    self=lambda grad, index, accumulate: (
        grad if accumulate else grad.reshape(-1).at[index.reshape(-1)].set(0).reshape(grad.shape)
    ),
    source=lambda grad, index, shapes: grad.reshape(-1)[index.reshape(-1)].reshape(shapes[2]),
)
