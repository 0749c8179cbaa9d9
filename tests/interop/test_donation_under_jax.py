"""Writes and backward of large tensors within JAX's transformations: a buffer that JAX keeps is never given up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad

N = 32768  # above the size from which backward reuses a gradient's memory


def written(x):
    """Write a tracer into a concrete tensor, through a view too."""
    w = xgrad.ones(N, dtype=xgrad.float64)
    w.mul_(x)
    w[: N // 2].add_(x * x)
    return (w * w).mean()


def written_functionally(x):
    w = jnp.ones(N) * x
    w = w.at[: N // 2].add(x * x)
    return (w * w).mean()


def kept(x):
    """Write, without a tracer, to a tensor whose array JAX keeps for its own backward."""
    w = xgrad.ones(N, dtype=xgrad.float64).mul_(3)
    y = w * x
    w.add_(1)
    z = w * x.square()
    w.zero_()
    return (y + z).mean()


def kept_functionally(x):
    return (3 * x + 4 * x**2) * 1.0


def differentiated(x):
    """Call backward, which donates gradients, on large tensors inside."""
    w = xgrad.ones(N, dtype=xgrad.float64, requires_grad=True)
    ((w * x).sin().exp() * x + w * w).sum().backward()
    return w.grad.mul_(x).mean()


def differentiated_functionally(x):
    w = jnp.ones(N)
    return (jax.grad(lambda w: (jnp.exp(jnp.sin(w * x)) * x + w * w).sum())(w) * x).mean()


FUNCTIONS = {
    "writes": (written, written_functionally),
    "writes of what JAX keeps": (kept, kept_functionally),
    "backward": (differentiated, differentiated_functionally),
}
TRANSFORMS = {
    "jit": jax.jit,
    "grad": jax.grad,
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](jnp.float64(1.0))[0],
    "jacrev": jax.jacrev,
    "jacfwd": jax.jacfwd,
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](jnp.float64(1.0)),
    "hessian": jax.hessian,
    "vmap of grad": lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, 2 * x])),
}


@pytest.mark.exhaustive
@pytest.mark.one_in(32)
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize(("ours", "theirs"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_transformations_of_writes_and_backward_agree_with_the_functional_form(ours, theirs, transform):
    x = jnp.float64(0.7)
    for _ in range(2):  # the second call has its programs
        np.testing.assert_allclose(transform(xgrad.to_jax(ours))(x), transform(theirs)(x), rtol=1e-10)


def test_a_vjp_can_be_pulled_back_again_after_other_writes():
    _, pull = jax.vjp(xgrad.to_jax(kept), jnp.float64(0.7))
    first = pull(jnp.float64(1.0))[0]
    for _ in range(3):
        xgrad.ones(N, dtype=xgrad.float64).mul_(5).add_(1)
    assert pull(jnp.float64(1.0))[0] == first == pytest.approx(3 + 8 * 0.7)


def test_the_programs_stay_in_place_outside_of_transformations():
    jax.grad(xgrad.to_jax(written))(jnp.float64(0.7))
    w = xgrad.ones(N, dtype=xgrad.float64).mul_(2)
    before = w._read().unsafe_buffer_pointer()
    w.mul_(3)
    w.mul_(3)
    assert w._read().unsafe_buffer_pointer() == before
