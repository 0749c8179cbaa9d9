"""The rows of `xgrad.interop`: what joining xgrad to JAX's libraries costs, against the library alone."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import xgrad

from .ratios import Row, Timed
from .workloads import arrays, leaves, normal

INTEROP = "interop"


def call_of_jax_function(side: int) -> Timed:
    """A recorded call of a JAX function of two arrays, and the jitted function."""
    values = [normal(side, side), normal(side, side)]

    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.tanh(x) * y

    ours, theirs = xgrad.from_jax(function), jax.jit(function)
    tensors, inputs = leaves(values), arrays(values)
    return Timed(lambda: ours(*tensors), lambda: theirs(*inputs))


# ---------------------------------------------------------------- an optimizer's step

PARAMETERS = [normal(64, 64) if i % 2 else normal(64) for i in range(200)]


def adamw_step() -> Callable[[], Any]:
    """`Optimizer.step` on the gradients of a loss."""
    import optax

    from xgrad.interop.optax import Optimizer

    params = leaves(PARAMETERS)
    sum(((p * p).sum() for p in params), xgrad.zeros(())).backward()
    optimizer = Optimizer(params, optax.adamw(1e-3))

    def step() -> Any:
        optimizer.step()
        return params

    return step


def adamw_step_by_optax() -> Callable[[], Any]:
    """The same as one jitted and donated function."""
    import optax

    tx = optax.adamw(1e-3)
    params, grads = arrays(PARAMETERS), [2 * p for p in arrays(PARAMETERS)]
    state = tx.init(params)

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(params: list, state: Any, grads: list) -> Any:
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    def step() -> Any:
        nonlocal params, state
        params, state = update(params, state, grads)
        return params

    return step


# ---------------------------------------------------------------- the rows

ROWS = [
    Row(
        "from_jax", INTEROP, "from_jax, 4×4, recorded", "the jitted function",
        lambda: call_of_jax_function(4), 1.7,
    ),
    Row(
        "from_jax_1e6", INTEROP, "from_jax, 1e6 elements, recorded", "the jitted function",
        lambda: call_of_jax_function(1000), 1.02,
    ),
    Row(
        "optimizer_step", INTEROP, "Optimizer.step, AdamW, 200 parameters", "jitted, donated optax",
        lambda: Timed(adamw_step(), adamw_step_by_optax(), tolerance=1e-5), 1.3, 1.1, needs="optax",
    ),
]  # fmt: skip
