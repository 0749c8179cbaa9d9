"""clone, repeat, tile, flip, rot90, roll, tril, triu, diag, ...: operators that copy elements to other positions.

All are linear with constant coefficients, so none saves its input: backward is the function's transpose (`transposed`).
"""

from operator import mul
from typing import Any

import jax
import jax.numpy as jnp

from ...base import dtypes
from ...base.limits import check_size
from ...dispatch.argument_kinds import require_int
from ...dispatch.call import call
from ...dispatch.declare import composite, internal, operator
from ...dispatch.promotion import scalar, wrap_dim, wrap_dims
from ...dispatch.samples import COMPLEX, REAL, real, sample, whole
from ...engine.fit import expandable
from ...tensor import Tensor
from ...views.named.arguments import sizes_of, variadic
from ..create.copying import fit_to
from ..index.index_checks import on_host, require_integers


def transposed(grad: Any, function: Any, shapes: Any, dtypes: Any) -> Any:
    """The gradient of a linear function of one array: its transpose.  XLA drops the zeros in place of the input."""
    return jax.vjp(function, jnp.zeros(shapes[0], dtypes[0]))[1](grad.astype(dtypes[0]))[0]


@operator(signature="input, *, memory_format=None", out=False, samples=REAL + COMPLEX)
def clone(self):
    """A copy of the tensor, recorded.

    >>> import xgrad
    >>> x = xgrad.ones(2)
    >>> x.clone().zero_(), x
    (tensor([0., 0.]), tensor([1., 1.]))
    """
    if self is None:
        raise TypeError("clone(): argument 'input' (position 1) must be Tensor, not NoneType")
    return self


clone.derivative(self=lambda grad: grad)


# -- repeating --------------------------------------------------------------------------------------------------------


@internal(
    "repeat",
    samples=(
        sample(real(2, 3), repeats=(2, 1)),
        sample(real(3), repeats=(2, 2)),
        sample(real(), repeats=()),
        sample(real(2, 3), repeats=(0, 1)),
    )
    + COMPLEX,
)
def _repeat(self, *, repeats):
    if len(repeats) < self.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: got "
            f"{len(repeats)} for {self.ndim}"
        )
    if any(n < 0 for n in repeats):
        raise RuntimeError(f"Trying to create tensor with negative dimension: repeats {list(repeats)}")
    lacking = (1,) * (len(repeats) - self.ndim)
    check_size(tuple(map(mul, repeats, (*lacking, *self.shape))), self.dtype)  # jnp.tile counts in int64
    return jnp.tile(self, repeats)


def _folded(grad: Any, shapes: Any, repeats: Any) -> Any:
    shape = (1,) * (len(repeats) - len(shapes[0])) + tuple(shapes[0])
    split = grad.reshape([n for pair in zip(repeats, shape) for n in pair])
    return split.sum(tuple(range(0, 2 * len(repeats), 2)), dtype=grad.dtype).reshape(shapes[0])


_repeat.derivative(self=_folded)


@composite(function=False)
def repeat(input: Tensor, *repeats: Any, **named: Any) -> Tensor:
    """A copy with dimension i repeated `repeats[i]` times; extra repeats make new leading dimensions."""
    return call(_repeat.operator, (input,), (variadic("repeat", "repeats", repeats, named),))


@composite
def tile(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """A copy with each dimension repeated, as `repeat` makes it; missing leading repeats are 1."""
    times = variadic("tile", "dims", dims, named)
    return repeat(input, (1,) * (input.ndim - len(times)) + times)


@internal(
    node="RepeatInterleaveBackward0",
    samples=(sample(real(2, 3), repeats=2, dim=1), sample(real(0, 3), repeats=2, dim=0)) + COMPLEX,
)
def _repeated(self, *, repeats, dim):
    return jnp.repeat(self, repeats, axis=wrap_dim(dim, self.ndim))


_repeated.derivative(self=transposed)


@internal(differentiable=False, samples=(sample(whole(0, 3, 3), total=3),))
def _repeat_indices(self, *, total):
    return jnp.repeat(jnp.arange(self.shape[0], dtype=dtypes.default_integer()), self, total_repeat_length=total)


@composite
def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (or slice along `dim`) repeated, `repeats` times or as often as a tensor says for each.

    Given a tensor alone, the index i as often as its i-th element says.  `output_size`, if it is known, saves reading
    the sum of the repeats from the device.  Raises `RuntimeError` for another one, where the repeats are on the host.
    """
    source: Tensor | None = input
    if repeats is None:
        source, repeats, dim = None, input, 0
    elif dim is None:
        source, dim = input.reshape(-1), 0
    if isinstance(repeats, Tensor):
        require_integers(repeats, "repeat_interleave")
    if isinstance(repeats, Tensor) and repeats.ndim > 1:
        raise RuntimeError("repeat_interleave: `repeats` must be 0-dim or 1-dim tensor")
    if isinstance(repeats, Tensor) and source is not None and repeats.ndim and repeats.shape[0] != 1:
        n = source.shape[wrap_dim(dim, source.ndim)]
        if repeats.shape[0] != n:
            raise RuntimeError(
                f"repeats must have the same size as input along dim, but got repeats.size(0) = {repeats.shape[0]} and "
                f"input.size({dim}) = {n}"
            )
    elif source is not None:
        require_int("repeat_interleave", repeats=repeats if not isinstance(repeats, Tensor) else repeats.item())
        count = int(repeats.item() if isinstance(repeats, Tensor) else repeats)
        if count < 0:
            raise RuntimeError("repeats can not be negative")
        _require_output_size(output_size, count * (source.shape[dim] if source.ndim else 1))
        return call(_repeated.operator, (source,), (count, dim))
    if repeats.shape[0] and repeats.min().item() < 0:
        raise RuntimeError("repeats can not be negative")
    values = None if output_size is None else on_host(repeats)
    if values is not None:
        _require_output_size(output_size, int(values.sum()))
    total = repeats.sum().item() if output_size is None else output_size
    index = call(_repeat_indices.operator, (repeats,), (total,))
    return index if source is None else source.index_select(dim, index)


def _require_output_size(asked: int | None, size: int) -> None:
    if asked is not None and asked != size:
        raise RuntimeError(f"repeat_interleave: allocated size does not match required size: {asked} and {size}")


# -- flipping and rolling ---------------------------------------------------------------------------------------------


@internal(
    "flip", samples=(sample(real(2, 3), dims=(0, 1)), sample(real(), dims=()), sample(real(0, 3), dims=(1,))) + COMPLEX
)
def _flip(self, *, dims):
    return jnp.flip(self, wrap_dims(dims, self.ndim)) if len(dims) else self


_flip.derivative(self=transposed)


@composite
def flip(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """A copy with the order of the elements reversed in the given dimensions: `flip(x, (0, 1))` or `x.flip(0, 1)`."""
    return call(_flip.operator, (input,), (variadic("flip", "dims", dims, named),))


def _mirror(name: str, dim: int) -> None:
    @composite(name)
    def mirror(input: Tensor) -> Tensor:
        if input.ndim <= dim:
            raise RuntimeError(f"Input must be >= {dim + 1}-d.")
        return flip(input, dim)

    mirror.__doc__ = f"A copy with dimension {dim} reversed."


_mirror("fliplr", 1)
_mirror("flipud", 0)


@operator(out=False, samples=(sample(real(2, 3)), sample(real(2, 3), k=-2, dims=(1, 0))) + COMPLEX)
def rot90(self, *, k=1, dims=(0, 1)):
    """A copy rotated `k` times by 90 degrees in the plane of two dimensions, from the first towards the second."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if self.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {self.ndim}")
    return jnp.rot90(self, k, (wrap_dim(dims[0], self.ndim), wrap_dim(dims[1], self.ndim)))


rot90.derivative(self=transposed)


@internal(
    "roll",
    samples=(sample(real(2, 3), 1, dims=()), sample(real(2, 3), 1, -1, dims=(0, 1)), sample(real(0, 3), 1, dims=(0,)))
    + COMPLEX,
)
def _roll(self, *shifts, dims):
    if not dims and len(shifts) == 1:
        return jnp.roll(self, shifts[0])
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    return jnp.roll(self, shifts, tuple(wrap_dim(d, self.ndim) for d in dims)) if self.ndim else self


_roll.derivative(self=lambda grad, shifts, dims: _roll(grad, *(-s for s in shifts), dims=dims))


@composite
def roll(input: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """A copy shifted cyclically; without `dims` as if it were flat."""
    n = max(input.numel(), 1)  # a multiple of each dimension's size, by which shifts too large for XLA are reduced
    shifts = (s if -n < s < n else s % n for s in sizes_of((shifts,)))
    return call(_roll.operator, (input, *shifts), (sizes_of((dims,)),))


# -- triangles and diagonals ------------------------------------------------------------------------------------------


def _require_matrix(x: Any, name: str) -> None:
    if x.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")


def _diagonals(x: Any, diagonal: Any, name: str) -> tuple[Any, Any]:
    """The number of each element's diagonal in a matrix, and the number `diagonal`, clipped to the matrix."""
    diagonal = scalar(x, diagonal, "diagonal")
    if diagonal.dtype.kind != "i":
        raise TypeError(f"{name}(): argument 'diagonal' must be int, not {diagonal.dtype.name}")
    row, column = (jax.lax.broadcasted_iota(jnp.int32, x.shape[-2:], axis) for axis in (0, 1))
    rows, columns = x.shape[-2:]
    return column - row, jnp.clip(diagonal, -rows, columns)  # a large number would wrap around as an int32


def _near(args: tuple, statics: tuple) -> tuple:
    """Bring a number beyond int32, which would be a float without x64, into its range, where all matrices end."""
    self, diagonal = args
    return self, max(-(2**31), min(diagonal, 2**31 - 1)) if type(diagonal) is int else diagonal


def _lower(x: Any, diagonal: Any) -> Any:
    here, last = _diagonals(x, diagonal, "tril")
    return jnp.where(here <= last, x, jnp.zeros((), x.dtype))


def _upper(x: Any, diagonal: Any) -> Any:
    here, first = _diagonals(x, diagonal, "triu")
    return jnp.where(here >= first, x, jnp.zeros((), x.dtype))


_TRIANGLES = (sample(real(2, 3)), sample(real(2, 3), 1), sample(real(0, 3), -1), *COMPLEX)


@operator(inplace=True, check=_near, samples=_TRIANGLES)
def tril(self, diagonal=0):
    """The lower triangle of matrices, up to a diagonal; zeros elsewhere."""
    _require_matrix(self, "tril")
    return _lower(self, diagonal)


@operator(inplace=True, check=_near, samples=_TRIANGLES)
def triu(self, diagonal=0):
    """The upper triangle of matrices, from a diagonal on; zeros elsewhere."""
    _require_matrix(self, "triu")
    return _upper(self, diagonal)


tril.derivative(self=lambda grad, diagonal: _lower(grad, diagonal))
triu.derivative(self=lambda grad, diagonal: _upper(grad, diagonal))


@operator(
    out=False,
    samples=(sample(real(2, 3)), sample(real(3), offset=1), sample(real(2, 3), offset=-1, dim1=0, dim2=2)) + COMPLEX,
)
def diag_embed(self, *, offset=0, dim1=-2, dim2=-1):
    """Matrices, in the dimensions `dim1` and `dim2`, with the last dimension on a diagonal and zeros elsewhere."""
    ndim, n = self.ndim + 1, (self.shape[-1] if self.ndim else 1) + abs(offset)
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    if not self.ndim:
        raise RuntimeError("diag_embed needs a tensor with at least one dimension")
    i = jnp.arange(self.shape[-1])
    row, column = i + max(-offset, 0), i + max(offset, 0)
    out = jnp.zeros((*self.shape[:-1], n, n), self.dtype).at[..., row, column].set(self)
    return jnp.moveaxis(out, (-2, -1), (first, second))


diag_embed.derivative(self=lambda grad, offset, dim1, dim2: jnp.diagonal(grad, offset, dim1, dim2))


@composite
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The matrix with a vector on a diagonal, or a copy of a diagonal of a matrix."""
    if input.ndim == 1:
        return diag_embed.function(input, offset=diagonal)
    if input.ndim == 2:
        return input.diagonal(diagonal).clone()
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")


@composite
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The matrix with all elements on a diagonal."""
    return diag_embed.function(input.reshape(-1), offset=offset)


@composite(function=False)
def sum_to_size(input: Tensor, *size: Any, **named: Any) -> Tensor:
    """The tensor summed over the dimensions in which it is larger than `size`: the adjoint of `expand`.

    Sums of integers and booleans are integers of the default dtype, as for `sum`.
    """
    shape = variadic("sum_to_size", "size", size, named)
    if shape == tuple(input.shape):
        return input
    if not expandable(shape, tuple(input.shape)):
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(input.shape)}}}.")
    if input.dtype not in dtypes.INEXACT:
        input = input.to(dtypes.default_integer())
    return call(fit_to.operator, (input,), (shape, input.dtype))
