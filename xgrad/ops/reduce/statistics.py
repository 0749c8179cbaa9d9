"""cov, corrcoef, quantile, nanquantile: operators that compute statistics of samples.

(PyTorch: aten/src/ATen/native/Correlation.cpp, and the quantiles of Sorting.cpp.)
"""

import math
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite, operator
from ...dispatch.out import write_out
from ...dispatch.promotion import as_float, conj, wrap_dim
from ...dispatch.samples import COMPLEX, SINGLE, between, fixed, positive, real, sample, whole
from ...tensor import Tensor
from ..index.index_checks import on_host

# -- covariance -------------------------------------------------------------------------------------------------------


def _require_matrix(x: Any, name: str) -> None:
    if x.ndim > 2:
        raise RuntimeError(
            f"{name}(): expected input to have two or fewer dimensions but got an input with {x.ndim} dimensions"
        )


def _require_weights(weights: Any, name: str, observations: int, kinds: frozenset, kind: str) -> None:
    if weights is None:
        return
    if weights.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {weights.ndim} dimensions"
        )
    if weights.dtype not in kinds:
        raise RuntimeError(
            f"cov(): expected {name} to have {kind} dtype but got {name} with {dtypes.torch_name(weights.dtype)} dtype"
        )
    n = math.prod(weights.shape)
    if n != observations:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got "
            f"{n} != {observations}"
        )


def _degrees(observations: Any, correction: Any, weights: Any, aweights: Any) -> Any:
    """The degrees of freedom left to the observations."""
    if weights is None:
        return observations - correction
    total = weights.sum()
    if aweights is None:
        return total - correction
    return total - correction * (weights * aweights).sum() / total


def _check_weights(arrays: tuple, statics: tuple) -> None:
    """Raise for weights of wrong shapes or dtypes, negative or with sum zero; warn if no degree of freedom is left."""
    self, *weights = arrays
    (correction,) = statics
    observations = self.shape[-1] if self.ndim else 1
    _require_weights(weights[0], "fweights", observations, dtypes.INTEGERS, "integral")
    _require_weights(weights[1], "aweights", observations, dtypes.FLOATS, "floating point")
    found = [None if w is None else on_host(w) for w in weights]
    if any(w is not None and f is None for w, f in zip(weights, found)):
        return  # under a trace, or on an accelerator
    for name, w in zip(("fweights", "aweights"), found):
        if w is not None and w.size and w.min() < 0:
            raise RuntimeError(f"cov(): {name} cannot be negative")
    fweights, aweights = found
    both = aweights if fweights is None else fweights if aweights is None else fweights * aweights
    if both is not None and both.size and not both.sum():
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    if _degrees(observations, correction, both, aweights) <= 0:
        warnings.warn(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
            stacklevel=3,
        )


def _covariance(self, fweights, aweights, correction):
    if self.dtype == dtypes.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = self if self.ndim == 2 else self.reshape(1, -1)
    n = x.shape[1]
    weights = fweights if aweights is None else aweights if fweights is None else aweights * fweights
    x = as_float(x)
    # Values made of the weights alone stay in the weights' precision.
    weights, aweights = (None if w is None else w.reshape(-1) for w in (weights, aweights))
    # The mean of one observation is that observation, without rounding.
    mean = jnp.mean(x, 1, keepdims=True) if weights is None else (x * weights).sum(1, keepdims=True) / weights.sum()
    centred = jnp.zeros_like(x) if n == 1 and (fweights is None) != (aweights is None) else x - mean
    product = jnp.matmul(centred if weights is None else centred * weights, conj(centred).T)
    freedom = _degrees(n, correction, weights, aweights)
    freedom = jnp.where(freedom <= 0, 0, freedom).real.astype(dtypes.real_of(product.dtype))
    if jnp.iscomplexobj(product):  # part by part: a division of complex numbers by 0 would make NaN of both
        return lax.complex(product.real / freedom, product.imag / freedom).squeeze()
    return (product / freedom).squeeze()


@operator(
    signature="input, *, correction=1, fweights=None, aweights=None",
    check=_check_weights,
    out=False,
    samples=(sample(real(2, 3)), sample(real(3), correction=0), sample(real(2, 3), whole(1, 4, 3), positive(3)))
    + COMPLEX,
)
def cov(self, fweights=None, aweights=None, *, correction=1):
    """The covariance matrix of variables (rows) over observations (columns), divided by n - `correction`.

    `fweights` (integers) are frequencies of the observations, `aweights` their importance.  For a vector it is the
    variance.

    >>> import xgrad
    >>> xgrad.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]).cov()
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    _require_matrix(self, "cov")
    return _covariance(self, fweights, aweights, correction)


def _clipped(x: Any) -> Any:
    """Clip to [-1, 1], with the derivative 1 at both ends, as in PyTorch."""
    return jnp.where(x < -1, -1, jnp.where(x > 1, 1, x)).astype(x.dtype)


@operator(out=False, samples=(sample(real(2, 3)), sample(real(3))) + COMPLEX)
def corrcoef(self):
    """The matrix of Pearson's correlation coefficients of variables (rows) over observations (columns)."""
    _require_matrix(self, "corrcoef")
    c = _covariance(self, None, None, 1)
    if not c.ndim:
        return c / c  # NaN where the variance is 0
    deviations = jnp.sqrt(jnp.real(jnp.diagonal(c))).astype(c.dtype)
    c = c / deviations[:, None] / deviations[None, :]
    if jnp.iscomplexobj(c):
        return _clipped(jnp.real(c)) + 1j * _clipped(jnp.imag(c))
    return _clipped(c)


# -- quantiles --------------------------------------------------------------------------------------------------------

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _between(low: Any, high: Any, weight: Any) -> Any:
    """Interpolate as PyTorch's lerp does, which is exact at both ends."""
    return jnp.where(weight < 0.5, low + weight * (high - low), high - (high - low) * (1 - weight))


def _quantiles(self, q, dim, keepdim, interpolation, skip_nan):
    """Sort once, and interpolate each quantile between two neighbours, which get its gradient."""
    shape = self.shape
    if dim is None:
        x, axis = self.reshape(-1), 0
    else:
        axis = wrap_dim(dim, self.ndim)
        x = self.reshape(1) if not shape else self
    x = jnp.sort(jnp.moveaxis(x, axis, -1), axis=-1)  # NaNs come last
    last, nan = x.shape[-1] - 1, jnp.isnan(x)
    if skip_nan:
        rank = q.reshape(-1) * jnp.maximum(last - nan.sum(-1, keepdims=True), 0).astype(x.dtype)
    else:
        rank = jnp.where(nan.any(-1, keepdims=True), last, q.reshape(-1) * last)
    if interpolation in ("lower", "higher", "nearest"):
        rank = {"lower": jnp.floor, "higher": jnp.ceil, "nearest": jnp.round}[interpolation](rank)
    below = jnp.floor(rank)
    low, high = (jnp.take_along_axis(x, r.astype(np.int32), axis=-1, mode="clip") for r in (below, jnp.ceil(rank)))
    if interpolation in ("linear", "midpoint"):
        weight = jnp.full_like(rank, 0.5) if interpolation == "midpoint" else rank - below
        low = _between(low, high, weight)
    inside = (q.reshape(-1) >= 0) & (q.reshape(-1) <= 1)  # what is not on the host has no check
    found = jnp.moveaxis(jnp.where(inside, low, np.nan), -1, 0)  # (quantiles, *the other dimensions)
    if keepdim:
        found = found.reshape(
            found.shape[:1] + tuple(1 if dim is None or d == axis else n for d, n in enumerate(shape))
        )
    elif not shape:
        found = found.reshape(found.shape[:1])
    return found if q.ndim else found[0]


def _declare(name: str, skip_nan: bool, doc: str) -> None:
    @operator(
        name,
        function=False,
        method=False,
        samples=tuple(
            [sample(real(2, 3), between(0.1, 0.9, 2), dim=1, interpolation=i) for i in ("linear", "lower", "midpoint")]
        )
        + (sample(real(2, 3), fixed(between(0.1, 0.9)), keepdim=True), *SINGLE),
    )
    def run(self, q, *, dim=None, keepdim=False, interpolation="linear"):
        if q.ndim > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
        if not self.size:
            raise RuntimeError(f"{name}() input tensor must be non-empty")
        if self.dtype not in (dtypes.float32, dtypes.float64):
            raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
        if q.dtype != self.dtype and not q.weak_type:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
        if interpolation not in _INTERPOLATIONS:
            raise RuntimeError(
                f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
                f"{interpolation}"
            )
        return _quantiles(self, q.astype(self.dtype), dim, keepdim, interpolation, skip_nan)

    def public(
        input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear",
        out: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if isinstance(q, (int, float)):
            q = float(q)
            if not 0 <= q <= 1:
                raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        elif not isinstance(q, Tensor):
            raise TypeError(f"{name}(): argument 'q' must be a number or a Tensor, not {type(q).__name__}")
        elif (values := on_host(q)) is not None and values.size and not (values.min() >= 0 and values.max() <= 1):
            raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
        if out is not None and out.dtype != input.dtype:
            raise RuntimeError(f"{name}() out tensor must be same dtype as the input tensor")
        result = call(run.operator, (input, q), (dim, bool(keepdim), interpolation))
        return result if out is None else write_out(name, result, out)

    public.__name__ = public.__qualname__ = name
    public.__doc__ = doc
    composite(name)(public)


_declare(
    "quantile",
    False,
    """The quantiles `q` (a number, or a vector whose size is the result's first dimension) along `dim`, or of all.

    Between two elements `interpolation` decides: "linear", "lower", "higher", "midpoint" or "nearest".  NaN where there
    is a NaN.  Raises `RuntimeError` for `q` outside of [0, 1] and for dtypes other than float32 and float64.

    >>> import xgrad
    >>> xgrad.tensor([0.0, 1.0, 2.0, 3.0]).quantile(0.5)
    tensor(1.5000)
    """,
)
_declare("nanquantile", True, "As `quantile`, of the elements that are not NaN; NaN where all are.")
