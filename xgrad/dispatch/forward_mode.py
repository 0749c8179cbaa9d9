"""Forward mode: computes the tangents of an operator's results, and of tensors that are written in place."""

from collections.abc import Callable
from typing import Any

from ..base.dtypes import INEXACT
from ..config import INFERENCE_LEVEL, state, to_outer_forward_level
from ..engine import placement
from ..engine.saved_variable import snapshot
from ..tensor import Tensor, from_array, mark
from ..views.meta import PrimalMeta, chain_now
from ..views.storage import place_of
from .kernel import Kernel
from .view import view_along


def forward(kernel: Kernel, args: tuple[Any, ...], results: tuple[Any, ...], call: Callable[..., Any]) -> None:
    """Give the results their tangents, `jax.jvp` of the function at the arguments' tangents.

    In inference mode: make inference tensors of the results.  `call` runs the rule, an operator (call.py).
    """
    level = state.forward_level
    if level == INFERENCE_LEVEL:
        for result in results:
            mark(result)
        return
    tangents = [a._tangent_at(level) if isinstance(a, Tensor) else None for a in args]
    moving = kernel.differentiable and any(t is not None for t in tangents)
    levels = state.forward_level, state.outer_forward_levels
    try:
        outer = to_outer_forward_level()
        if outer >= 0:
            forward(kernel, args, results, call)
        if not moving:
            return
        # The primals without their tangents at this level: the rule is an ordinary operator, recorded in reverse mode,
        # and differentiated at the outer levels, like any other.
        rule = kernel.jvp(tuple(t is not None for t in tangents))
        operands = (*args, *(t for t in tangents if t is not None))
        if state.grad_enabled and any(isinstance(x, Tensor) and x.requires_grad for x in operands):
            # The rule may save more than the operator does: later writes must not change these values.
            operands = tuple(snapshot(x) if isinstance(x, Tensor) else x for x in operands)
        out = call(rule, operands, ())
    finally:
        state.forward_level, state.outer_forward_levels = levels
    constant = kernel.operator.constant
    for i, (result, tangent) in enumerate(zip(results, out if isinstance(out, tuple) else (out,), strict=True)):
        if result.dtype in INEXACT and i not in constant:
            result._set_tangent(level, tangent)


def write_tangents(self: Tensor, holder: Tensor) -> None:
    """Write tangents in place as the value was, so that views of them stay views."""
    level = state.forward_level
    levels = state.forward_level, state.outer_forward_levels
    try:
        outer = to_outer_forward_level()
        if outer >= 0:
            write_tangents(self, holder)
        new = holder._tangent_at(level)
        if new is None:
            return
        mine = self._tangent_at(level)
        if mine is not None:
            mine.copy_(new)
        else:
            tangent_through_base(self, new.to(self.dtype), level)
    finally:
        state.forward_level, state.outer_forward_levels = levels


def tangent_through_base(self: Tensor, new: Tensor, level: int) -> None:
    """Give a tensor a tangent.  A view's base gets one too, zero elsewhere, and the view's tangent is a view of it."""
    meta = self._view
    if meta is None or meta.__class__ is PrimalMeta:
        self._set_tangent(level, new)
        return
    whole = meta.base._tangent_at(level)
    if whole is None:
        zeros = placement.zeros(meta.base.shape, meta.base.dtype, place_of(meta.base._held()))
        whole = new._with_batch(from_array(zeros))
        meta.base._set_tangent(level, whole)
    tangent = view_along(whole, chain_now(meta), meta.name)
    tangent.copy_(new)
    self._set_tangent(level, tangent)
