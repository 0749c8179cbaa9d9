"""gradients_of: makes a function that returns another one's gradients; gradgradcheck passes it to gradcheck."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...tensor import Tensor
from ..backward import grad
from .numerical import placed
from .problem import differentiable, run

_SEED = 2  # for default output gradients: the same each time


def gradients_of(
    func: Callable[..., Any], inputs: tuple[Any, ...], grads: tuple[Any, ...] | None, gaps: bool
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function of inputs and output gradients that returns the input gradients, and its arguments."""
    if grads is None:
        random = np.random.default_rng(_SEED)
        grads = tuple(_random(random, x, gaps) for _, x in differentiable(run(func, inputs)))
    n = len(inputs)
    differentiated = [i for i, _ in differentiable((*inputs, *grads))]

    def gradients(*args: Any) -> tuple[Tensor, ...]:
        for i in differentiated:  # forward mode passes detached ones
            args[i].requires_grad_()
        outputs = [x for _, x in differentiable(run(func, args[:n]))]
        wanted = [args[i] for i in differentiated if i < n]
        found = grad(outputs, wanted, args[n:], create_graph=True, allow_unused=True)
        assert isinstance(found, tuple)
        return tuple(g for g in found if g is not None)

    return gradients, (*inputs, *grads)


def _random(random: Any, like: Tensor, gaps: bool) -> Tensor:
    """Return numbers between -1 and 1; with `gaps`, every second column of a tensor twice as wide."""
    shape = tuple(like.shape)
    gaps = gaps and like.numel() > 1
    wide = (*shape[:-1], 2 * shape[-1]) if gaps else shape
    values = random.uniform(-1, 1, wide)
    if like.is_complex():
        values = values + 1j * random.uniform(-1, 1, wide)
    made = placed(values.astype(like.dtype), like)
    return (made[..., ::2] if gaps else made).requires_grad_()
