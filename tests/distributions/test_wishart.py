"""Wishart and LogisticNormal: divergences, gradients of draws, singular draws, errors, compiled and lazy programs."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
import torch.distributions

import xgrad
import xgrad.distributions

LIBRARIES = (torch, xgrad)
D = xgrad.distributions
COVARIANCE = [[2.0, 0.3], [0.3, 0.5]]
OTHER = [[1.0, -0.2], [-0.2, 0.7]]


def made(T, df, covariance, **options):
    df, covariance = (T.tensor(x, dtype=T.float64, requires_grad=True) for x in (df, covariance))
    return T.distributions.Wishart(df, covariance, **options), [df, covariance]


def test_densities_of_a_factor():
    """PyTorch's cholesky_solve has a gradient for the entries above the diagonal, too, which it does not read."""
    found = []
    for T in LIBRARIES:
        df, factor = (T.tensor(x, dtype=T.float64, requires_grad=True) for x in ([2.0, 3.0], [[1.2, 0.0], [0.3, 0.5]]))
        p = T.distributions.Wishart(df, scale_tril=factor.tril())
        logs = p.log_prob(T.tensor([COVARIANCE, OTHER], dtype=T.float64)) + p.entropy() + p.variance.sum((-2, -1))
        grads = T.autograd.grad((logs * T.tensor([1.0, 2.0], dtype=T.float64)).sum(), (df, factor))
        found.append([*logs.tolist(), *grads[0].tolist(), *grads[1].flatten().tolist()])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


def test_divergences():
    values = [T.distributions.kl_divergence(made(T, 4.5, COVARIANCE)[0], made(T, 3.5, OTHER)[0]) for T in LIBRARIES]
    np.testing.assert_allclose(values[1].item(), values[0].item(), rtol=1e-10)
    # of a batch, where PyTorch 2.13 adds the degrees of all distributions
    (p, leaves), (q, _) = made(xgrad, [4.5, 6.0], COVARIANCE), made(xgrad, [3.5, 2.5], [OTHER] * 2)
    found = D.kl_divergence(p, q)
    np.testing.assert_allclose(found[0].item(), values[0].item(), rtol=1e-10)
    drawn = p.rsample((2,)).detach()
    assert (p.log_prob(drawn) - q.log_prob(drawn)).shape == (2, 2)

    def gap(df, covariance):
        return D.kl_divergence(D.Wishart(df, covariance), q)

    assert xgrad.autograd.gradcheck(lambda df, c: gap(df, (c + c.mT) / 2), leaves)
    np.testing.assert_allclose(D.ExponentialFamily.entropy(p).tolist(), p.entropy().tolist(), rtol=1e-10)


def test_divergence_is_the_mean_of_the_difference():
    xgrad.manual_seed(0)
    p, q = (D.Wishart(xgrad.tensor(df), xgrad.tensor(c)) for df, c in ((4.5, COVARIANCE), (3.5, OTHER)))
    drawn = p.sample((4000,))
    differences = p.log_prob(drawn) - q.log_prob(drawn)
    assert abs(float(differences.mean() - D.kl_divergence(p, q))) < 5 * float(differences.std()) / 4000**0.5
    entropies = -p.log_prob(drawn)
    assert abs(float(entropies.mean() - p.entropy())) < 5 * float(entropies.std()) / 4000**0.5
    error = (drawn.var(0) / p.variance - 1).abs()
    assert float(error.max()) < 0.25


def test_gradients_of_draws_are_those_of_the_mean():
    xgrad.manual_seed(1)
    p, (df, covariance) = made(xgrad, 4.5, COVARIANCE)
    mean = p.rsample((4000,)).mean(0)
    weight = xgrad.tensor([[1.0, 0.5], [0.5, 2.0]], dtype=xgrad.float64)
    found = xgrad.autograd.grad((mean * weight).sum(), (df, covariance))
    np.testing.assert_allclose(found[0].item(), float((weight * covariance).sum()), rtol=0.1)
    symmetric = (found[1] + found[1].mT) / 2  # the mean is df·covariance
    np.testing.assert_allclose(symmetric.tolist(), (4.5 * weight).tolist(), rtol=0.1, atol=0.1)


def test_gradients_of_logistic_normal_draws_are_those_by_differences():
    values = [[0.2, -0.3], [0.5, 1.2]]
    loc, scale = (xgrad.tensor(x, dtype=xgrad.float64, requires_grad=True) for x in values)

    def draw(loc, scale):
        xgrad.manual_seed(3)
        return D.LogisticNormal(loc, scale).rsample((2,))

    assert xgrad.autograd.gradcheck(draw, (loc, scale))
    drawn = draw(loc, scale)
    np.testing.assert_allclose(drawn.sum(-1).tolist(), [1.0, 1.0])
    xgrad.manual_seed(0)
    p = D.LogisticNormal(loc, scale)
    logs = p.sample((4000,)).log()
    ratio = logs[:, 0] - (1 - logs[:, 0].exp()).log()
    np.testing.assert_allclose(float(ratio.mean()), 0.2 - np.log(2), atol=0.05)
    assert p.expand((3,)).event_shape == (3,)
    assert (p.loc.tolist(), p.scale.tolist()) == (values[0], values[1])


def test_singular_draws_are_drawn_anew(monkeypatch):
    p = D.Wishart(xgrad.tensor([3.0, 3.0]), scale_tril=xgrad.eye(2))
    draws = iter([xgrad.zeros(2, 2, 2), xgrad.eye(2).expand(2, 2, 2) * xgrad.tensor([0.0, 1.0]).reshape(2, 1, 1),
                  xgrad.eye(2).expand(2, 2, 2) * 2])  # fmt: skip
    monkeypatch.setattr(D.Wishart, "_drawn", lambda self, shape: next(draws))
    with pytest.warns(UserWarning, match="Singular sample detected"):
        found = p.rsample()
    assert found[:, 0, 0].tolist() == [2, 1]
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert D.Wishart(xgrad.tensor(3.0), xgrad.eye(2)).rsample((5,), max_try_correction=0).shape == (5, 2, 2)


def test_few_degrees():
    for T in LIBRARIES:
        with pytest.warns(UserWarning, match="Low df values detected. Singular samples are highly likely"):
            p = T.distributions.Wishart(T.tensor([1.5, 4.0]), T.eye(2))
        assert p.mode.isnan().tolist() == [[[True] * 2] * 2, [[False] * 2] * 2]
        with pytest.raises(ValueError, match="to be greater than ndim - 1 = 1"):
            T.distributions.Wishart(1.0, T.eye(2))
        with pytest.raises(AssertionError, match="Exactly one of covariance_matrix or precision_matrix or scale_tril"):
            T.distributions.Wishart(3.0)
        with pytest.raises(ValueError, match="must be at least two-dimensional"):
            T.distributions.Wishart(3.0, T.ones(2))
        with pytest.raises(ValueError, match=r"Expected parameter covariance_matrix"):
            T.distributions.Wishart(3.0, -T.eye(2))
        with pytest.raises(ValueError, match="within the support"):
            T.distributions.Wishart(3.0, T.eye(2)).log_prob(T.zeros(2, 2))


def test_copies():
    for p in (D.Wishart(3.0, xgrad.eye(2)), D.LogisticNormal(xgrad.zeros(3), xgrad.ones(3))):
        value = p.sample()
        for copied in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
            assert copied.log_prob(value).tolist() == p.log_prob(value).tolist()


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["lazy", "compiled"])
def test_lazily_and_compiled(how):
    def step(df, factor, loc):
        p, q = D.Wishart(df, scale_tril=factor), D.LogisticNormal(loc, loc.exp())
        z, w = q.rsample(), p.rsample((2,))
        total = p.log_prob(w).sum() + p.entropy() + q.log_prob(z) + z.square().sum() + w.square().sum()
        total = total + D.kl_divergence(p, D.Wishart(4.0, xgrad.eye(2)))
        return xgrad.autograd.grad(total, (df, factor, loc))

    leaves = [xgrad.tensor(x, requires_grad=True) for x in (3.5, [[1.2, 0.0], [0.3, 0.5]], [0.1, 0.2, 0.3])]
    xgrad.manual_seed(0)
    expected = [[g.tolist() for g in step(*leaves)] for _ in range(2)]
    xgrad.manual_seed(0)
    if how == "lazy":
        with xgrad.lazy():
            found = [[g.tolist() for g in step(*leaves)] for _ in range(2)]
    else:
        compiled = xgrad.compile(step)
        found = [[g.tolist() for g in compiled(*leaves)] for _ in range(2)]
    for a, b in zip(expected, found):
        for x, y in zip(a, b):
            np.testing.assert_allclose(y, x, rtol=1e-3, atol=1e-3)


def test_under_vmap():
    df, covariances = xgrad.tensor([3.0, 4.0]), xgrad.tensor([COVARIANCE, OTHER])
    value = xgrad.tensor([[2.0, 0.4], [0.4, 1.5]])
    mapped = xgrad.vmap(lambda n, c: D.Wishart(n, c).log_prob(value))(df, covariances)
    np.testing.assert_allclose(mapped.tolist(), D.Wishart(df, covariances).log_prob(value).tolist(), rtol=1e-5)
