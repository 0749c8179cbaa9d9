"""Exponential families: entropies and divergences by the log normalizer, with gradients; which divergence is found."""

import itertools
import warnings
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.distributions

import xgrad
import xgrad.distributions
from xgrad.distributions import ExponentialFamily
from xgrad.distributions.exp_family import bregman_divergence

LIBRARIES = (torch, xgrad)
TABLE = {
    "Bernoulli": [{"probs": [0.2, 0.7]}, {"probs": [0.6, 0.3]}],
    "Beta": [
        {"concentration1": [0.7, 2.0], "concentration0": [1.5, 0.6]},
        {"concentration1": [1.7, 0.5], "concentration0": [0.5, 2.6]},
    ],
    "ContinuousBernoulli": [{"probs": [0.2, 0.55]}, {"probs": [0.51, 0.3]}],
    "Dirichlet": [{"concentration": [[0.7, 2.0], [1.5, 0.6]]}, {"concentration": [[1.7, 0.5], [0.5, 2.6]]}],
    "Exponential": [{"rate": [0.5, 2.0]}, {"rate": [1.5, 0.7]}],
    "Gamma": [{"concentration": [0.6, 2.5], "rate": [1.5, 0.5]}, {"concentration": [1.6, 0.5], "rate": [0.5, 1.5]}],
    "Normal": [{"loc": [-0.5, 0.7], "scale": [0.6, 1.4]}, {"loc": [0.5, -0.4], "scale": [1.6, 0.7]}],
    "Poisson": [{"rate": [0.5, 2.0]}, {"rate": [0.7, 1.0]}],
    "Chi2": [{"df": [0.5, 2.0]}, {"df": [0.7, 1.0]}],
}  # fmt: skip


def made(T, name, which):
    leaves = {key: T.tensor(value, dtype=T.float64, requires_grad=True) for key, value in TABLE[name][which].items()}
    return getattr(T.distributions, name)(**leaves), [*leaves.values()]


def close(found, expected, leaves, rtol=1e-8):
    np.testing.assert_allclose(found.tolist(), expected.tolist(), rtol=rtol)
    weight = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64)
    grads = [
        xgrad.autograd.grad((x * weight).sum(), leaves, retain_graph=True, materialize_grads=True)
        for x in (found, expected)
    ]
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=rtol, atol=1e-12)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", TABLE)
def test_entropies_and_divergences_are_the_closed_ones(name):
    (p, own), (q, others) = (made(xgrad, name, i) for i in (0, 1))
    assert isinstance(p, ExponentialFamily)
    close(bregman_divergence(p, q), xgrad.distributions.kl_divergence(p, q), [*own, *others])
    theirs, _ = made(torch, name, 0)
    for a, b in zip(p._natural_params, theirs._natural_params, strict=True):
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-9)
    normalizers = [T_p._log_normalizer(*T_p._natural_params).tolist() for T_p in (p, theirs)]
    np.testing.assert_allclose(*normalizers, rtol=1e-9)
    if name in ("Beta", "Dirichlet", "Poisson"):
        for d in (p, theirs):
            with pytest.raises(NotImplementedError):
                _ = d._mean_carrier_measure
        return
    close(ExponentialFamily.entropy(p), p.entropy(), own)
    with xgrad.no_grad():
        assert not ExponentialFamily.entropy(p).requires_grad
        assert not bregman_divergence(p, q).requires_grad


def test_continuous_bernoulli_of_any_log_odds():
    for dtype, rtol in ((xgrad.float64, 1e-9), (xgrad.float32, 2e-5)):
        x = xgrad.tensor([-90.0, -1.0, -0.31, -0.29, -1e-3, 0.0, 0.01, 0.3, 2.0, 90.0], dtype=dtype, requires_grad=True)
        y = xgrad.distributions.ContinuousBernoulli(logits=xgrad.zeros(1))._log_normalizer(x)
        (slope,) = xgrad.autograd.grad(y.sum(), x)
        u = np.array([-90.0, -1, -0.31, -0.29, -1e-3, 1e-30, 0.01, 0.3, 2, 90], np.longdouble)
        known = np.log(np.expm1(u) / u)
        np.testing.assert_allclose(y.tolist(), known.astype(float), rtol=rtol, atol=rtol)
        mean = np.where(np.abs(u) < 1e-9, 0.5, 1 + 1 / np.expm1(u) - 1 / u)
        np.testing.assert_allclose(slope.tolist(), mean.astype(float), rtol=rtol)


def test_same_families_only_and_broadcast_batches():
    D = xgrad.distributions
    with pytest.raises(NotImplementedError, match="cross KL-divergence between different exponential families"):
        D.kl_divergence(D.Dirichlet(xgrad.ones(2)), D.Normal(0.0, 1.0))
    p = D.Dirichlet(xgrad.tensor([0.5, 2.0], requires_grad=True))
    q = D.Dirichlet(xgrad.tensor([[1.0, 2.0], [0.3, 0.6], [4.0, 1.0]]))
    for a, b in ((p, q), (q, p)):
        np.testing.assert_allclose(
            bregman_divergence(a, b).tolist(), D.kl_divergence(a, b).tolist(), rtol=1e-5, atol=1e-6
        )


def own_on(D):
    """A family of a user's: the same class on both libraries."""

    class Decay(D.ExponentialFamily):
        arg_constraints: ClassVar = {"rate": D.constraints.positive}
        _mean_carrier_measure = 0

        def __init__(self, rate):
            self.rate = rate
            super().__init__(rate.shape)

        @property
        def _natural_params(self):
            return (-self.rate,)

        def _log_normalizer(self, x):
            return -(-x).log()

    return Decay


def test_families_of_users():
    found = []
    for T in LIBRARIES:
        Decay = own_on(T.distributions)
        p, q = (Decay(T.tensor(rate)) for rate in ([1.0, 2.0], [0.5, 0.7]))
        found.append([p.entropy().tolist(), T.distributions.kl_divergence(p, q).tolist()])
        for missing in ("_natural_params", "_mean_carrier_measure"):
            with pytest.raises(NotImplementedError):
                getattr(T.distributions.ExponentialFamily(validate_args=False), missing)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_ambiguous_divergences_warn_once():
    for T in LIBRARIES:
        D = T.distributions

        class A(D.Cauchy): ...

        class B(A): ...

        D.register_kl(A, B)(lambda p, q: p.loc)
        D.register_kl(B, A)(lambda p, q: q.loc)
        p, q = B(1.0, 1.0), B(2.0, 1.0)
        with pytest.warns(RuntimeWarning, match=r"Ambiguous kl_divergence\(B, B\). Please register_kl\(B, B\)"):
            assert D.kl_divergence(p, q).item() == 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            D.kl_divergence(p, q)
            D.register_kl(B, B)(lambda p, q: p.loc * 5)
            assert D.kl_divergence(p, q).item() == 5


def test_no_divergence_of_ours_is_ambiguous():
    D = xgrad.distributions
    kinds = [kind for name in D.__all__ if isinstance(kind := getattr(D, name), type)]
    kinds = [kind for kind in kinds if issubclass(kind, D.Distribution)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for p, q in itertools.product(kinds, kinds):
            try:
                D.kl._find(p, q)
            except NotImplementedError:
                assert not (p is q and p in (D.Normal, D.Gamma))


def test_divergence_of_binomials_where_values_are_not_known():
    D = xgrad.distributions
    counts, probs = xgrad.tensor([3.0, 4.0]), xgrad.tensor([0.2, 0.7], requires_grad=True)

    def gap(counts, probs):
        return D.kl_divergence(D.Binomial(counts, probs), D.Binomial(xgrad.full((2,), 3.0), probs * 0.5))

    expected = gap(counts, probs).tolist()
    assert expected[1] == np.inf
    np.testing.assert_allclose(xgrad.compile(gap)(counts, probs).tolist(), expected, rtol=1e-6)
    with xgrad.lazy():
        np.testing.assert_allclose(gap(counts, probs).tolist(), expected, rtol=1e-6)
    q = D.Binomial(xgrad.tensor(3.0), xgrad.tensor(0.4))
    mapped = xgrad.vmap(lambda n, p: D.kl_divergence(D.Binomial(n, p), q))
    assert mapped(counts - 1, probs).isnan().tolist() == [True, False]
    with pytest.raises(NotImplementedError, match=r"where q\.total_count > p\.total_count"):
        gap(counts - 1, probs)


def test_entropies_compiled_lazy_and_mapped():
    made = own_on(xgrad.distributions)

    def step(rate):
        p, q = (made(r) for r in (rate, rate.square()))
        return xgrad.autograd.grad((p.entropy() + xgrad.distributions.kl_divergence(p, q)).sum(), rate)[0]

    rate = xgrad.tensor([0.5, 2.0], requires_grad=True)
    expected = step(rate).tolist()
    np.testing.assert_allclose(expected, [1 - 2 / r for r in (0.5, 2.0)], rtol=1e-5)
    np.testing.assert_allclose(xgrad.compile(step)(rate).tolist(), expected, rtol=1e-5)
    with xgrad.lazy():
        np.testing.assert_allclose(step(rate).tolist(), expected, rtol=1e-5)
    mapped = xgrad.vmap(lambda r: made(r).entropy())(rate.detach())
    np.testing.assert_allclose(mapped.tolist(), made(rate).entropy().tolist(), rtol=1e-6)
