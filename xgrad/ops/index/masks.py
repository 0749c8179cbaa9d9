"""masked_fill, masked_select, nonzero, ...: fill and read elements where a mask is true, and find their indices.

Where a result's size depends on values, the host reads these (one byte an element); a trace raises an error.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...base.devices import require_here
from ...base.limits import checked
from ...dispatch.call import call
from ...dispatch.declare import composite, internal, operator
from ...dispatch.out import write_out
from ...dispatch.promotion import broadcast_shapes, cast, check_broadcast
from ...dispatch.samples import COMPLEX, real, sample, whole
from ...dispatch.samples import truth as true_or_false
from ...dispatch.tables import METHODS
from ...engine.placement import beside
from ...tensor import Tensor, from_foreign
from ...views.named.arguments import sizes_of
from ...views.storage import Tracer, value_needed
from ..create.from_data import constant_array
from ..create.scalars import fill_value
from .index_checks import on_host, same_dtype
from .scatter import adjoint_of_read


def _require_mask(mask: Any, name: str) -> None:
    if mask.dtype != bool:
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype {mask.dtype.name}")


def _fitting(args: tuple, statics: tuple) -> tuple:
    self, mask, value = args
    return (self, mask, fill_value(value, self._dtype)) if isinstance(self, Tensor) else args


@operator(
    inplace=True,
    out=False,
    check=_fitting,
    samples=(
        sample(real(2, 3), true_or_false(2, 3), 1.25), sample(real(2, 3), true_or_false(3), real()),
        sample(real(), true_or_false(), 1.25), sample(real(0, 3), true_or_false(3), 1.25), *COMPLEX,
    ),
)  # fmt: skip
def masked_fill(self, mask, value):
    """A copy of `input` with `value`, a number or a 0-dim tensor, where the mask, which broadcasts, is true.

    Raises `NumberOverflowError` for a number that does not fit.

    >>> import xgrad
    >>> x = xgrad.tensor([1.0, -1.0])
    >>> x.masked_fill(x < 0, 0.0)
    tensor([1., 0.])
    """
    _require_mask(mask, "masked_fill_")
    if jnp.ndim(value):
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got one with {jnp.ndim(value)} dimension(s)."
        )
    check_broadcast(self, mask)
    return jnp.where(mask, cast(value, self.dtype), self)


masked_fill.derivative(
    self=lambda grad, mask: jnp.where(mask, 0, grad), value=lambda grad, mask: jnp.where(mask, grad, 0).sum()
)


@composite("fill_diagonal_", function=False)
def fill_diagonal_(input: Tensor, fill_value: complex, wrap: bool = False) -> Tensor:
    """Fill the main diagonal in place; `wrap`: of a tall matrix a new one begins one row below the end of each.

    Raises `RuntimeError` for fewer than two dimensions, and for more than two that differ in size.
    """
    if input.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if input.ndim > 2 and len(set(input.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    mask = np.zeros(tuple(input.shape), bool)
    if mask.size:
        np.fill_diagonal(mask, True, wrap)
    where = beside(constant_array(mask, None), input._held())
    return METHODS["masked_fill_"](input, from_foreign(where), fill_value)


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


@operator(
    inplace=True,
    out=False,
    check=_enough,
    samples=(
        sample(real(2, 3), true_or_false(2, 3), real(6)), sample(real(2, 3), true_or_false(3), real(2, 4)),
        sample(real(0, 3), true_or_false(3), real(3)), *COMPLEX,
    ),
)  # fmt: skip
def masked_scatter(self, mask, source):
    """A copy of `input` with the elements of `source`, in their order, where the mask is true."""
    _require_mask(mask, "masked_scatter_")
    same_dtype(self, source, "masked_scatter_")
    shape = broadcast_shapes(self.shape, mask.shape)
    self, mask = jnp.broadcast_to(self, shape), jnp.broadcast_to(mask, shape)
    if not source.size:
        return self
    order = jnp.cumsum(mask.reshape(-1)).reshape(shape) - 1
    return jnp.where(mask, source.reshape(-1).at[jnp.maximum(order, 0)].get(mode="clip"), self)


def _scattered_source(grad: Any, mask: Any, shapes: Any) -> Any:
    flat = jnp.broadcast_to(mask, grad.shape).reshape(-1)
    n = int(np.prod(shapes[2], dtype=int))
    # Elements outside of the mask go to the place n, which is beyond the end: the scatter drops them.
    places = jnp.where(flat, jnp.cumsum(flat) - 1, n)
    return jnp.zeros(n, grad.dtype).at[places].add(grad.reshape(-1), mode="drop").reshape(shapes[2])


masked_scatter.derivative(self=lambda grad, mask: jnp.where(mask, 0, grad), source=_scattered_source)


@internal(
    node="MaskedSelectBackward0",
    samples=(
        sample(real(2, 3), whole(0, 6, 4), shape=(2, 3)),
        sample(real(3), whole(0, 6, 4), shape=(2, 3)),
        sample(real(2, 3), whole(0, 6, 0), shape=(2, 3)),
        *COMPLEX,
    ),
)
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
    index = np.flatnonzero(np.broadcast_to(truth(mask, "masked_select"), shape))
    result = call(_masked.operator, (input, index_tensor(index)), (shape,))
    if out is None:
        return result
    return write_out("masked_select", result, out)


@jax.jit
@checked
def _is_true(array: Any) -> Any:
    return array != 0


def truth(x: Tensor, what: str) -> np.ndarray:
    """Read on the host where `x` is not zero, one byte an element.  Raises `TracedValueError` under a trace."""
    if x._level is not None:
        raise RuntimeError(
            f"vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over {what}, "
            "whose result's shape depends on values. Use xgrad.where, or a mask."
        )
    array = x._read()
    if isinstance(array, Tracer):
        raise value_needed(
            array,
            f"{what} makes a tensor whose shape depends on values, which a trace (jax.jit, jax.vmap, jax.grad) "
            "does not know. Use xgrad.where(mask, a, b), masked_fill, or nonzero_static with a fixed size.",
        )
    require_here(array, what)
    return np.asarray(array if array.dtype == bool else _is_true(array))


def index_tensor(values: np.ndarray) -> Tensor:
    return from_foreign(constant_array(values.astype(dtypes.default_integer(), copy=False), None))


@composite
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Tensor | None = None) -> Any:
    """The indices of the elements that are not zero, one a row; `as_tuple`: one vector for each dimension.

    >>> import xgrad
    >>> xgrad.tensor([[0, 1], [2, 0]]).nonzero()
    tensor([[0, 1],
            [1, 0]])
    """
    found = truth(input, "nonzero")
    if as_tuple:
        return tuple(index_tensor(i) for i in np.nonzero(found if found.ndim else found.reshape(1)))
    result = index_tensor(np.argwhere(found))
    if out is None:
        return result
    return write_out("nonzero", result, out)


@composite
def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, one a row."""
    return nonzero(input)


@operator(
    differentiable=False,
    out=False,
    signature="input, *, size, fill_value=-1",
    samples=(
        sample(true_or_false(2, 3), size=2), sample(true_or_false(2, 3), 7, size=9), sample(real(0, 3), size=2),
        *COMPLEX,
    ),
)  # fmt: skip
def nonzero_static(self, fill_value=-1, *, size):
    """The indices of `nonzero`, cut or filled up to exactly `size` rows; works under a trace."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    if not self.ndim:
        return jnp.zeros((size, 0), dtypes.default_integer())
    if not self.size:
        return jnp.full((size, self.ndim), fill_value, dtypes.default_integer())
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


@internal(differentiable=False, samples=(sample(whole(0, 6, 4), sizes=(2, 3)),))
def _unraveled(self, *, sizes):
    strides = np.cumprod((1, *sizes[:0:-1]))[::-1]
    return tuple((self // int(s) % n).astype(dtypes.default_integer()) for s, n in zip(strides, sizes))
