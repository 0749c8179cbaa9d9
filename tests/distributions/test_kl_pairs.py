"""kl_divergence of different kinds of distributions: the pairs, values and gradients are torch's."""

import math

import numpy as np
import pytest
import torch
import torch.distributions
from torch.distributions.kl import _KL_REGISTRY

import xgrad
import xgrad.distributions
from xgrad.distributions.kl import _TABLE

LIBRARIES = (torch, xgrad)
# Parameters of p, and of q, that make finite divergences if there are any.
FIRST = {
    "Uniform": {"low": [0.2, 0.3], "high": [0.7, 0.9]},
    "Beta": {"concentration1": [0.7, 2.0], "concentration0": [1.5, 0.6]},
    "ContinuousBernoulli": {"probs": [0.2, 0.7]},
    "Exponential": {"rate": [0.5, 2.0]},
    "Gamma": {"concentration": [0.6, 2.5], "rate": [1.5, 0.5]},
    "Gumbel": {"loc": [-0.5, 0.7], "scale": [0.6, 1.4]},
    "Laplace": {"loc": [-0.5, 0.7], "scale": [0.6, 1.4]},
    "Normal": {"loc": [-0.5, 0.7], "scale": [0.6, 1.4]},
    "Pareto": {"scale": [0.4, 1.2], "alpha": [2.5, 4.0]},
    "Poisson": {"rate": [0.5, 2.0]},
    "Bernoulli": {"probs": [0.2, 0.7]},
}
SECOND = {
    "Uniform": {"low": [-0.5, -0.1], "high": [1.2, 1.5]},
    "Beta": {"concentration1": [1.7, 0.5], "concentration0": [0.5, 2.6]},
    "ContinuousBernoulli": {"probs": [0.6, 0.3]},
    "Exponential": {"rate": [1.5, 0.7]},
    "Gamma": {"concentration": [1.6, 0.5], "rate": [0.5, 1.5]},
    "Gumbel": {"loc": [0.5, -0.7], "scale": [1.6, 0.8]},
    "Laplace": {"loc": [0.5, -0.4], "scale": [1.6, 0.7]},
    "Normal": {"loc": [0.5, -0.4], "scale": [1.6, 0.7]},
    "Pareto": {"scale": [0.1, 0.25], "alpha": [1.5, 3.0]},
    "Bernoulli": {"probs": [0.2, 0.7]},
    "Binomial": {"probs": [0.2, 0.7]},
    "Poisson": {"rate": [0.7, 1.0]},
}


def names(table):
    return {(p.__name__, q.__name__) for p, q in table}


PAIRS = sorted((p, q) for p, q in names(_KL_REGISTRY) if p != q and p in FIRST and q in SECOND)


def divergence(T, p, q, *, first=None, second=None):
    """The divergence as a list, and its gradients."""
    leaves = []

    def made(name, given):
        tensors = {key: T.tensor(value, dtype=T.float64, requires_grad=True) for key, value in given.items()}
        leaves.extend(tensors.values())
        return getattr(T.distributions, name)(**tensors)

    found = T.distributions.kl_divergence(made(p, first or FIRST[p]), made(q, second or SECOND[q]))
    if not found.requires_grad:
        return [found.tolist()]
    grads = T.autograd.grad((found * T.tensor([1.0, 2.0])).sum(), leaves, allow_unused=True)
    return [found.tolist(), *([0.0, 0.0] if grad is None else grad.tolist() for grad in grads)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_values_and_gradients(pair):
    theirs, ours = (divergence(T, *pair) for T in LIBRARIES)
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours):
        np.testing.assert_allclose(b, a, rtol=1e-7, atol=1e-9)


OUTSIDE = {
    ("Beta", "Uniform"): ({}, {"low": [0.1, -1.0], "high": [2.0, 0.9]}),
    ("ContinuousBernoulli", "Uniform"): ({}, {"low": [0.1, -1.0], "high": [2.0, 0.9]}),
    ("Pareto", "Exponential"): ({"scale": [0.4, 1.2], "alpha": [0.5, 0.9]}, {}),
    ("Pareto", "Gamma"): ({"scale": [0.4, 1.2], "alpha": [0.5, 0.9]}, {}),
    ("Pareto", "Normal"): ({"scale": [0.4, 1.2], "alpha": [0.5, 1.9]}, {}),
    ("Uniform", "Beta"): ({"low": [-0.2, 0.2], "high": [0.5, 1.5]}, {}),
    ("Uniform", "ContinuousBernoulli"): ({"low": [-0.2, 0.2], "high": [0.5, 1.5]}, {}),
    ("Uniform", "Exponential"): ({"low": [-0.2, -1.2], "high": [0.5, 1.5]}, {}),
    ("Uniform", "Gamma"): ({"low": [-0.2, -1.2], "high": [0.5, 1.5]}, {}),
    ("Uniform", "Pareto"): ({"low": [0.05, 0.2], "high": [0.5, 1.5]}, {}),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("pair", OUTSIDE, ids="-".join)
def test_infinite_where_p_has_other_values(pair):
    first, second = OUTSIDE[pair]
    for T in LIBRARIES:
        found = divergence(T, *pair, first=first, second=second)
        assert found[0] == [math.inf, math.inf], T


def test_finite_between_distributions_of_the_same_interval():
    """PyTorch 2.13 has infinity; the numeric integral is this."""
    D = xgrad.distributions
    p, q = D.Uniform(xgrad.tensor(0.0), 1.0), D.ContinuousBernoulli(xgrad.tensor(0.3))
    x = (xgrad.arange(1000.0) + 0.5) / 1000
    np.testing.assert_allclose(D.kl_divergence(p, q).item(), -q.log_prob(x).mean().item(), rtol=1e-4)
    density = q.log_prob(x)
    np.testing.assert_allclose(D.kl_divergence(q, p).item(), (density.exp() * density).mean().item(), rtol=1e-4)


def test_torch_has_no_more_pairs():
    assert names(_KL_REGISTRY) - names(_TABLE) == set()
