"""Covariance, correlation, quantiles: values, derivatives, weights, NaN, what is refused."""

import numpy as np
import pytest
import torch

import xgrad

from ..lanes import eager_cases
from ..oracle import data, same_error
from ..traced import as_torch
from .derivatives import agree, numbers

X = numbers(3, 5)
COMPLEX = X + 1j * numbers(3, 5, seed=1)
FREQUENCIES, WEIGHTS = np.array([1, 2, 0, 3, 1]), np.array([0.5, 1.0, 0.2, 0.0, 2.0])
NAN = np.where(X > 1.5, np.nan, X)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("x", [X, COMPLEX, X[0]], ids=["real", "complex", "vector"])
def test_covariance_and_its_derivatives(x):
    agree(lambda lib, x: [lib.cov(x), x.cov(correction=0)], x)
    agree(lambda lib, x: lib.corrcoef(x), x)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("correction", [0, 1, 2])
def test_covariance_with_weights(correction):
    def program(lib, x, aweights):
        fweights = lib.tensor(FREQUENCIES)
        both = lib.cov(x, correction=correction, fweights=fweights, aweights=aweights)
        return both, lib.cov(x, correction=correction, fweights=fweights), x[0].cov(aweights=aweights)

    agree(program, X, WEIGHTS)


def test_covariance_of_integers_and_of_one_observation():
    as_torch(lambda T: [T.cov(T.arange(6).reshape(2, 3)), T.corrcoef(T.arange(6).reshape(2, 3))], rtol=1e-5)
    one = X[:, :1]
    as_torch(lambda T: T.cov(T.tensor(one), fweights=T.tensor([2])))
    as_torch(lambda T: T.cov(T.tensor(one), correction=0, aweights=T.tensor([2.0])))


def test_covariance_without_degrees_of_freedom_warns_and_divides_by_zero():
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        found = xgrad.cov(xgrad.tensor(X), correction=7)
    assert bool(found.isinf().all())


REFUSED = {
    "dims of cov": (lambda T, x: T.cov(x[None]), "two or fewer dimensions but got an input with 3"),
    "dims of corrcoef": (lambda T, x: T.corrcoef(x[None]), "two or fewer dimensions but got an input with 3"),
    "bools": (lambda T, x: T.corrcoef(x > 0), "bool dtype is not supported"),
    "frequencies": (lambda T, x: T.cov(x, fweights=T.tensor(WEIGHTS)), "fweights to have integral dtype"),
    "weights": (lambda T, x: T.cov(x, aweights=T.tensor(FREQUENCIES)), "aweights to have floating point dtype"),
    "a number of weights": (lambda T, x: T.cov(x, fweights=T.tensor([1, 2])), "same numel as there are observations"),
    "a matrix of weights": (lambda T, x: T.cov(x, aweights=x), "aweights to have one or fewer dimensions"),
    "negative": (lambda T, x: T.cov(x, aweights=T.tensor(-WEIGHTS)), "aweights cannot be negative"),
    "nothing": (lambda T, x: T.cov(x, fweights=T.tensor(FREQUENCIES * 0)), "weights sum to zero"),
    "q": (lambda T, x: T.quantile(x, 1.5), r"q must be in the range \[0, 1\] but got 1.5"),
    "q in a tensor": (lambda T, x: T.quantile(x, x[0]), r"q values must be in the range \[0, 1\]"),
    "a matrix q": (lambda T, x: T.quantile(x, x * 0), "q must be a scalar or 1D tensor"),
    "dtype of q": (lambda T, x: T.quantile(x, T.tensor([0.5], dtype=T.float32)), "q tensor must be same dtype"),
    "text": (lambda T, x: T.quantile(x, "0.5"), "quantile"),
    "integers": (lambda T, x: T.nanquantile(T.arange(3), 0.5), "must be either float or double dtype"),
    "empty": (lambda T, x: T.quantile(x[:0], 0.5), "input tensor must be non-empty"),
    "interpolation": (lambda T, x: T.quantile(x, 0.5, interpolation="cubic"), "must be one of linear, lower, higher"),
    "out": (lambda T, x: T.quantile(x, 0.5, out=T.zeros((), dtype=T.float32)), "out tensor must be same dtype"),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", eager_cases("failures", REFUSED, lambda name: name == "q in a tensor"))
def test_refused(name):
    program, match = REFUSED[name]
    same_error(lambda T: program(T, T.tensor(X)), match)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(name, interpolation):
    def program(T):
        run, x, y = getattr(T, name), T.tensor(NAN), T.tensor(X)
        q = T.tensor([0.0, 0.125, 0.5, 1.0], dtype=T.float64)
        return [run(a, b, dim=1, interpolation=interpolation) for a in (x, y) for b in (q, 0.3)]

    as_torch(program)


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_derivatives_of_quantiles(name):
    agree(lambda lib, x, q: getattr(lib, name)(x, q, 0), X, np.array([0.1, 0.5, 0.8]))
    agree(lambda lib, x: getattr(lib, name)(x, 0.3), X)


def test_the_gradient_of_a_quantile_that_is_nan_goes_to_the_nan():
    agree(lambda lib, x: lib.quantile(x, 0.5, dim=1), NAN, order=1)
    agree(lambda lib, x: lib.nanquantile(x, 0.5, dim=1), NAN, order=1)


@pytest.mark.exhaustive
def test_shapes_of_quantiles():
    def program(T):
        x, q = data(T, (2, 3)), T.tensor([0.25, 0.5], dtype=T.float64)
        made = [x.quantile(b, d, k) for b in (0.5, q) for d in (None, 0, -1) for k in (False, True)]
        return [*made, x[0, 0].quantile(0.5, keepdim=True), x[0, 0].quantile(q, 0), T.quantile(x, 1)]

    as_torch(program)


def test_quantile_writes_to_out():
    out = xgrad.zeros((), dtype=xgrad.float64)
    assert xgrad.quantile(xgrad.tensor(X), 0.5, out=out) is out
    assert out.item() == torch.quantile(torch.tensor(X), 0.5).item()
