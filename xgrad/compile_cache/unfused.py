"""apart: keeps XLA's CPU compiler from fusing computations that are slower in one loop."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def apart(function: Callable[..., Any], *arrays: Any) -> Any:
    """Call `function(*arrays)` so that on a CPU it is not fused with the computations around it.

    Sums over rows and sums over columns of the same products, in one fusion, take three times as long as on their own
    (jaxlib 0.10).  Barriers are gone before XLA fuses; a branch is not, here one that is always taken, which the
    barrier hides from the passes before.  A GPU would wait for the condition: there is no branch there.
    """

    def branch(*arrays: Any) -> Any:
        always = jax.lax.optimization_barrier(jnp.bool_(True))
        return jax.lax.cond(always, function, function, *arrays)

    return jax.lax.platform_dependent(*arrays, cpu=branch, default=lambda *arrays: function(*arrays))
