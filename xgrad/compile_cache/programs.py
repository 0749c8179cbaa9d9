"""Functions as programs: `jax.jit` of functions that pass through `limits.checked`.

JAX's cache finds a program by its text, which begins with the function's name.  So a program has a name that is the
same in each process: that of the function, also for a partial function, which has none (`checked`).
"""

from collections.abc import Callable
from typing import Any

import jax

from ..limits import checked


def jit_checked(
    function: Callable[..., Any],
    facts: Any = (),
    *,
    donate: bool = False,
    keep_unused: bool = False,
    converts: bool = False,
) -> Callable[..., Any]:
    """Return `jax.jit(function)`; with `donate` the result is in the first argument's memory.

    `facts`, `converts`: see `limits.checked`.
    """
    function = checked(function, facts, converts=converts)
    return jax.jit(function, donate_argnums=(0,) if donate else (), keep_unused=keep_unused)


def jit_placed(function: Callable[..., Any], where: Any) -> Callable[..., Any]:
    """Return `jax.jit(function)` that runs on its first argument's devices; its result has the sharding `where`."""
    return jax.jit(checked(function), out_shardings=where, keep_unused=True)
