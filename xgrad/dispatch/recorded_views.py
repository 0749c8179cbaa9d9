"""Differentiable functions for views: `replay` reads a view, `adjoint` is the read's transpose, `write_back` writes it.

They work on Tensors, for backward with `create_graph=True`, and record their results for autograd.  Each is linear, and
its derivative is made of these three.  `TENSORS` of engine/arithmetic.py calls them, as methods of Tensor.
"""

from typing import Any

from ..base.limits import zeros
from ..config import state, to_outer_forward_level
from ..engine.arithmetic import Arithmetic
from ..engine.edges import gradient_edge
from ..engine.node import InputMetadata, Node, wire
from ..engine.placement import beside
from ..engine.view_nodes import chain_node
from ..tensor import Tensor, from_array
from ..views.chain import ViewChain


class _Replay(Node):
    """The backward of an adjoint, which is the replay."""

    chain: ViewChain

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        grad = grads[0]
        if grad is None:
            return (None,)
        return (arithmetic.read(self.chain, grad),)

    def name(self) -> str:
        return "AdjointBackward0"


class _WriteBack(Node):
    """The backward of write_back(base, new): the base's gradient outside of the view, the new value's inside."""

    chain: ViewChain

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        grad, chain = grads[0], self.chain
        if grad is None:
            return (None, None)
        return (arithmetic.write(chain, [grad], None), arithmetic.read(chain, grad))

    def name(self) -> str:
        return "SliceScatterBackward0"


def record_linear(result: Tensor, tensors: tuple[Any, ...], node: Any, again: Any) -> Tensor:
    """Record a linear map, and map the tangents along."""
    if state.grad_enabled and any(t.requires_grad for t in tensors):
        made = node()
        result._grad_fn, result._requires_grad = made, True
    if state.forward_level >= 0:
        _along(result, tensors, again)
    return result


def _along(result: Tensor, tensors: tuple, again: Any) -> None:
    level = state.forward_level
    moving = [t._tangent_at(level) for t in tensors]
    levels = state.forward_level, state.outer_forward_levels
    try:
        outer = to_outer_forward_level()
        if outer >= 0:
            _along(result, tensors, again)
        if any(t is not None for t in moving):
            result._set_tangent(level, again(*moving))
    finally:
        state.forward_level, state.outer_forward_levels = levels


def _over(chain: ViewChain, n: int | None) -> ViewChain:
    return chain if n is None else chain.over_batch(n)


def replay(grad: Tensor, chain: ViewChain) -> Tensor:
    """`chain.replay`, recorded."""
    if grad._level is not None:
        out = grad._interpreter.lift(lambda n, value: replay(value, _over(chain, n)), grad)
    else:
        out = from_array(chain.replay(grad._read()))
    return record_linear(
        out, (grad,), lambda: chain_node("ReplayBackward0", chain, gradient_edge(grad)), lambda t: replay(t, chain)
    )


def adjoint(grad: Tensor, chain: ViewChain) -> Tensor:
    """`chain.adjoint`, recorded."""
    if grad._level is not None:
        out = grad._interpreter.lift(lambda n, value: adjoint(value, _over(chain, n)), grad)
    else:
        out = from_array(chain.adjoint(grad._read()))

    def node() -> Node:
        made = _Replay()
        made.chain = chain
        return wire(made, (gradient_edge(grad),), (InputMetadata(chain.root_shape, chain.root_dtype),))

    return record_linear(out, (grad,), node, lambda t: adjoint(t, chain))


def write_back(base: Tensor, chain: ViewChain, new: Tensor | None) -> Tensor:
    """`chain.write_back`, recorded; `new` None stands for zeros."""
    if new is None:
        new = from_array(beside(zeros(chain.shape, chain.dtype), base._held()))
    if base._level is not None or new._level is not None:
        interpreter = (new if base._level is None else base)._interpreter
        out = interpreter.lift(lambda n, whole, part: write_back(whole, _over(chain, n), part), base, new)
    else:
        out = from_array(chain.write_back(base._read(), new._read()))

    def node() -> Node:
        made = _WriteBack()
        made.chain = chain
        edges = gradient_edge(base), gradient_edge(new)
        return wire(made, edges, (InputMetadata(chain.root_shape, chain.root_dtype),))

    def along(moving: Tensor | None, part: Tensor | None) -> Tensor:
        if moving is None:
            moving = from_array(beside(zeros(chain.root_shape, chain.root_dtype), base._held()))
        return write_back(moving, chain, part)

    return record_linear(out, (base, new), node, along)
