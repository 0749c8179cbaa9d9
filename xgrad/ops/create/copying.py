"""Tensor.copy_: writes another tensor's values, cast and broadcast; others copy or fit gradients, for the engine."""

from typing import Any

import jax.numpy as jnp

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import internal, linear, variant
from ...dispatch.inplace import call_inplace
from ...dispatch.promotion import cast, check_broadcast
from ...dispatch.samples import COMPLEX, real, sample
from ...dispatch.tables import METHODS
from ...engine.fit import fit
from ...tensor import Tensor
from ..pointwise.arithmetic import zero


def _copy(self: Any, other: Any) -> Any:
    """`other`, broadcast and cast to `self`'s shape and dtype."""
    check_broadcast(self, other)
    other = jnp.asarray(other)
    return jnp.broadcast_to(cast(other, self.dtype), self.shape) if other.ndim <= self.ndim else other


copy = variant(
    "copy", _copy, node="torch::autograd::CopyBackwards", pointwise=True,
    samples=(sample(real(2, 3), real(3)), sample(real(), real()), sample(real(0, 3), 1.5)) + COMPLEX,
)  # fmt: skip
copy.derivative(self=zero, other=lambda grad: grad)


def copy_(self: Tensor, other: Any, non_blocking: bool = False) -> Tensor:
    """Write `other`, broadcast and cast, into this tensor, through its view chain, and return the tensor.

    Recorded as CopyBackwards: the gradient returns to the source's dtype and device.

    >>> import xgrad
    >>> x = xgrad.zeros(2, 2)
    >>> x[0].copy_(xgrad.ones(2))
    tensor([1., 1.])
    """
    if isinstance(other, Tensor):
        here, there = self._placed(), other._placed()
        if here is not there and here is not None and there is not None and here.device_set != there.device_set:
            other = other.to(self.device)  # on a mesh not sharded as the storage, because this may be a view
    return call_inplace(copy, (self, other), ())


METHODS["copy_"] = copy_


def copied(grad: Tensor, variable: Tensor) -> Tensor:
    """Copy a leaf's first gradient, recorded as CopyBackwards, as PyTorch copies it into the leaf's layout.

    A leaf with gaps, or with an element in two places, has no layout to copy into: then it is CloneBackward0.
    """
    chain = variable._chain
    seen = None if chain is None or chain.is_root else chain.geometry
    if seen is not None and (seen.overlaps() or seen.numel != seen.span()[1] - seen.span()[0] + 1):
        return grad.clone()
    return call(copy, (grad.detach(), grad), ())


@internal(
    "_fit",
    node="SumToSizeBackward0",
    samples=(sample(real(2, 3), shape=(1, 3), dtype=dtypes.float64), sample(real(2, 3), shape=(), dtype=dtypes.float64))
    + COMPLEX,
)
def fit_to(self, *, shape, dtype):
    """Sum a broadcast gradient to `shape`, and cast it."""
    return fit(self, shape, dtype)


fit_to.derivative(self=linear)


def fit_recorded(grad: Tensor, shape: tuple[Any, ...], dtype: Any) -> Tensor:
    return fit_to.function(grad, shape, dtype)
