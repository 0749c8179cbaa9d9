"""gradient, trapezoid, cumulative_trapezoid: values, derivatives, what is refused."""

import numpy as np
import pytest

from ..oracle import same_error
from ..traced import as_torch
from .derivatives import agree, numbers

X = numbers(3, 4)
ROWS, COLUMNS = np.array([-1.0, 0.5, 0.7]), np.array([0.0, 1.0, 3.0, 3.5])

SPACINGS = {
    "default": {},
    "distance": {"spacing": 0.5, "dim": 1},
    "distances": {"spacing": [0.5, 2.0], "dim": (1, 0), "edge_order": 2},
    "none": {"spacing": None, "dim": -1},
    "no dimension": {"dim": ()},
}


@pytest.mark.parametrize("name", SPACINGS)
def test_gradient(name):
    agree(lambda lib, x: lib.gradient(x, **SPACINGS[name]), X, forward=name != "no dimension")


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradient_at_given_places(edge_order):
    agree(lambda lib, x, r, c: lib.gradient(x, spacing=(r, c), edge_order=edge_order), X, ROWS, COLUMNS)


def test_gradient_of_integers_and_complex_numbers():
    as_torch(lambda T: T.gradient(T.arange(6).reshape(2, 3) ** 2))
    agree(lambda lib, x: lib.gradient(x, dim=1), X + 1j * X[::-1])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["trapezoid", "trapz", "cumulative_trapezoid"])
def test_integrals(name):
    agree(lambda lib, y: [getattr(lib, name)(y), getattr(lib, name)(y, dx=0.5, dim=0)], X)
    agree(lambda lib, y, x: getattr(lib, name)(y, x), X, COLUMNS)
    agree(lambda lib, y, x: getattr(lib, name)(y, x=x, dim=0), X, numbers(3, 1))


def test_integrals_of_integers_and_of_nothing():
    as_torch(lambda T: [T.trapezoid(T.arange(4)), T.cumulative_trapezoid(T.arange(4), T.tensor([0, 1, 3, 4]))])
    as_torch(lambda T: [T.trapezoid(T.ones(2, 0)), T.cumulative_trapezoid(T.ones(2, 0)), T.trapezoid(T.ones(1))])


REFUSED = {
    "number of distances": (lambda T, x: T.gradient(x, spacing=[1.0]), "gradient expected spacing to be"),
    "distances and dims": (lambda T, x: T.gradient(x, spacing=[1.0, 2.0], dim=0), "gradient expected spacing to"),
    "edge_order": (lambda T, x: T.gradient(x, edge_order=3), "only supports edge_order=1 and edge_order=2"),
    "too few": (lambda T, x: T.gradient(x[:1]), r"each dimension size to be at least edge_order\+1"),
    "dims twice": (lambda T, x: T.gradient(x, dim=(0, 0)), "dim 0 appears multiple times"),
    "bools": (lambda T, x: T.gradient(x > 0), "Subtraction, the `-` operator, with two bool tensors"),
    "a number": (lambda T, x: T.gradient(x[0, 0], dim=0), "specified as 0 but tensor has no dimensions"),
    "places": (lambda T, x: T.trapezoid(x, x[0, :2]), "There must be one `x` value for each sample point"),
    "bools as samples": (lambda T, x: T.cumulative_trapezoid(x > 0), "received a bool input for"),
    "complex distance": (lambda T, x: T.trapezoid(x, dx=1j), "only support dx as a real number"),
    "places and distance": (lambda T, x: T.trapezoid(x, x, dx=1.0), "trapezoid"),
    "shapes": (lambda T, x: T.trapezoid(x[0], x), "size of tensor a"),
    "an integral of a number": (lambda T, x: T.trapezoid(x[0, 0]), "specified as -1 but tensor has no dimensions"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    program, match = REFUSED[name]
    same_error(lambda T: program(T, T.tensor(X)), match)
