"""Rows of `xgrad.interop`: one step of a small transformer, a module of Flax NNX or of Equinox, with AdamW.

xgrad's side is the module wrapped, `loss.backward()` and `interop.optax`, compiled; the other side is the step that the
framework's own guide writes, jitted, with its old arrays donated too.  Both give the loss; that they teach the same is
what tests/interop says.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import xgrad

from .ratios import Row, Timed
from .workloads import normal

WIDTH, HEADS, BLOCKS, BATCH, LENGTH = 128, 4, 2, 8, 64


def data() -> tuple[np.ndarray, np.ndarray]:
    """Inputs and what is to come out."""
    return normal(BATCH, LENGTH, WIDTH), normal(LENGTH, BATCH, WIDTH).transpose(1, 0, 2)


def taught(net: Any) -> Callable[[], Any]:
    """A compiled step of a wrapped module by the tape."""
    import optax

    optimizer = xgrad.interop.optax.Optimizer(net.parameters(), optax.adamw(1e-3))
    x, y = map(xgrad.tensor, data())

    @xgrad.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda: step(x, y)


def nnx_step() -> Timed:
    """NNX's own step takes `nnx.jit` and `nnx.Optimizer`."""
    import optax
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.before, self.between = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
            self.attend = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
            self.wide = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
            self.narrow = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = x + self.attend(self.before(x))
            return x + self.narrow(nnx.gelu(self.wide(self.between(x))))

    def made() -> Any:
        rngs = nnx.Rngs(0)
        return nnx.Sequential(*[Block(rngs) for _ in range(BLOCKS)])

    theirs = made()
    optimizer = nnx.Optimizer(theirs, optax.adamw(1e-3), wrt=nnx.Param)
    x, y = map(jnp.asarray, data())

    @nnx.jit(donate_argnums=(0, 1))
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda model: ((model(x) - y) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    return Timed(taught(xgrad.interop.flax.wrap(made())), lambda: step(theirs, optimizer, x, y))


def equinox_step() -> Timed:
    """Equinox's own step takes `eqx.filter_jit` and `eqx.filter_value_and_grad`."""
    import equinox as eqx
    import optax

    class Block(eqx.Module):
        before: eqx.nn.LayerNorm
        between: eqx.nn.LayerNorm
        attend: eqx.nn.MultiheadAttention
        mlp: eqx.nn.MLP

        def __init__(self, key: Any) -> None:
            first, second = jax.random.split(key)
            self.before, self.between = eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)
            self.attend = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=first)
            self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 4 * WIDTH, 1, activation=jax.nn.gelu, key=second)

        def __call__(self, x: Any) -> Any:
            h = jax.vmap(self.before)(x)
            x = x + self.attend(h, h, h)
            return x + jax.vmap(self.mlp)(jax.vmap(self.between)(x))

    class Blocks(eqx.Module):
        blocks: list

        def __init__(self) -> None:
            self.blocks = [Block(key) for key in jax.random.split(jax.random.key(0), BLOCKS)]

        def __call__(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return x

    tx = optax.adamw(1e-3)
    model = Blocks()
    ours = taught(xgrad.interop.equinox.wrap(model, function=lambda model, x: jax.vmap(model)(x)))
    state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    x, y = map(jnp.asarray, data())

    @eqx.filter_jit(donate="all-except-first")
    def step(batch: Any, model: Any, state: Any) -> Any:
        def loss_of(model: Any) -> Any:
            return ((jax.vmap(model)(batch[0]) - batch[1]) ** 2).mean()

        loss, grads = eqx.filter_value_and_grad(loss_of)(model)
        updates, state = tx.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, loss

    model = jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, model)  # ours has the first ones

    def once() -> Any:
        nonlocal model, state
        model, state, loss = step((x, y), model, state)
        return loss

    return Timed(ours, once)


ROWS = [
    Row("nnx_step", "interop", "transformer of NNX, AdamW", "nnx.jit of the same", nnx_step, 1.1, 1.02, "flax"),
    Row(
        "equinox_step", "interop", "transformer of Equinox, AdamW", "eqx.filter_jit of the same", equinox_step,
        1.1, 1.02, "equinox",
    ),
]  # fmt: skip
