"""xgrad.masked: reductions and normalizations over the elements at which a mask is true (PyTorch: torch.masked).

One mechanism: masked-out elements are replaced by the operation's identity (0 for a sum, -inf for a maximum), and the
plain operator runs.  So masked-out elements have a gradient of 0, and a slice without elements gives the operation's
result of nothing: 0 for a sum, -inf for a maximum, NaN for a mean.  (PyTorch: torch/masked/_ops.py.)

>>> import xgrad
>>> x = xgrad.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
>>> xgrad.masked.mean(x, 1, mask=x > 2)
tensor([3., 5.])
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from .base import dtypes
from .base.missing import close_namespace as _close_namespace
from .dispatch.promotion import wrap_dim, wrap_dims
from .dispatch.tables import FUNCTIONS
from .ops.index.masks import truth
from .tensor import Tensor

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median",
    "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

_plain = dict(FUNCTIONS[""])
_layers = FUNCTIONS["nn.functional"]


# -- masking ----------------------------------------------------------------------------------------------------------


def _mask_of(input: Tensor, mask: Tensor) -> Tensor:
    """Return the mask as bools, in the shape of the input.  Raises `IndexError` for one with more dimensions."""
    if input._sparse or mask._sparse:
        raise NotImplementedError("xgrad.masked takes dense tensors only: call to_dense() first")
    if mask.ndim > input.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the input): "
            f"{mask.ndim} and {input.ndim}"
        )
    return mask.to(dtypes.bool).broadcast_to(tuple(input.shape))


def _filled(input: Tensor, mask: Tensor | None, name: str, identity: Any) -> Tensor:
    """Return the input with the identity of the operation `name` in the place of masked-out elements."""
    if mask is None:
        return input
    if callable(identity):
        identity = identity(input.dtype)
        if identity is None:
            raise NotImplementedError(f"identity of {name} on {input.dtype.name} input")
    return _plain["where"](_mask_of(input, mask), input, identity)


def _least(dtype: Any) -> Any:
    if dtype in dtypes.FLOATS:
        return -math.inf
    return int(jnp.iinfo(dtype).min) if dtype in dtypes.INTEGERS else None


def _most(dtype: Any) -> Any:
    if dtype in dtypes.FLOATS:
        return math.inf
    return int(jnp.iinfo(dtype).max) if dtype in dtypes.INTEGERS else None


def _least_or_complex(dtype: Any) -> Any:
    return -math.inf if dtype in dtypes.COMPLEX else _least(dtype)


# -- reductions -------------------------------------------------------------------------------------------------------


def _reduction(name: str, identity: Any, plain: Callable, doc: str, one_dim: bool = False) -> Callable:
    """Make the masked form of `plain(input, dim, keepdim, dtype)`."""

    def reduce(
        input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
    ) -> Tensor:
        dtype = None if dtype is None else dtypes.as_dtype(dtype)
        if not one_dim:
            dim = wrap_dims(dim, input.ndim)
        return plain(_filled(input, mask, name, identity), dim, bool(keepdim), dtype)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"{doc} over `dim` (all dimensions by default) of the elements at which `mask` is true."
    return reduce


def _converting(name: str) -> Callable:
    """Return the plain operator with its result converted to `dtype`: by default the input's, even for an index."""
    run = _plain[name]
    return lambda x, dim, keepdim, dtype: run(x, dim, keepdim).to(x.dtype if dtype is None else dtype)


def _product(input: Tensor, dim: tuple, keepdim: bool, dtype: Any) -> Tensor:
    if dtype is None:
        dtype = input.dtype if input.dtype in dtypes.INEXACT else dtypes.default_integer()
    result = input.to(dtype)
    for d in sorted(dim, reverse=True):
        result = result.prod(d, keepdim)
    return result


sum: Callable[..., Any] = _reduction(
    "sum", 0, lambda x, dim, keepdim, dtype: _plain["sum"](x, dim, keepdim, dtype=dtype), "The sum"
)
prod: Callable[..., Any] = _reduction("prod", 1, _product, "The product")
amax: Callable[..., Any] = _reduction("amax", _least, _converting("amax"), "The maximum")
amin: Callable[..., Any] = _reduction("amin", _most, _converting("amin"), "The minimum")
argmax: Callable[..., Any] = _reduction(
    "argmax", _least, _converting("argmax"), "The index of the maximum", one_dim=True
)
argmin: Callable[..., Any] = _reduction(
    "argmin", _most, _converting("argmin"), "The index of the minimum", one_dim=True
)
logsumexp: Callable[..., Any] = _reduction(
    "logsumexp", _least_or_complex, _converting("logsumexp"), "The logarithm of the sum of exponentials"
)


def _counted(input: Tensor, dim: Any, keepdim: bool, mask: Tensor | None) -> Tensor:
    """Return the number of elements of each reduction."""
    taken = _plain["ones"](tuple(input.shape), dtype=dtypes.bool) if mask is None else _mask_of(input, mask)
    return taken.sum(wrap_dims(dim, input.ndim), keepdim)


def mean(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The mean over `dim` of the elements at which `mask` is true; NaN where there are none.

    Raises `ValueError` for a dtype that is neither floating nor complex.
    """
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    if kind not in dtypes.INEXACT:
        raise ValueError(
            f"mean(): Could not infer output dtype. {'Input' if dtype is None else 'Optional'} dtype must be either a "
            f"floating point or complex dtype. Got: {kind.name}"
        )
    total = sum(input, dim, keepdim=keepdim, dtype=kind, mask=mask)
    return total / _counted(input, dim, bool(keepdim), mask)


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The (lower) median along `dim` of the elements at which `mask` is true; NaN where there are none.

    NaNs count as masked out.  Raises `ValueError` where none are left of integers, which have no NaN.
    """
    floating = input.dtype in dtypes.FLOATS
    x = input if floating else input.to(dtypes.float32)
    found = _plain["nanmedian"](_filled(x, mask, "median", math.nan), wrap_dim(dim, input.ndim), keepdim).values
    if floating:
        return found
    if mask is not None and truth(found.isnan().any(), "masked.median of integers").item():
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    return found.to(input.dtype if dtype is None else dtype)


def norm(
    input: Tensor, ord: float = 2.0, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The `ord`-norm over `dim` (all dimensions by default) of the elements at which `mask` is true."""
    filled = _filled(input, mask, "norm", math.inf if ord == -math.inf else 0)
    dim = wrap_dims(dim, input.ndim)
    dtype = input.dtype if dtype is None else dtype
    return FUNCTIONS["linalg"]["vector_norm"](filled, 2 if ord is None else ord, dim, bool(keepdim), dtype=dtype)


def var(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The variance over `dim` of the elements at which `mask` is true, divided by their number - `correction` (1).

    `unbiased=False` is `correction=0`.  Integers have it in float32.
    """
    if unbiased is not None:
        if correction is not None:
            raise AssertionError("Only one of unbiased and correction may be given")
        correction = int(unbiased)
    correction = 1 if correction is None else correction
    if dtype is None:
        dtype = input.dtype if input.dtype in dtypes.INEXACT else dtypes.float32
    dtype = dtypes.as_dtype(dtype)
    wide = dtype if dtype in dtypes.INEXACT else dtypes.float32
    count = _counted(input, dim, True, mask)
    centred = input - sum(input, dim, keepdim=True, dtype=dtype, mask=mask) / count
    total = sum(centred * centred.conj(), dim, keepdim=keepdim, dtype=wide, mask=mask)
    if not keepdim:
        count = count.reshape(tuple(total.shape))
    if correction:
        count = (count.to(dtypes.real_of(wide)) - correction).clamp(min=0)
    return (total / count).to(dtype)


def std(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation: the square root of `var`."""
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()


# -- normalizations ---------------------------------------------------------------------------------------------------


def _normalization(name: str, identity: Any, plain: Callable, doc: str) -> Callable:
    """Make the masked form of `plain(input, dim, dtype)`, along one dimension."""

    def normalize(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
        dtype = input.dtype if dtype is None else dtypes.as_dtype(dtype)
        return plain(_filled(input, mask, name, identity), wrap_dim(dim, input.ndim), dtype=dtype)

    normalize.__name__ = normalize.__qualname__ = name
    normalize.__doc__ = f"{doc} along `dim` of the elements at which `mask` is true."
    return normalize


cumsum: Callable[..., Any] = _normalization("cumsum", 0, _plain["cumsum"], "The running sum")
cumprod: Callable[..., Any] = _normalization("cumprod", 1, _plain["cumprod"], "The running product")
softmax: Callable[..., Any] = _normalization("softmax", _least, _layers["softmax"], "The softmax")
log_softmax: Callable[..., Any] = _normalization(
    "log_softmax", _least, _layers["log_softmax"], "The logarithm of the softmax"
)
softmin: Callable[..., Any] = _normalization(
    "softmin", _most, _layers["softmin"], "The softmax of the negated elements"
)


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The elements at which `mask` is true divided by their `ord`-norm along `dim` (at least `eps`); else 0."""
    filled = _filled(input, mask, "normalize", 0)
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return filled / _plain["maximum"](size, size.new_full((), eps))


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """log(exp(input) + exp(other)), elements at which their mask is false counting as -inf."""
    given = (_filled(x, m, "logaddexp", _least) for x, m in ((input, input_mask), (other, other_mask)))
    return _plain["logaddexp"](*given).to(input.dtype if dtype is None else dtype)


_close_namespace(__name__)
