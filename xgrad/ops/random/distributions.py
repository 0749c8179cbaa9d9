"""binomial, gumbel_softmax: draw binomial numbers, and draw categories as vectors through which gradients flow.

(PyTorch: Distributions.cpp, torch/nn/functional.py.)
"""

import warnings

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite, internal
from ...dispatch.promotion import broadcast_shapes
from ...dispatch.samples import between, key, real, sample
from ...dispatch.tables import FUNCTIONS
from ...random import Generator
from ...tensor import Tensor
from .keys import draw_key


@internal("binomial", missing="aten::binomial", samples=(sample(between(3, 5, 2, 3), between(0.2, 0.8, 2, 3), key()),))
def _binomial(count, prob, key):
    # jax counts in the dtype of its arguments: in half precision up to 2048 or 256.
    wide = jnp.promote_types(count.dtype, jnp.float32)
    n, p = stop_gradient(count).astype(wide), stop_gradient(prob).astype(wide)
    shape = broadcast_shapes(n.shape, p.shape)
    drawn = jax.random.binomial(key, n, p, shape, wide)
    return drawn.astype(count.dtype)


@composite(method=False)
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Binomial numbers: of `count` trials that succeed with `prob` each, in their dtype; both broadcast.

    Raises `RuntimeError` for two dtypes and in backward, `ValueError` for integers.
    """
    if count.dtype not in dtypes.FLOATS:
        raise ValueError(
            f"binomial only supports floating-point dtypes for count, got: {dtypes.torch_name(count._dtype)}"
        )
    if prob.dtype != count.dtype:
        raise RuntimeError(
            f"Found dtype {dtypes.torch_name(prob._dtype)} but expected {dtypes.torch_name(count._dtype)}: count and "
            "prob need the same"
        )
    return call(_binomial.operator, (count, prob, draw_key(generator)), ())


@internal("gumbel", differentiable=False, samples=(sample(real(2, 3), key()),))
def _gumbel(self, key):
    wide = jnp.promote_types(self.dtype, jnp.float32)
    return jax.random.gumbel(key, self.shape, wide).astype(self.dtype)


@composite(method=False, namespace="nn.functional")
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Categories drawn from `logits` along `dim` as vectors: softmax((logits + Gumbel noise) / tau).

    With `hard` each is 1 at its category and 0 elsewhere, with the gradient of the soft one.  `eps` does nothing.
    (Jang, Gu, Poole, arXiv:1611.01144.)
    """
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    if logits.dtype not in dtypes.FLOATS:
        raise RuntimeError(
            f"gumbel_softmax: the distribution is continuous: dtype must be a floating point but you specified "
            f"{dtypes.torch_name(logits._dtype)}"
        )
    noise = call(_gumbel.operator, (logits.detach(), draw_key()), ())
    soft = FUNCTIONS[""]["softmax"]((logits + noise) / tau, dim)
    if not hard:
        return soft
    place = soft.detach().argmax(dim, keepdim=True)
    one = FUNCTIONS[""]["zeros_like"](soft).scatter(dim, place, 1.0)
    return one - soft.detach() + soft
