"""What recorded gradients depend on: requires_grad of higher derivatives, and what the program tells."""

import jax.numpy as jnp
import numpy as np
import pytest

from xgrad.ops.dependence import dependence

from ..oracle import as_torch, leaf

FUNCTIONS = {
    "square": lambda T, x, y: x * x,
    "linear": lambda T, x, y: 3 * x + y.t(),
    "product with a constant": lambda T, x, y: x * x * y.detach(),
    "matrix product with a constant": lambda T, x, y: (x @ y.detach()) * x,
    "relu": lambda T, x, y: T.relu(x) * T.relu(x),
    "exponential": lambda T, x, y: x.exp() + y,
    "mean of squares": lambda T, x, y: ((x - y) * (x - y)).mean(0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_higher_derivatives_require_grad_where_they_depend_on_something(name):
    def program(T):
        x, y = leaf(T, 2, 2), leaf(T, 2, 2, seed=1)
        value = FUNCTIONS[name](T, x, y)
        found = []
        for _ in range(4):
            if value is None or not value.requires_grad:
                break
            value, other = T.autograd.grad(value.sum(), (x, y), create_graph=True, allow_unused=True)
            found += [None if g is None else (g.requires_grad, g.detach()) for g in (value, other)]
        return found

    as_torch(program)


@pytest.mark.parametrize("function", [lambda x: x**3, lambda x: x.relu()])
def test_zeros_are_differentiated_as_far_as_by_torch(function):
    def program(T):
        x = leaf(T, 4)
        value, found = function(x), []
        for _ in range(2 if "relu" in function.__code__.co_names else 4):
            (value,) = T.autograd.grad(value.sum(), x, create_graph=True)
            found.append(value.detach())
        return found

    as_torch(program)


def test_a_program_tells_what_its_results_depend_on():
    def function(a, b, missing, number, c):
        unused = jnp.sin(c) * number
        return a * 2, jnp.where(b > 0, a, 1.0), jnp.zeros_like(unused)

    a = np.zeros(3)
    assert dependence(function, [a, a, None, 2.0, a]) == (True, True, False, False, False)
    assert dependence(lambda a, b: (jnp.ones(2), 1.0), [a, a]) == (False, False)
    assert dependence(lambda a, b: b, [a, a]) == (False, True)
