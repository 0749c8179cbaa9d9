"""dropout, dropout2d, alpha_dropout, ...: set random elements or channels to 0, scale the rest (PyTorch: Dropout.cpp).

Backward draws the mask again from its key, so only the key is saved: PyTorch saves a mask of the input's size.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...dispatch.argument_kinds import require_no_grad
from ...dispatch.call import call
from ...dispatch.declare import composite, operator
from ...dispatch.inplace import call_inplace
from ...dispatch.promotion import require_floating
from ...dispatch.samples import key, real, sample
from ...dispatch.tables import FUNCTIONS
from ...dispatch.wrong_arguments import require_tensor
from ...tensor import Tensor
from .draws import in_a_row
from .keys import draw_key

hidden: Any = partial(operator, function=False, method=False, out=False)

# SELU's limit at minus infinity: alpha_dropout sets dropped elements to it.
_ALPHA = -1.7580993408473766


def _kept(shape: tuple, key: Any, p: Any, channels: bool) -> Any:
    """The mask of elements that stay, drawn for each element, or for each channel."""
    drawn = shape[:2] + (1,) * (len(shape) - 2) if channels else shape
    return in_a_row(lambda key, shape: jax.random.bernoulli(key, 1 - p, shape), key, drawn)


def _dropped(x: Any, key: Any, p: Any, channels: bool) -> Any:
    # A product, and no choice of 0: what is not finite becomes NaN, as in PyTorch, and is found.
    return x * jnp.where(_kept(x.shape, key, p, channels) & (p < 1), 1 / (1 - p), 0)


_SAMPLES = (sample(real(2, 3), key(), 0.4, channels=False), sample(real(2, 3, 2), key(), 0.4, channels=True))


@hidden("dropout", samples=_SAMPLES)
def _dropout(self, key, p, *, channels):
    require_floating(self, "dropout")
    return _dropped(self, key, p, channels)


_dropout.derivative(self=lambda grad, key, p, channels: _dropped(grad, key, p, channels))


def _alpha_scale(p: Any) -> Any:
    """The factor that restores the variance 1; 0 if every element is dropped."""
    return jnp.where(p < 1, ((1 - p) * (1 + p * _ALPHA**2)) ** -0.5, 0)


@hidden("alpha_dropout", samples=_SAMPLES)
def _alpha_dropout(self, key, p, *, channels):
    require_floating(self, "alpha_dropout")
    kept, scale = _kept(self.shape, key, p, channels), _alpha_scale(p)
    return self * jnp.where(kept, scale, 0) + jnp.where(kept, -p, 1 - p) * _ALPHA * scale  # a product, as in _dropped


_alpha_dropout.derivative(
    self=lambda grad, key, p, channels: grad * jnp.where(_kept(grad.shape, key, p, channels), _alpha_scale(p), 0),
)


def _apply(operator: Any, input: Tensor, p: float, training: bool, inplace: bool, channels: bool) -> Tensor:
    require_no_grad("dropout", p=p)
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        require_tensor("dropout", input)
        return input
    if channels and input.ndim < 2:
        raise RuntimeError(f"Feature dropout requires at least 2 dimensions in the input, but got {list(input.shape)}")
    return (call_inplace if inplace else call)(operator.operator, (input, draw_key(), float(p)), (channels,))


@composite(method=False, namespace=("nn.functional", ""))
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set each element to 0 with probability `p` and scale the others by 1 / (1 - p); only in training.

    >>> import xgrad
    >>> x = xgrad.ones(3)
    >>> xgrad.nn.functional.dropout(x, 0.5, training=False) is x
    True
    """
    return _apply(_dropout, input, p, training, inplace, False)


@composite(method=False, namespace=("nn.functional", ""))
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for SELU networks: it keeps mean 0 and variance 1."""
    return _apply(_alpha_dropout, input, p, training, inplace, False)


@composite(method=False, namespace=("nn.functional", ""))
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout of whole channels (dimension 1)."""
    return _apply(_alpha_dropout, input, p, training, inplace, True)


@composite(method=False, namespace="")
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of whole channels (dimension 1)."""
    return _apply(_dropout, input, p, train, False, True)


@composite("feature_dropout_", method=False)
def _feature_dropout_inplace(input: Tensor, p: float, train: bool) -> Tensor:
    """In-place version of `xgrad.feature_dropout`."""
    return _apply(_dropout, input, p, train, True, True)


def _declare(n: int) -> None:
    """Declare dropout1d, 2d or 3d, of whole channels; an input without a batch dimension is a batch of one."""

    def of_channels(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        single = input.ndim == n + 1 and n != 2
        if input.ndim not in (n + 1, n + 2):
            if n == 1:
                raise RuntimeError(
                    f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. Note that dropout1d "
                    "exists to "
                    "do channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an "
                    "optional batch "
                    "dimension (i.e. 2D or 3D inputs)."
                )
            single = False
        if not single:
            return _apply(_dropout, input, p, training, inplace, True)
        out = _apply(_dropout, input.unsqueeze(0), p, training, inplace, True).squeeze(0)
        return input if inplace else out

    of_channels.__name__ = f"dropout{n}d"
    of_channels.__doc__ = f"Dropout of whole channels of an input with {n} spatial dimension(s)."
    composite(f"dropout{n}d", method=False, namespace="nn.functional")(of_channels)


for _n in (1, 2, 3):
    _declare(_n)


def _inplace(name: str) -> None:
    function = FUNCTIONS[""][name]

    def written(input: Tensor, p: float, train: bool) -> Tensor:
        return function(input, p, train, inplace=True)

    written.__name__, written.__doc__ = name + "_", f"In-place version of `xgrad.{name}`."
    composite(name + "_", method=False)(written)


for _name in ("dropout", "alpha_dropout", "feature_alpha_dropout"):
    _inplace(_name)
