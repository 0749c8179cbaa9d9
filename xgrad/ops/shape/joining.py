"""cat, stack, hstack, vstack, ...: join tensors into one; block_diag, cartesian_prod and combinations combine them.

All are linear; backward cuts the gradient of the result into the gradients of its parts, and adds where parts repeat.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...base.limits import LIMIT, check_bytes, check_size
from ...config import settings
from ...dispatch.declare import composite, operator
from ...dispatch.on_device import beside
from ...dispatch.promotion import common_dtype, wrap_dim
from ...dispatch.samples import COMPLEX, real, sample
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ...views.named.arguments import int_of
from .broadcasting import meshgrid


def _require_tensors(tensors: Sequence, name: str) -> None:
    if not tensors:
        if name == "cat":
            raise ValueError("torch.cat(): expected a non-empty list of Tensors")
        raise RuntimeError(f"{name} expects a non-empty TensorList")


@operator(
    signature="tensors, dim=0",
    method=False,
    aliases=("concat", "concatenate"),
    samples=(sample(real(2, 3), real(1, 3)), sample(real(2, 3), real(2, 3), dim=1), sample(real(2, 3), real(0, 3)))
    + COMPLEX,
)
def cat(*tensors, dim=0):
    """The tensors joined along a dimension that they have, promoted to a common dtype.

    Raises `RuntimeError` if their other sizes differ.

    >>> import xgrad
    >>> xgrad.cat([xgrad.ones(1, 2), xgrad.zeros(2, 2)]).shape
    xgrad.Size([3, 2])
    """
    _require_tensors(tensors, "cat")
    for i, x in enumerate(tensors):
        if not x.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    dtype = common_dtype(*tensors)
    kept = [x for x in tensors if x.shape != (0,)] or [tensors[0]]
    dim = wrap_dim(dim, kept[0].ndim)
    for i, x in enumerate(tensors):
        if x.shape == (0,):
            continue
        if x.ndim != kept[0].ndim:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {kept[0].ndim} and {x.ndim}")
        for d, (m, n) in enumerate(zip(kept[0].shape, x.shape)):
            if m != n and d != dim:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {m} but got size {n} for "
                    f"tensor number {i} in the list."
                )
    return jnp.concatenate([x.astype(dtype) for x in kept], axis=dim)


def _cut(grad: Any, shapes: Any, dim: Any, needs: Any) -> list:
    dim, start, parts = wrap_dim(dim, grad.ndim), 0, []
    for shape, need in zip(shapes, needs):
        n = shape[dim] if shape != (0,) else 0
        parts.append(jax.lax.slice_in_dim(grad, start, start + n, axis=dim).reshape(shape) if need else None)
        start += n
    return parts


cat.derivative(all=_cut)


@operator(
    signature="tensors, dim=0",
    method=False,
    samples=(sample(real(2, 3), real(2, 3)), sample(real(), real()), sample(real(0, 3), real(0, 3), dim=-1)) + COMPLEX,
)
def stack(*tensors, dim=0):
    """The tensors, of one shape, joined along a new dimension."""
    _require_tensors(tensors, "stack")
    for i, x in enumerate(tensors):
        if x.shape != tensors[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 and "
                f"{list(x.shape)} at entry {i}"
            )
    dtype = common_dtype(*tensors)
    return jnp.stack([x.astype(dtype) for x in tensors], axis=wrap_dim(dim, tensors[0].ndim + 1))


stack.derivative(
    all=lambda grad, dim, needs: [
        jax.lax.index_in_dim(grad, i, wrap_dim(dim, grad.ndim), keepdims=False) if need else None
        for i, need in enumerate(needs)
    ]
)


def _joins(name: str, least: str, dim: Any, aliases: tuple = ()) -> None:
    def join(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
        _require_tensors(tensors, name)
        given = [FUNCTIONS[""][least](x) for x in tensors]
        return cat.function(given, dim(given[0]) if callable(dim) else dim, out=out)

    join.__doc__ = f"The tensors, viewed with at least {least[-2]} dimension(s), joined as `{name}` does."
    join.__name__ = name
    composite(name, method=False, aliases=aliases)(join)


_joins("hstack", "atleast_1d", lambda x: 0 if x.ndim == 1 else 1)
_joins("vstack", "atleast_2d", 0, ("row_stack",))
_joins("dstack", "atleast_3d", 2)


@composite(method=False)
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The tensors, one with fewer than two dimensions as a column, joined along dimension 1."""
    _require_tensors(tensors, "column_stack")
    columns = [x if x.ndim >= 2 else x.reshape(-1, 1) for x in tensors]
    return cat.function(columns, 1, out=out)


@operator(
    signature="*tensors",
    method=False,
    out=False,
    samples=(sample(real(2, 3), real(3), real()), sample(real(2, 2), real(0, 3))) + COMPLEX,
)
def block_diag(*tensors):
    """The matrix with the given matrices on its diagonal and zeros elsewhere; a vector counts as one row."""
    if not tensors:
        return jnp.zeros((1, 0), settings.default_dtype)
    for i, x in enumerate(tensors):
        if x.ndim > 2:
            raise RuntimeError(f"block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {x.ndim}")
    dtype = common_dtype(*tensors)
    return jax.scipy.linalg.block_diag(*(jnp.atleast_2d(x).astype(dtype) for x in tensors))


def _blocks(grad: Any, shapes: Any) -> list:
    row = column = 0
    parts = []
    for shape in shapes:
        m, n = (1, 1, *shape)[-2:]
        parts.append(grad[row : row + m, column : column + n].reshape(shape))
        row, column = row + m, column + n
    return parts


block_diag.derivative(all=_blocks)


@composite(method=False)
def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations with one element of each 1-dim tensor, as rows."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(x).__name__}")
        if x.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.shape)}")
    if len(given) == 1:
        return given[0]
    return stack.function([g.flatten() for g in meshgrid(*given, indexing="ij")], 1)


@composite
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a 1-dim tensor, as rows, in the order of `itertools.combinations`."""
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if (r := int_of(r)) < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty(0)
    n = input.shape[0]
    count = _choices(n + r - 1 if with_replacement and n else n, r)
    check_size((count, r), dtypes.int64)
    check_bytes(count * r * 4, f"combinations() of {n} elements, {r} at a time, are {count}: the indices")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = itertools.chain.from_iterable(choose(range(n), r)) if count else ()
    index = np.fromiter(rows, np.int32, count * r).reshape(count, r)
    return input.take(beside(input, index))


def _choices(n: int, r: int) -> int:
    """The number of choices of `r` from `n`; above 2**63 some number above 2**63."""
    if r > n:
        return 0
    count = 1
    for i in range(min(r, n - r)):
        count = count * (n - i) // (i + 1)
        if count >= LIMIT:
            break
    return count
