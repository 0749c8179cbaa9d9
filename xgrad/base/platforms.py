"""The platform for which a program is made: JAX's default one, or the one of a block, a chip that is not here.

Invariant: all that chooses between forms of a program asks `traced_for()`, while it is traced.  A block's platform is
part of the key of JAX's caches, so no program that was traced for one platform serves another.
"""

import functools
from typing import Any

import jax

# The platforms whose devices have strides.  XLA gives them to none of its own, a declared backend may.
STRIDED: set[str] = set()

_of_block: Any = jax.make_user_context()


@functools.cache
def default_platform() -> str:
    """Return where JAX computes by default: "cpu", "gpu" or "tpu"."""
    return jax.default_backend()


def traced_for() -> str:
    """Return the platform whose compiler is given what is traced now: "cpu", "gpu" or "tpu"."""
    return _of_block.value or default_platform()


def tracing_for(platform: str) -> Any:
    """Return a block in which traces are made for a platform, whether it is here or not; for this thread."""
    return _of_block(platform)
