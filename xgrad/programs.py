"""Programs that have a name: `jax.jit`, of which the compile cache keeps executables for the next process (kept.py)."""

from collections.abc import Callable
from typing import Any

import jax

from .limits import checked

# Gives what is called in place of (the jitted function, its name); None while the compile cache is off.
keep: Callable[[Any, Any], Callable] | None = None


def jit_placed(function: Callable, where: Any, *, donate: bool) -> Callable:
    """`jax.jit(function)` whose result is sharded as `where` says; with `donate` it takes the first argument's memory.

    It has no name: the compile cache keeps programs of one device.
    """
    return jax.jit(checked(function), donate_argnums=(0,) if donate else (), out_shardings=where, keep_unused=True)


def jit_named(
    function: Callable, name: Any, *, donate: bool = False, keep_unused: bool = False, converts: bool = False
) -> Callable:
    """`jax.jit(function)`; with `donate` the result takes the first argument's memory.

    `name`: what no other function of xgrad has, in any process; see `kept.told`.  While the compile cache is off only a
    trace looks at it, and no call is slower.  `converts`: see `limits.checked`, through which all programs pass.
    """
    function = checked(function, name, converts=converts)
    jitted = jax.jit(function, donate_argnums=(0,) if donate else (), keep_unused=keep_unused)
    return jitted if keep is None else keep(jitted, (name, donate))
