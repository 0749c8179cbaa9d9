"""normalize, cosine_similarity, pairwise_distance, pdist: norms and distances of vectors (PyTorch: Distance.cpp)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...dispatch.declare import operator
from ...dispatch.promotion import (
    as_float,
    broadcast_shapes,
    promote,
    refuse_bool,
    require_floating,
    require_real_floating,
    scalar,
    wrap_dim,
)
from ...dispatch.samples import COMPLEX, real, sample
from ..pointwise.ends import quotient
from .norms import p_norm

functional: Any = partial(operator, namespace="nn.functional", method=False, out=False)


@functional(
    out=True,
    signature="input, p=2.0, dim=1, eps=1e-12",
    samples=(sample(real(2, 3)), sample(real(2, 3), p=3.5, dim=0)) + COMPLEX,
)
def normalize(self, eps=1e-12, *, p=2.0, dim=1):
    """`input` over its `p`-norm along `dim`, which counts as at least `eps`."""
    require_floating(self, "normalize")
    along = tuple(wrap_dim(d, self.ndim) for d in (dim if isinstance(dim, tuple) else (dim,))) if self.ndim else None
    norm = p_norm(self, p, along, self.ndim > 0)
    eps = scalar(norm, eps, "eps")
    return quotient(self, jnp.where(norm < eps, eps, norm).astype(norm.dtype))


@functional(
    namespace=("nn.functional", ""),
    signature="x1, x2, dim=1, eps=1e-08",
    samples=(sample(real(2, 3), real(3)), sample(real(2, 3), real(2, 3), dim=0)),
)
def cosine_similarity(x1, x2, eps=1e-8, *, dim=1):
    """The cosine of the angle between `x1` and `x2` along `dim`; each norm counts as at least `eps`."""
    x1, x2 = promote(x1, x2)
    require_real_floating(x1, "cosine_similarity")
    broadcast_shapes(x1.shape, x2.shape)
    x1, x2 = jnp.broadcast_arrays(x1, x2)
    along = (wrap_dim(dim, x1.ndim),) if x1.ndim else None

    def unit(x: Any) -> Any:
        norm, least = p_norm(x, 2, along, x.ndim > 0), scalar(x, eps, "eps")
        # PyTorch raises the norm to eps outside of autograd: the norm's derivative does not change.
        return quotient(x, jnp.where(norm < least, norm + jax.lax.stop_gradient(least - norm), norm))

    return jnp.sum(unit(x1) * unit(x2), axis=along)


@functional(
    namespace=("nn.functional", ""),
    signature="x1, x2, p=2.0, eps=1e-06, keepdim=False",
    samples=(sample(real(2, 3), real(3)), sample(real(2, 3), real(2, 3), p=1.0, keepdim=True)) + COMPLEX,
)
def pairwise_distance(x1, x2, eps=1e-6, *, p=2.0, keepdim=False):
    """The `p`-norm of x1 - x2 + eps along the last dimension."""
    broadcast_shapes(x1.shape, x2.shape)
    refuse_bool("Subtraction", x1, x2)
    x1, x2 = promote(x1, x2)
    difference = as_float(x1 - x2)
    return p_norm(difference + scalar(difference, eps, "eps"), p, (-1,), keepdim)


@functional(namespace=("nn.functional", ""), samples=(sample(real(3, 2)), sample(real(3, 2), p=1.0)))
def pdist(self, *, p=2.0):
    """The `p`-norm between each two rows: (number, size) to (number * (number - 1) / 2), by the first of the two."""
    require_real_floating(self, "pdist")
    if self.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {self.ndim}D")
    if not p >= 0:
        raise RuntimeError("pdist only supports non-negative p values")
    first, second = np.triu_indices(self.shape[0], 1)
    if not len(first) or not self.shape[1]:
        return jnp.zeros(len(first), self.dtype)
    return p_norm(self[first] - self[second], p, (1,), False)
