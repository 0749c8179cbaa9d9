"""apart, over_one: keep XLA's CPU compiler from fusing computations that are slower in one loop."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def apart(function: Callable[..., Any], *arrays: Any) -> Any:
    """Call `function(*arrays)` so that on a CPU it is not fused with the computations around it.

    Sums over rows and sums over columns of the same products, in one fusion, take three times as long as on their own
    (jaxlib 0.10).  Barriers are gone before XLA fuses; a branch is not, here one that is always taken, which the
    barrier hides from the passes before.  A GPU would wait for the condition, so there the branch is left out.
    """

    def branch(*arrays: Any) -> Any:
        always = jax.lax.optimization_barrier(jnp.bool_(True))
        return jax.lax.cond(always, function, function, *arrays)

    return jax.lax.platform_dependent(*arrays, cpu=branch, default=lambda *arrays: function(*arrays))


def over_one(array: Any, one: Any) -> Any:
    """Divide each element by `(bits | one) != 0`, a 1 that XLA cannot fold where `one` is an operand.

    XLA's CPU compiler does not repeat operations that it takes to be expensive, as a division is: the array is computed
    once, where it stands.  For dtypes of floating-point numbers and integers that NumPy knows.
    """
    bits = jax.lax.bitcast_convert_type(array, jnp.dtype(f"uint{8 * array.dtype.itemsize}"))
    return jax.lax.div(array, ((bits | one.astype(bits.dtype)) != 0).astype(array.dtype))
