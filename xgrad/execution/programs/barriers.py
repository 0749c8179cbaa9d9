"""apart, held: keep XLA from fusing two computations into one loop, where the loop would be slower or copy an array."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ...base.platforms import traced_for


def apart(function: Callable[..., Any], *arrays: Any) -> Any:
    """Call `function(*arrays)` so that XLA does not fuse it with the computations around it.

    Sums over rows and sums over columns of the same products, in one fusion on a CPU, take three times as long as on
    their own (jaxlib 0.10).  The CPU's compiler removes barriers before it fuses; a branch stays, here one that is
    always taken, which the barrier hides from the passes before.  A chip would wait for the condition, and its compiler
    keeps barriers.
    """

    def branch(*arrays: Any) -> Any:
        always = jax.lax.optimization_barrier(jnp.bool_(True))
        return jax.lax.cond(always, function, function, *arrays)

    def barrier(*arrays: Any) -> Any:
        return jax.lax.optimization_barrier(function(*arrays))

    return jax.lax.platform_dependent(*arrays, cpu=branch, default=barrier)


def held(part: Any, one: Any) -> Any:
    """Return what was read of an array that is written afterwards, computed once, where it stands.

    XLA would fuse such a read into all its users, some of them after the write, and copy the array for them: k writes
    into N elements would cost O(k N).  A barrier prevents it, but not on a CPU, whose compiler removes barriers before
    it fuses.  It does not repeat operations that it takes to be expensive, such as a division; `one` is an operand.

    64 writes into 4 MB with backward, by the compiler for a v5e: 581 MB and 136 MB temporary; held, 32 MB and none.
    """
    if traced_for() != "cpu":
        return jax.lax.optimization_barrier(part)
    return over_one(part, one) if part.dtype.kind in "fiu" else apart(lambda array: array, part)


def over_one(array: Any, one: Any) -> Any:
    """Divide each element by `(bits | one) != 0`, a 1 that XLA cannot fold where `one` is an operand.

    XLA's CPU compiler does not repeat operations that it takes to be expensive, as a division is: the array is computed
    once, where it stands.  For dtypes of floating-point numbers and integers that NumPy knows.
    """
    bits = jax.lax.bitcast_convert_type(array, jnp.dtype(f"uint{8 * array.dtype.itemsize}"))
    return jax.lax.div(array, ((bits | one.astype(bits.dtype)) != 0).astype(array.dtype))
