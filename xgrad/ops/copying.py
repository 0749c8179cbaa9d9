"""copy_ and what autograd records beside operators: linear maps along a view chain, sums and fits of gradients."""

from typing import Any

import jax.numpy as jnp

from .. import dtypes
from ..config import state
from ..engine.copy_slices import chain_node
from ..engine.node import Node, gradient_edge
from ..engine.validate import fit
from ..tensor import Tensor, from_array
from ..views.chain import ViewChain
from .call import call_inplace
from .promotion import check_broadcast
from .registry import METHODS, Operator, operator


def _copy(self: Any, other: Any) -> Any:
    """`other`, broadcast and cast to `self`'s shape and dtype."""
    check_broadcast(self, other)
    other = jnp.asarray(other)
    if other.dtype in dtypes.COMPLEX and self.dtype not in dtypes.COMPLEX:
        other = jnp.real(other)
    return jnp.broadcast_to(other.astype(self.dtype), self.shape) if other.ndim <= self.ndim else other


copy = Operator("copy", _copy, node="CopyBackwards", pointwise=True)
copy.derivative(self=lambda grad: jnp.zeros_like(grad), other=lambda grad: grad)


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Write `src`, broadcast and cast, into this tensor, through its view chain, and return the tensor.

    Recorded as CopyBackwards: the gradient returns to the source's dtype and device.

    >>> import xgrad
    >>> x = xgrad.zeros(2, 2)
    >>> x[0].copy_(xgrad.ones(2))
    tensor([1., 1.])
    """
    if isinstance(src, Tensor):
        here, there = self._placed(), src._placed()
        if here is not there and here is not None and there is not None and here.device_set != there.device_set:
            src = src.to(here)
    return call_inplace(copy, (self, src), ())


METHODS["copy_"] = copy_


# -- gradients along a chain, recorded for double backward -------------------------------------------------------------


class _Replay(Node):
    """The backward of an adjoint: the replay."""

    chain: ViewChain

    def apply(self, grads: list, needs: int) -> Any:
        grad = grads[0]
        if grad is None:
            return (None,)
        return (read(self.chain, grad) if isinstance(grad, Tensor) else self.chain.replay(grad),)

    def name(self) -> str:
        return "AdjointBackward0"


class _WriteBack(Node):
    """The backward of write_back(base, new): the base's gradient outside of the view, the new value's inside."""

    chain: ViewChain

    def apply(self, grads: list, needs: int) -> Any:
        grad, chain = grads[0], self.chain
        if grad is None:
            return (None, None)
        if isinstance(grad, Tensor):
            return (write(chain, grad, None), read(chain, grad))
        return (chain.write_back(grad, jnp.zeros(chain.shape, chain.dtype)), chain.replay(grad))

    def name(self) -> str:
        return "SliceScatterBackward0"


def _linear(result: Tensor, tensors: tuple, node: Any, again: Any) -> Tensor:
    """Record a linear map, and map the tangents along."""
    if state.grad_enabled and any(t.requires_grad for t in tensors):
        made = node()
        result._grad_fn, result._requires_grad = made, True
    level = state.forward_level
    if level >= 0 and any(t._tangents and level in t._tangents for t in tensors):
        moving = [t._tangents[level] if t._tangents and level in t._tangents else None for t in tensors]
        result._tangents = {level: again(*moving)}
    return result


def read(chain: ViewChain, grad: Tensor) -> Tensor:
    """`chain.replay`, recorded."""
    out = from_array(chain.replay(grad._read()))
    return _linear(
        out, (grad,), lambda: chain_node("ReplayBackward0", chain, gradient_edge(grad)), lambda t: read(chain, t)
    )


def adjoint(chain: ViewChain, grad: Tensor) -> Tensor:
    """`chain.adjoint`, recorded."""
    out = from_array(chain.adjoint(grad._read()))

    def node() -> Node:
        made = _Replay()
        made.chain, made.next_edges, made.avals = chain, (gradient_edge(grad),), (_RootLike(chain),)
        made.sequence_nr = state.next_sequence_nr()
        return made

    return _linear(out, (grad,), node, lambda t: adjoint(chain, t))


def write(chain: ViewChain, base: Tensor, new: Tensor | None) -> Tensor:
    """`chain.write_back`, recorded; `new` None stands for zeros."""
    if new is None:
        new = from_array(jnp.zeros(chain.shape, chain.dtype))
    out = from_array(chain.write_back(base._read(), new._read()))

    def node() -> Node:
        made = _WriteBack()
        made.chain, made.avals = chain, (_RootLike(chain),)
        made.next_edges = (gradient_edge(base), gradient_edge(new))
        made.sequence_nr = state.next_sequence_nr()
        return made

    def along(moving: Tensor | None, part: Tensor | None) -> Tensor:
        whole = moving if moving is not None else from_array(jnp.zeros(chain.root_shape, chain.root_dtype))
        return write(chain, whole, part)

    return _linear(out, (base, new), node, along)


class _RootLike:
    """Shape and dtype of a chain's root."""

    __slots__ = ("dtype", "shape")

    def __init__(self, chain: ViewChain) -> None:
        self.shape, self.dtype = chain.root_shape, chain.root_dtype


@operator("_fit", method=False, function=False, out=False, node="SumToSizeBackward0")
def fit_to(self, *, shape, dtype):
    """A broadcast gradient, summed and cast."""
    return fit(self, shape, dtype)


def fit_recorded(grad: Tensor, shape: tuple, dtype: Any) -> Tensor:
    return fit_to.function(grad, shape, dtype)
