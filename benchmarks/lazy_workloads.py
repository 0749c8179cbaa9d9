"""Workloads in a lazy block, beside the same run eagerly; and what lazy metrics count of them."""

from collections.abc import Callable
from typing import Any

import xgrad

from .ratios import Timed
from .workloads import leaves, mlp_step, mlp_values

# No other row has these layers: a program that an earlier row has compiled would not be counted.
_LAYERS = (64, 48, 10)


def lazily(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a lazy block around each call."""
    return xgrad.lazy()(function)


def lazy_and_eager(one: Callable[[], Any], other: Callable[[], Any] | None = None) -> Timed:
    """Compare a function in a lazy block with eager; `other` is a second one if a call changes its tensors."""
    return Timed(lazily(one), other or one, tolerance=1e-3)


def _steps(batches: tuple[int, ...]) -> Any:
    """Return the metrics of lazy steps with batches of these sizes."""
    # Copies: the first write into memory that NumPy may have is another program than the next, which donates.
    weights = [w.detach().clone().requires_grad_() for w in leaves(mlp_values(_LAYERS, 1)[0])]
    step = lazily(mlp_step)
    xgrad.lazy.reset()
    for batch in batches:
        step(xgrad, *weights, *map(xgrad.tensor, mlp_values(_LAYERS, batch)[1]))
    return xgrad.lazy.metrics()


def lazy_launches() -> int:
    """Return how many programs 10 lazy steps launch."""
    return _steps((32,) * 10).launches


def lazy_programs() -> int:
    """Return how many programs lazy steps compile, over 5 batch sizes, twice each."""
    return len(_steps((8, 16, 24, 40, 48) * 2).programs)
