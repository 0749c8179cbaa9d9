"""What is kept from being fused stays a branch of its own in the program of a CPU, and computes the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xgrad.execution.programs.barriers import apart


def products(x, y):
    return (x * y).sum(0)


X = jnp.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("mapped", [False, True])
def test_apart_is_a_branch_of_its_own(mapped):
    def both(x, y):
        return (x * y).sum(1), apart(products, x, y)

    function = jax.vmap(both) if mapped else both
    x = jnp.stack([X, X + 1]) if mapped else X
    compiled = jax.jit(function).lower(x, x).compile()
    assert compiled.as_text().count(" conditional(") == 1
    np.testing.assert_allclose(compiled(x, x)[1], (x * x).sum(-2))


@pytest.mark.exhaustive
def test_apart_is_differentiable():
    def loss(x, y):
        return (apart(products, x, y) ** 2).sum()

    expected = jax.grad(lambda x, y: (products(x, y) ** 2).sum())(X, X + 1)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(X, X + 1), expected)
    np.testing.assert_allclose(jax.grad(loss)(X, X + 1), expected)
