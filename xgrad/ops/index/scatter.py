"""gather, scatter, scatter_add, scatter_reduce, ...: read and write elements by an index tensor along one dimension.

The index tensor has the input's rank, and gives each element its place; `index_reduce` takes one of one dimension, for
whole slices.  For duplicates of an index `scatter` keeps the element that the device writes last, unless it has
`reduce=`; the other operators that write combine them.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from ...base.dtypes import FLOATS, INEXACT
from ...dispatch.call import call
from ...dispatch.declare import composite, operator
from ...dispatch.out import write_out
from ...dispatch.promotion import broadcast_shapes, cast, refuse_complex, wrap_dim
from ...dispatch.samples import COMPLEX, real, sample, whole
from ...tensor import Tensor
from ..create.scalars import fill_value
from .index_checks import check_range, require_integers, same_dtype


def in_range(args: tuple[Any, ...], statics: tuple[Any, ...]) -> None:
    """Check the index of an operator over (self, index, ...) whose first static argument is `dim`."""
    self, index = args[:2]
    shape = self.shape
    dim = wrap_dim(statics[0], len(shape))
    check_range(index, shape[dim] if shape else 1, dim)


def wrapped_in_range(args: tuple[Any, ...], statics: tuple[Any, ...]) -> None:
    """Check an index as `in_range` does, where a negative one counts from the end."""
    self, index = args[:2]
    shape = self.shape
    dim = wrap_dim(statics[0], len(shape))
    check_range(index, shape[dim] if shape else 1, dim, negative=True)


def _lift(x: Any) -> Any:
    return x.reshape(1) if not x.ndim else x


def _lay_out(self: Any, index: Any, dim: int, name: str, src: Any = None) -> tuple[Any, Any, int]:
    """(self, index, dim) with at least one dimension, after PyTorch's checks of their shapes."""
    require_integers(index, name)
    self_, index_ = _lift(self), _lift(index)
    dim = wrap_dim(dim, self.ndim)
    if not index.size:
        return self_, index_, dim
    if index_.ndim != self_.ndim:
        raise RuntimeError(
            f"{name}(): Index tensor must have the same number of dimensions as input tensor: {index.ndim}, {self.ndim}"
        )
    if any(i > n for d, (i, n) in enumerate(zip(index_.shape, self_.shape)) if d != dim):
        raise RuntimeError(
            f"Size does not match at dimension {dim}: {name}() expected index {list(index.shape)} to be no larger than "
            f"self {list(self.shape)} apart from dimension {dim}"
        )
    if src is not None:
        same_dtype(self, src, name)
        if _lift(src).ndim != index_.ndim:
            raise RuntimeError(
                f"{name}(): Index tensor must have the same number of dimensions as src tensor: {index.ndim} and "
                f"{src.ndim}"
            )
        if any(i > n for i, n in zip(index_.shape, _lift(src).shape)):
            raise RuntimeError(
                f"{name}() expected index {list(index.shape)} to be no larger in any dimension than src "
                f"{list(src.shape)}"
            )
    return self_, index_, dim


def _coordinates(index: Any, dim: int) -> tuple:
    """The place of each element of `index` in the input, to be broadcast: `index` itself in dimension `dim`."""
    lying = lambda d, n: jnp.arange(n).reshape([n if e == d else 1 for e in range(index.ndim)])  # noqa: E731
    return tuple(index if d == dim else lying(d, n) for d, n in enumerate(index.shape))


def _part(src: Any, index: Any) -> Any:
    """The elements of `src` at the places that `index` has."""
    return _lift(src)[tuple(slice(n) for n in index.shape)]


def add(at: Any, values: Any) -> Any:
    """Add at an index; of bools, for which JAX has no sum, the sum is true where one of them is."""
    return at.max(values) if values.dtype == bool else at.add(values)


def multiply(at: Any, values: Any) -> Any:
    """Multiply at an index; of bools the product is true where all are."""
    return at.min(values) if values.dtype == bool else at.multiply(values)


@operator(
    signature="input, dim, index, *, sparse_grad=False",
    check=in_range,
    samples=(
        sample(real(2, 3), whole(0, 3, 2, 4), dim=1), sample(real(2, 3), whole(0, 2, 3, 2), dim=0),
        sample(real(), whole(0, 1), dim=0), sample(real(2, 3), whole(0, 3, 2, 0), dim=1), *COMPLEX,
    ),
)  # fmt: skip
def gather(self, index, *, dim, sparse_grad=False):
    """`out[i][j] = input[index[i][j]][j]` for `dim=0`, and so on; the result has the shape of `index`.

    >>> import xgrad
    >>> xgrad.tensor([[1, 2], [3, 4]]).gather(1, xgrad.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    self, index_, dim = _lay_out(self, index, dim, "gather")
    if not index.size:
        return jnp.zeros(index.shape, self.dtype)
    self = self[tuple(slice(n) if d != dim else slice(None) for d, n in enumerate(index_.shape))]
    return jnp.take_along_axis(self, index_, dim).reshape(index.shape)


def adjoint_of_read(grad: Any, function: Any, index: Any, shapes: Any, dtypes: Any) -> Any:
    """The gradient of reading with an index: a scatter-add of the gradient into zeros."""
    return jax.vjp(lambda x: function(x, index), jnp.zeros(shapes[0], dtypes[0]))[1](grad.astype(dtypes[0]))[0]


gather.derivative(self=adjoint_of_read)


def _fitting_in_range(args: tuple, statics: tuple) -> tuple:
    in_range(args, statics)
    self, index, src, value = args
    if isinstance(value, Tensor) and (value.ndim or value.requires_grad):
        raise TypeError(
            "scatter(): value must be a number, or a tensor without dimensions that does not require grad, but got one "
            f"of shape {list(value.shape)}{', which requires grad' * value.requires_grad}: give it as src"
        )
    # Of src and value one is None.  A number is the value: a bool's array cannot be told from a tensor's.
    if not isinstance(src, (Tensor, jax.Array)) and not getattr(src, "ndim", 0):
        src, value = None, value if src is None else src
    return self, index, src, value if isinstance(value, Tensor) else fill_value(value, self.dtype)


@operator(
    signature="input, dim, index, src=None, *, value=None, reduce=None",
    inplace=True,
    check=_fitting_in_range,
    # No index is there twice: it would be left to the device which element stays.
    samples=(
        sample(real(2, 4), whole(0, 4, 1, 4), real(2, 4), dim=1), sample(real(2, 3), whole(0, 3, 2, 1), 1.25, dim=1),
        sample(real(2, 3), whole(0, 3, 2, 4), real(2, 4), dim=1, reduce="add"),
        sample(real(), whole(0, 1), real(), dim=0), sample(real(2, 3), whole(0, 3, 2, 0), real(2, 0), dim=1), *COMPLEX,
    ),
)  # fmt: skip
def scatter(self, index, src, value=None, *, dim, reduce=None):
    """A copy of `input` with `src` (a tensor or a number) written where `index` says along `dim`.

    `reduce` is None, "add" or "multiply".  Raises `RuntimeError` for shapes or dtypes that do not fit.
    """
    number = src is None or getattr(src, "weak_type", False)
    src = value if src is None else src
    if reduce not in (None, "add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    self_, index_, dim = _lay_out(self, index, dim, "scatter", None if number else src)
    if not index.size:
        return self
    if number:
        src = cast(src, self.dtype)
    else:
        src = _part(src, index_)
    at = self_.at[_coordinates(index_, dim)]
    out = at.set(src) if reduce is None else add(at, src) if reduce == "add" else multiply(at, src)
    return out.reshape(self.shape)


def _kept(grad: Any, index: Any, dim: int, reduce: Any) -> Any:
    if reduce == "multiply":
        raise NotImplementedError(
            'the derivative of scatter with reduce="multiply" is not implemented: use scatter_reduce with "prod"'
        )
    if reduce == "add" or not index.size:
        return grad
    x, index, dim = _lay_out(grad, index, dim, "scatter")
    return x.at[_coordinates(index, dim)].set(0).reshape(grad.shape)


def _gathered(grad: Any, index: Any, shapes: Any, dim: int, reduce: Any) -> Any:
    if reduce == "multiply":
        return _kept(grad, index, dim, reduce)
    if not index.size:
        return jnp.zeros(shapes[2], grad.dtype)
    part = _lift(gather(grad, index, dim=dim))
    shape = shapes[2] or (1,)
    return jnp.pad(part, [(0, n - m) for n, m in zip(shape, part.shape)]).reshape(shapes[2])


@operator(
    signature="input, dim, index, src",
    inplace=True,
    check=in_range,
    samples=(
        sample(real(2, 3), whole(0, 3, 2, 4), real(2, 4), dim=1),
        sample(real(2, 3), whole(0, 2, 3, 2), real(3, 3), dim=0),
        sample(real(), whole(0, 1), real(), dim=0), sample(real(2, 3), whole(0, 3, 2, 0), real(2, 0), dim=1), *COMPLEX,
    ),
)  # fmt: skip
def scatter_add(self, index, src, *, dim):
    """A copy of `input` with `src` added where `index` says along `dim`; duplicates add up."""
    self_, index_, dim = _lay_out(self, index, dim, "scatter_add", src)
    if not index.size:
        return self
    return add(self_.at[_coordinates(index_, dim)], _part(src, index_)).reshape(self.shape)


scatter.derivative(self=_kept, src=_gathered)
scatter_add.derivative(
    self=lambda grad: grad, src=lambda grad, index, shapes, dim: _gathered(grad, index, shapes, dim, None)
)


@operator(
    signature="input, dim, index, src, reduce, *, include_self=True",
    inplace=True,
    check=in_range,
    samples=(
        sample(real(2, 3), whole(0, 3, 2, 4), real(2, 4), dim=1, reduce="amax"),
        sample(real(2, 3), whole(0, 3, 2, 4), real(2, 4), dim=1, reduce="sum"),
        sample(real(2, 3), whole(0, 3, 2, 4), real(2, 4), dim=1, reduce="mean", include_self=False),
        sample(real(2, 3), whole(0, 3, 2, 4), real(2, 4), dim=1, reduce="prod"),
        sample(real(2, 3), whole(0, 3, 2, 4), real(2, 4), dim=1, reduce="amin", include_self=False),
        sample(real(), whole(0, 1), real(), dim=0, reduce="prod"),
    ),
)
def scatter_reduce(self, index, src, *, dim, reduce, include_self=True):
    """A copy of `input` combined with `src` where `index` says: "sum", "prod", "mean", "amax" or "amin".

    `include_self=False` leaves the elements of `input` out where something is scattered to.
    """
    if reduce not in _REDUCE:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    self_, index_, dim = _lay_out(self, index, dim, "scatter_reduce", src)
    if not index.size:
        return self
    where = _coordinates(index_, dim)
    hit = jnp.zeros(self_.shape, bool).at[where].set(True)
    out = _REDUCE[reduce](self_, _part(src, index_), where, None if include_self else hit)
    return jnp.where(hit, out, self_).reshape(self.shape)


# Each has the arguments (self, src, where, left_out): `left_out` marks elements of self that do not count, or is None.


def _sum(self: Any, src: Any, where: tuple, left_out: Any) -> Any:
    base = self if left_out is None else jnp.where(left_out, jnp.zeros((), self.dtype), self)
    return add(base.at[where], src)


def _mean(self: Any, src: Any, where: tuple, left_out: Any) -> Any:
    if self.dtype == bool:
        raise NotImplementedError("\"scatter_reduce_mean\" not implemented for 'Bool'")
    count = (jnp.ones(self.shape, jnp.int32) if left_out is None else jnp.where(left_out, 0, 1)).at[where].add(1)
    total = _sum(self, src, where, left_out)
    count = jnp.maximum(count, 1).astype(self.dtype)
    return total / count if self.dtype in INEXACT else total // count


def _extreme(kind: str) -> Any:
    def reduce(self: Any, src: Any, where: tuple, left_out: Any) -> Any:
        refuse_complex(self, f"scatter_reduce_a{kind}")
        least = -jnp.inf if self.dtype in FLOATS else jnp.iinfo(self.dtype).min if self.dtype != bool else False
        most = jnp.inf if self.dtype in FLOATS else jnp.iinfo(self.dtype).max if self.dtype != bool else True
        base = self if left_out is None else jnp.where(left_out, least if kind == "max" else most, self)
        value = getattr(stop_gradient(base).at[where], kind)(stop_gradient(src))
        if self.dtype not in FLOATS:
            return value
        # JAX has no derivative of a scattered maximum.  The mean of all that attain it equals it, and spreads a
        # gradient evenly among them; `value` itself is kept, which the mean would round.
        ties, at_ties = base == value, src == value[where]
        count = ties.astype(self.dtype).at[where].add(at_ties.astype(self.dtype))
        total = jnp.where(ties, self, 0).at[where].add(jnp.where(at_ties, src, 0))
        mean = total / jnp.maximum(count, 1)
        return jnp.where(jnp.isfinite(value), value + (mean - stop_gradient(mean)), value)

    return reduce


def _prod(self: Any, src: Any, where: tuple, left_out: Any) -> Any:
    base = self if left_out is None else jnp.where(left_out, jnp.ones((), self.dtype), self)
    value = multiply(stop_gradient(base).at[where], stop_gradient(src))
    if self.dtype not in INEXACT:
        return value

    # JAX has no derivative of a scattered product with duplicates.  This is the same product, smooth in all factors:
    # the exponential of a sum of logarithms for the factors that are not zero, times the product of the zeros, where up
    # to two factors count (the first two derivatives of a product of three zeros are zero).
    def add_up(mine: Any, theirs: Any) -> Any:
        return mine.at[where].add(theirs)

    zero, zero_src = base == 0, src == 0
    if self.dtype in FLOATS:
        logs = add_up(jnp.log(jnp.abs(jnp.where(zero, 1, base))), jnp.log(jnp.abs(jnp.where(zero_src, 1, src))))
        sign = 1 - 2 * (add_up((base < 0).astype(jnp.int32), (src < 0).astype(jnp.int32)) % 2)
    else:
        logs, sign = add_up(jnp.log(jnp.where(zero, 1, base)), jnp.log(jnp.where(zero_src, 1, src))), jnp.ones(())
    count = add_up(zero.astype(jnp.int32), zero_src.astype(jnp.int32))
    once, once_src = jnp.where(zero, base, 0), jnp.where(zero_src, src, 0)
    first, second = add_up(once, once_src), add_up(once**2, once_src**2)
    zeros = jnp.where(count == 0, 1, jnp.where(count == 1, first, jnp.where(count == 2, (first**2 - second) / 2, 0)))
    smooth = jnp.exp(logs) * sign.astype(self.dtype) * zeros
    # `value` is the product itself, which the exponential would round.
    finite = jnp.isfinite(value) & jnp.isfinite(smooth)
    return jnp.where(finite, smooth + stop_gradient(value - smooth), value)


_REDUCE = {"sum": _sum, "mean": _mean, "prod": _prod, "amax": _extreme("max"), "amin": _extreme("min")}


@operator(
    signature="input, dim, index, source, reduce, *, include_self=True",
    inplace=True,
    check=in_range,
    samples=(
        sample(real(2, 3), whole(0, 3, 4), real(2, 4), dim=1, reduce="amax"),
        sample(real(2, 3), whole(0, 3, 4), real(2, 4), dim=1, reduce="mean"),
        sample(real(2, 3), whole(0, 3, 4), real(2, 4), dim=1, reduce="prod", include_self=False),
        sample(real(2, 3), whole(0, 2, 2), real(2, 3), dim=0, reduce="amin"),
    ),
)
def index_reduce(self, index, source, *, dim, reduce, include_self=True):
    """A copy of `input` whose slices along `dim` that `index` names are combined with the slices of `source`.

    `reduce` is "prod", "mean", "amax" or "amin".
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either prod, mean, amax or amin, got {reduce}")
    require_integers(index, "index_reduce")
    dim, source_ = wrap_dim(dim, self.ndim), _lift(source)
    if index.size != source_.shape[dim]:
        raise RuntimeError(
            f"index_reduce(): Number of indices ({index.size}) should be equal to source.size(dim): "
            f"({source_.shape[dim]})"
        )
    lying = index.reshape([-1 if d == dim else 1 for d in range(source_.ndim)])
    every = jnp.broadcast_to(lying, source_.shape)
    out = scatter_reduce(_lift(self), every, source_, dim=dim, reduce=reduce, include_self=include_self)
    return out.reshape(self.shape)


@composite
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """The elements of `gather`, with the other dimensions broadcast; without `dim` from the flattened input."""
    if dim is None:
        input, indices, dim = input.reshape(-1), indices.reshape(-1), 0
    if input.ndim != indices.ndim:
        raise RuntimeError(
            "take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    dim = wrap_dim(dim, input.ndim)
    if input.ndim:
        before, after = broadcast_shapes(input.shape[:dim], indices.shape[:dim]), slice(dim + 1, None)
        behind = broadcast_shapes(input.shape[after], indices.shape[after])
        input, indices = (x.expand(*before, x.shape[dim], *behind) for x in (input, indices))
    # Unlike gather's, these indices may count from the end.
    check_range(indices, input.shape[dim] if input.ndim else 1, dim, negative=True)
    result = call(gather.operator, (input, indices), (dim, False))
    return result if out is None else write_out("take_along_dim", result, out)
