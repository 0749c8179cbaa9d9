"""Tests a device's random numbers, for `xgrad conform`: a seed must give the same numbers again, and as on the CPU.

A backend that draws random bits by a generator of its own is compared with itself only.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..dispatch.tables import FUNCTIONS
from ..random import fork_rng, manual_seed
from ..tensor import Tensor
from .execution import Place, values
from .measure import compare
from .records import Check

SEED = 20
_public: dict[str, Any] = FUNCTIONS[""]


def _made(name: str, *args: Any) -> Callable[[Any, np.dtype], Tensor]:
    return lambda device, dtype: _public[name](*args, dtype=dtype, device=device)


def _filled(name: str, *args: Any) -> Callable[[Any, np.dtype], Tensor]:
    return lambda device, dtype: getattr(_public["zeros"](5, 3, dtype=dtype, device=device), name)(*args)


def _chosen(name: str, value: float, *args: Any) -> Callable[[Any, np.dtype], Tensor]:
    return lambda device, dtype: _public[name](_public["full"]((4, 3), value, dtype=dtype, device=device), *args)


# (how numbers are drawn, for which kinds of dtypes)
DRAWS: dict[str, tuple[Callable[[Any, np.dtype], Tensor], str]] = {
    "rand": (_made("rand", 5, 3), "fV"),
    "randn": (_made("randn", 5, 3), "fVc"),
    "randint": (_made("randint", -9, 9, (5, 3)), "i"),
    "randperm": (_made("randperm", 11), "i"),
    "bernoulli": (_chosen("bernoulli", 0.4), "fV"),
    "multinomial": (_chosen("multinomial", 0.5, 2), "fV"),
    "poisson": (_chosen("poisson", 2.5), "f"),
    "uniform_": (_filled("uniform_", -1.0, 2.0), "fV"),
    "normal_": (_filled("normal_", 1.0, 2.0), "fV"),
    "exponential_": (_filled("exponential_", 0.5), "fV"),
    "geometric_": (_filled("geometric_", 0.3), "fV"),
    "random_": (_filled("random_", 0, 90), "fi"),
}


def drawn(name: str, place: Place, dtype: np.dtype) -> list[Check]:
    """Draw twice from a seed on the device, and as often on the CPU."""
    draw = DRAWS[name][0]

    def numbers(device: Any) -> list[np.ndarray]:
        with fork_rng():
            manual_seed(SEED)
            return values([draw(device, dtype), draw(device, dtype)])

    ours, theirs = numbers(place.given), numbers("cpu")
    checks = [] if place.random else [compare("the CPU's", ours, theirs, dtype)]
    again = numbers(place.given)
    return [*checks, compare("again", again, ours, dtype)]
