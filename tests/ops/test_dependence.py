"""What recorded gradients depend on: requires_grad of higher derivatives, and what the program tells."""

import jax.numpy as jnp
import numpy as np
import pytest

from xgrad.dispatch.dependence import dependence

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


@pytest.mark.one_in(3)
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
    assert dependence(function, [a, a, None, 2.0, a])[0] == (True, True, False, False, False)
    assert dependence(function, [a, a, None, 2.0, a], masked=True)[0] == (True, False, False, False, False)
    assert dependence(lambda a, b: (jnp.ones(2), 1.0), [a, a])[0] == (False, False)
    assert dependence(lambda a, b: (b, a, a + b), [a, a])[1] == [(False, True), (True, False), (True, True)]


CONSTANT = {
    "amax": lambda T, x, y: x.amax(0),
    "max": lambda T, x, y: x.max(),
    "max along a dimension": lambda T, x, y: x.max(0).values,
    "maximum": lambda T, x, y: T.maximum(x, y),
    "fmin": lambda T, x, y: T.fmin(x, y),
    "clamp": lambda T, x, y: x.clamp(-0.5, 0.5),
    "clamp between tensors": lambda T, x, y: x.clamp(y, y + 1),
    "quantile": lambda T, x, y: x.quantile(0.4),
    "copy_": lambda T, x, y: T.zeros(2, 2, dtype=T.float64).copy_(x),
    "copy_ over a product": lambda T, x, y: (x * y).copy_(x),
    "remainder": lambda T, x, y: x.remainder(y),
    "copysign": lambda T, x, y: T.copysign(x, y),
    "addmm": lambda T, x, y: T.addmm(x, y, y.detach()),
    "linear": lambda T, x, y: T.nn.functional.linear(x, y, x[0]),
    "bias": lambda T, x, y: T.nn.functional.linear(x.detach() * 2, y, x[0]),
    "addcmul": lambda T, x, y: T.addcmul(x, y, y),
    "scatter_reduce": lambda T, x, y: x.scatter_reduce(0, T.tensor([[0, 1]]), y, "amax"),
    "nan_to_num": lambda T, x, y: x.nan_to_num(),
    "nansum": lambda T, x, y: x.nansum(),
    "relu": lambda T, x, y: x.relu() * y,
    "max_pool": lambda T, x, y: T.nn.functional.max_pool2d(x[None], 2),
    "abs": lambda T, x, y: x.abs(),
    "pow": lambda T, x, y: x**2 + y**3,
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", CONSTANT)
def test_a_gradient_requires_grad_where_it_does_in_torch(name):
    def program(T):
        x, y = leaf(T, 2, 2), leaf(T, 2, 2, seed=1)
        found = T.autograd.grad(CONSTANT[name](T, x, y).sum(), (x, y), create_graph=True, allow_unused=True)
        return [None if g is None else (g.requires_grad, g.detach()) for g in found]

    as_torch(program)
