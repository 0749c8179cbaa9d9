"""Checks for `xgrad conform` that a training step is right eagerly, with a compiled backward, compiled, and lazily.

The step writes rows of a state in place, has a hook and a branch on a dtype; its reference is the same step on the CPU
in float64 (complex128).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.backward import grad
from ..autograd.compiled_backward import compiled_backward
from ..base.limits import x64_for_now
from ..compiler import compile as compiled
from ..dispatch.tables import FUNCTIONS
from ..execution.lazily import lazy
from ..ops.create.from_data import tensor
from ..tensor import Tensor
from .cases import like
from .execution import Place, values
from .measure import compare, wide
from .records import Check

zeros: Any = FUNCTIONS[""]["zeros"]


def step(w: Tensor, u: Tensor, x: Tensor) -> list[Tensor]:
    """A recurrent network over three times, whose states are rows of one tensor; the loss and its gradients."""
    states = zeros((4, *x.shape[1:]), dtype=x.dtype, device=x.device)
    h = states[0].clone()
    for t in range(3):
        h = (h @ u + x[t] @ w).tanh()
        states[t + 1].copy_(h)
    states[1:].mul_(0.5)
    states.register_hook(lambda g: g * 2)
    loss = (states * states.conj()).sum()
    loss = loss.real if x.is_complex() else loss
    gradients: Any = grad(loss, (w, u))
    return [loss, *gradients]


def _lazily(*leaves: Tensor) -> list[Tensor]:
    with lazy():
        return step(*leaves)


def _by_program(*leaves: Tensor) -> list[Tensor]:
    with compiled_backward():
        return step(*leaves)


MODES: dict[str, Callable[..., list[Tensor]]] = {
    "eager": step, "compiled backward": _by_program, "xgrad.compile": lambda *leaves: compiled(step)(*leaves),
    "lazy": _lazily,
}  # fmt: skip


def _inputs(dtype: np.dtype) -> list[np.ndarray]:
    shapes = (3, 3), (3, 3), (3, 2, 3)
    return [(0.5 * wide(like(np.empty(shape, dtype), i))).astype(dtype) for i, shape in enumerate(shapes)]


def trained(name: str, place: Place, dtype: np.dtype) -> list[Check]:
    """Run the step twice: the second time everything is compiled."""
    arrays = _inputs(dtype)
    with x64_for_now():
        w, u, x = [tensor(wide(a), device="cpu") for a in arrays]
        expected = values(step(w.requires_grad_(), u.requires_grad_(), x))
    checks, factor = [], place.factor(dtype)
    for which in ("first run", "second run"):
        w, u, x = place.tensors(arrays)
        ours = values(MODES[name](w.requires_grad_(), u.requires_grad_(), x))
        checks.append(compare(f"loss, {which}", ours[:1], expected[:1], dtype, factor))
        checks.append(compare(f"gradients, {which}", ours[1:], expected[1:], dtype, factor))
    return checks
