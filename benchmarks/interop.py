"""The rows of `xgrad.interop`: what joining xgrad to JAX's libraries costs, against the library alone."""

import jax
import jax.numpy as jnp

import xgrad
from xgrad.cli.ratios import Row, Timed
from xgrad.cli.workloads import arrays, leaves, normal

INTEROP = "interop"


def call_of_jax_function(side: int) -> Timed:
    """A recorded call of a JAX function of two arrays, and the jitted function."""
    values = [normal(side, side), normal(side, side)]

    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.tanh(x) * y

    ours, theirs = xgrad.from_jax(function), jax.jit(function)
    tensors, inputs = leaves(values), arrays(values)
    return Timed(lambda: ours(*tensors), lambda: theirs(*inputs))


ROWS = [
    Row(
        "from_jax", INTEROP, "from_jax, 4×4, recorded", "the jitted function",
        lambda: call_of_jax_function(4), 1.7,
    ),
    Row(
        "from_jax_1e6", INTEROP, "from_jax, 1e6 elements, recorded", "the jitted function",
        lambda: call_of_jax_function(1000), 1.02,
    ),
]  # fmt: skip
