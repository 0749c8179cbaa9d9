"""Stand-ins: makes the tensors with which func.grad, vjp and jvp replace a function's arguments, to differentiate it.

Invariant: a stand-in has the value and the tangents of its tensor and shares no storage with it.  Its history is one
node, which leads to that tensor if it requires grad, and else nowhere.  So a gradient that is computed with
`create_graph` is differentiable with respect to the tensor, and nothing else of the transform shows outside.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ..autograd.backward import grad
from ..autograd.grad_mode import inference_mode
from ..base.dtypes import INEXACT
from ..batching.batched_tensor import BatchedTensor, wrap
from ..config import block, state
from ..engine.arithmetic import Arithmetic
from ..engine.edges import GradientEdge, gradient_edge
from ..engine.node import InputMetadata, Node, wire
from ..tensor import Tensor, from_array


class StandInBackward(Node):
    """The node of a stand-in: the gradient goes on to the tensor that it stands for, if that requires one."""

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        return (grads[0],) * len(self.next_edges)


def stand_in(tensor: Tensor, always: bool = False) -> Tensor:
    """Return another tensor with this value, which shares nothing; differentiable with respect to `tensor`.

    It requires grad if `tensor` does and gradients are recorded, or `always`.
    """
    if isinstance(tensor, BatchedTensor):
        out: Tensor = tensor._holding(stand_in(tensor._value))
    else:
        out = from_array(tensor._read())
        out._owned = False
    leads = state.grad_enabled and tensor.requires_grad
    if leads or always:
        edges = (gradient_edge(tensor),) if leads else ()
        node = wire(StandInBackward(), edges, (InputMetadata(tuple(tensor.shape), tensor._dtype),))
        out._grad_fn, out._requires_grad = node, True
    if tensor._tangents:
        out._tangents = {level: stand_in(tangent) for level, tangent in tensor._tangents.items()}
    return out


def at_innermost(tensor: Tensor) -> Tensor:
    """Return the tensor as one of the innermost vmap, so that an operation on it is done to each entry."""
    levels = state.vmap_levels
    return tensor if not levels or tensor._level is levels[-1] else wrap(tensor, levels[-1], False)


def differentiable(tensor: Any) -> Tensor:
    """Return a stand-in that requires grad.  Raises `ValueError` or `RuntimeError` for a value without a gradient."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(tensor)}")
    if tensor._dtype not in INEXACT:
        raise RuntimeError(
            f"only Tensors of floating point and complex dtype can require gradients, not {tensor.dtype.name}"
        )
    return stand_in(at_innermost(tensor), always=True)


def requires_grad_below(tensor: Any) -> bool:
    """Return True if a tensor, or one below its entries, requires grad."""
    while isinstance(tensor, Tensor):
        if tensor.requires_grad:
            return True
        tensor = tensor._value
    return False


class Targets:
    """The stand-ins that a transform differentiates with respect to."""

    def __init__(self, tensors: Iterable[Any], outer: bool) -> None:
        enabled, state.grad_enabled = state.grad_enabled, outer  # no_grad outside: no way back from a stand-in
        try:
            self.tensors: list[Tensor] = [differentiable(t) for t in tensors]
        finally:
            state.grad_enabled = enabled
        # Read now: an in-place write would give a tensor another edge.
        self.edges: list[GradientEdge] = [GradientEdge(*gradient_edge(t)) for t in self.tensors]
        self._ways_out = {edge.node for edge in self.edges if edge.node.next_edges}

    def elsewhere(self, outputs: Iterable[Tensor]) -> bool:
        """Return True if the outputs have a history besides the stand-ins', so that gradients have to be recorded."""
        stack: list[Any] = []
        seen_in = list(outputs)
        while seen_in:
            t = seen_in.pop()
            if requires_grad_below(t._value):  # the outputs show a history below the entries
                return True
            if t.requires_grad:
                if t.grad_fn is None:
                    return True
                stack.append(t.grad_fn)
            # And the history of their tangents, unless that is a stand-in's too.
            seen_in.extend((t._tangents or {}).values())
        seen = set(stack)
        while stack:
            node = stack.pop()
            if node.is_accumulator or node in self._ways_out:
                return True
            for child, _ in node.next_edges:
                if child is not None and child not in seen:
                    seen.add(child)
                    stack.append(child)
        return False

    def gradients(self, outputs: list[Any], grads: list[Any] | None, retain: bool, create: bool) -> list[Tensor]:
        """Return the gradients with respect to the stand-ins; zeros where there is none."""
        grads = [None] * len(outputs) if grads is None else grads
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
        if not pairs:
            found: Any = (None,) * len(self.edges)
        else:
            found = grad(
                [o for o, _ in pairs], self.edges, [g for _, g in pairs], retain_graph=retain, create_graph=create,
                allow_unused=True,
            )  # fmt: skip
        return [t.detach().new_zeros(t.shape) if g is None else g for t, g in zip(self.tensors, found, strict=True)]


def outside(tensor: Tensor, kept: bool) -> Tensor:
    """Return a result for the transform's caller: with its history if that leads out of the transform."""
    if kept or not tensor.requires_grad:
        return tensor
    if isinstance(tensor, BatchedTensor):
        out: Tensor = tensor._holding(tensor._value)
        out._tangents = tensor._tangents
        return out
    out = tensor.detach()
    out._tangents = tensor._tangents
    return out


def modes_now() -> tuple[Any, ...]:
    """Return the modes that a transform switches: number of transforms, inference and grad mode, forward levels."""
    return (
        state.transforms, state.inference, state.grad_enabled, state.grad_in_inference,
        state.forward_level, state.outer_forward_levels,
    )  # fmt: skip


def leave_inference() -> None:
    """Leave inference mode: a transform saves its tensors, or gives them tangents."""
    if state.inference:
        inference_mode(False).__enter__()


@block
def transform() -> Iterator[bool]:
    """Record gradients within the block, and refuse `backward()`; give True if they were recorded before."""
    modes = modes_now()
    outer = state.grad_enabled
    try:
        state.transforms += 1
        leave_inference()
        state.grad_enabled = True
        yield outer
    finally:
        state.transforms, state.inference, state.grad_enabled, state.grad_in_inference = modes[:4]
        if modes[1]:
            state.forward_level, state.outer_forward_levels = modes[4:]
