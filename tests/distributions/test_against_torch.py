"""Densities, moments, divergences and errors of distributions, with their gradients, equal to torch's."""

import numpy as np
import pytest
import torch
import torch.distributions

import xgrad
import xgrad.distributions

from ..oracle import as_torch

LIBRARIES = (torch, xgrad)
P = [0.2, 0.5, 0.7]  # positive numbers below 1
A, B = [0.5, 1.5, 3.0], [2.0, 0.7, 1.2]
ROWS = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
LOGITS = [[0.2, -0.3, 0.5], [1.6, 0.3, -0.1]]
COVARIANCE = [[2.0, 0.3], [0.3, 0.5]]
FACTOR = [[1.2, 0.0], [0.3, 0.5]]

# name: (parameters, values); the parameters become float64 tensors that require grad.
TABLE = {
    "Normal": ({"loc": A, "scale": B}, [-1.0, 0.3, 2.0]),
    "LogNormal": ({"loc": A, "scale": P}, [0.1, 0.3, 2.0]),
    "HalfNormal": ({"scale": B}, [0.1, 0.3, 2.0]),
    "HalfCauchy": ({"scale": B}, [0.1, 0.3, 2.0]),
    "Laplace": ({"loc": A, "scale": B}, [-1.0, 0.3, 2.0]),
    "Cauchy": ({"loc": A, "scale": B}, [-1.0, 0.3, 2.0]),
    "Gumbel": ({"loc": A, "scale": B}, [-1.0, 0.3, 2.0]),
    "StudentT": ({"df": A, "loc": P, "scale": B}, [-1.0, 0.3, 2.0]),
    "StudentT ": ({"df": [3.0, 4.0, 5.0]}, [-1.0, 0.3, 2.0]),
    "Uniform": ({"low": P, "high": [1.0, 2.0, 3.0]}, [0.4, 0.6, 2.5]),
    "Exponential": ({"rate": B}, [0.1, 0.3, 2.0]),
    "Gamma": ({"concentration": A, "rate": B}, [0.1, 0.3, 2.0]),
    "Chi2": ({"df": B}, [0.1, 0.3, 2.0]),
    "Beta": ({"concentration1": A, "concentration0": B}, [0.1, 0.3, 0.9]),
    "Dirichlet": ({"concentration": [A, B]}, ROWS),
    "Bernoulli": ({"probs": P}, [0.0, 1.0, 1.0]),
    "Bernoulli ": ({"logits": A}, [0.0, 1.0, 1.0]),
    "Binomial": ({"total_count": [4.0, 4.0, 4.0], "probs": P}, [0.0, 1.0, 4.0]),
    "Binomial ": ({"total_count": [4.0, 4.0, 4.0], "logits": A}, [0.0, 1.0, 4.0]),
    "Geometric": ({"probs": P}, [0.0, 1.0, 4.0]),
    "Geometric ": ({"logits": A}, [0.0, 1.0, 4.0]),
    "Poisson": ({"rate": B}, [0.0, 1.0, 4.0]),
    "Categorical": ({"probs": ROWS}, [0, 2]),
    "Categorical ": ({"logits": LOGITS}, [0, 2]),
    "OneHotCategorical": ({"probs": ROWS}, [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    "OneHotCategorical ": ({"logits": LOGITS}, [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    "Multinomial": ({"total_count": 4, "probs": ROWS}, [[1.0, 1.0, 2.0], [0.0, 3.0, 1.0]]),
    "Multinomial ": ({"total_count": 4, "logits": LOGITS}, [[1.0, 1.0, 2.0], [0.0, 3.0, 1.0]]),
    "RelaxedBernoulli": ({"temperature": [0.7], "probs": P}, [0.1, 0.3, 0.9]),
    "RelaxedBernoulli ": ({"temperature": [0.7], "logits": A}, [0.1, 0.3, 0.9]),
    "RelaxedOneHotCategorical": ({"temperature": 0.7, "probs": ROWS}, ROWS),
    "RelaxedOneHotCategorical ": ({"temperature": 0.7, "logits": LOGITS}, ROWS),
    "MultivariateNormal": ({"loc": [0.1, 0.2], "covariance_matrix": COVARIANCE}, [[0.3, 1.0], [1.0, -1.0]]),
    "MultivariateNormal ": ({"loc": [[0.1, 0.2]] * 2, "scale_tril": FACTOR}, [[0.3, 1.0], [1.0, -1.0]]),
    "MultivariateNormal  ": ({"loc": [0.1, 0.2], "precision_matrix": COVARIANCE}, [[0.3, 1.0], [1.0, -1.0]]),
    "Pareto": ({"scale": P, "alpha": [0.5, 1.5, 3.0]}, [0.3, 0.7, 2.0]),
    "Weibull": ({"scale": B, "concentration": [1.2, 1.5, 3.0]}, [0.3, 0.7, 2.0]),
    "InverseGamma": ({"concentration": [1.5, 2.5, 3.0], "rate": B}, [0.3, 0.7, 2.0]),
    "FisherSnedecor": ({"df1": [2.5, 3.0, 4.0], "df2": [5.0, 6.0, 7.0]}, [0.3, 0.7, 2.0]),
    "Kumaraswamy": ({"concentration1": A, "concentration0": B}, [0.3, 0.7, 0.9]),
    "ContinuousBernoulli": ({"probs": [0.2, 0.5, 0.7]}, [0.3, 0.7, 0.9]),
    "ContinuousBernoulli ": ({"logits": A}, [0.3, 0.7, 0.9]),
    "VonMises": ({"loc": A, "concentration": [0.2, 1.7, 9.0]}, [-1.0, 0.3, 2.0]),
    "NegativeBinomial": ({"total_count": [4.0, 4.0, 4.0], "probs": P}, [0.0, 1.0, 4.0]),
    "NegativeBinomial ": ({"total_count": [4.0, 4.5, 2.0], "logits": A}, [0.0, 1.0, 4.0]),
    "LowRankMultivariateNormal": (
        {"loc": [0.1, 0.2], "cov_factor": [[1.0], [0.3]], "cov_diag": [0.5, 1.5]},
        [[0.3, 1.0], [1.0, -1.0]],
    ),
}

MATRICES = [[[2.0, 0.4], [0.4, 1.5]], [[5.0, -1.0], [-1.0, 0.5]]]
TABLE |= {
    "LogisticNormal": ({"loc": [A, B], "scale": [B, A]}, [[0.1, 0.2, 0.3, 0.4], [0.6, 0.1, 0.25, 0.05]]),
    "Wishart": ({"df": [4.5, 6.0], "covariance_matrix": COVARIANCE}, MATRICES),
    "Wishart ": ({"df": [2.5, 6.0], "precision_matrix": [COVARIANCE] * 2}, MATRICES),
}


def made(T, name):
    """The distribution, its parameters, and the values."""
    given, values = TABLE[name]
    parameters = {
        key: value if isinstance(value, int) else T.tensor(value, dtype=T.float64) for key, value in given.items()
    }
    leaves = [p for key, p in parameters.items() if hasattr(p, "dtype") and key != "total_count"]
    for p in leaves:
        p.requires_grad_()
    value = T.tensor(values, dtype=T.int64 if isinstance(values[0], int) else T.float64)
    if not isinstance(values[0], int):
        value.requires_grad_()
    return getattr(T.distributions, name.strip())(**parameters), leaves, value


def evaluated(T, function, leaves):
    """The result and its gradients; the kind of error if there is one."""
    try:
        result = function()
        if not result.requires_grad:
            return [np.asarray(result.tolist()), str(tuple(result.shape))]
        weight = T.arange(1.0, result.numel() + 1, dtype=T.float64).reshape(result.shape)
        # `probs` and `logits` are computed of each other once, and so are in several graphs
        grads = T.autograd.grad((result * weight).sum(), leaves, allow_unused=True, retain_graph=True)
    except NotImplementedError as error:
        return type(error)
    zero = [0 * leaf.detach() if grad is None else grad for grad, leaf in zip(grads, leaves)]
    return [np.asarray(result.tolist()), str(tuple(result.shape)), *(np.asarray(grad.tolist()) for grad in zero)]


def agree(functions, leaves, what, rtol=1e-7):
    theirs, ours = (evaluated(T, f, own) for T, f, own in zip(LIBRARIES, functions, leaves))
    if not isinstance(theirs, list):
        assert ours is theirs or what == "cdf", what  # igamma has a derivative here, and none in torch
        return
    assert isinstance(ours, list), what
    assert theirs[1] == ours[1], what
    for a, b in zip(theirs[:1] + theirs[2:], ours[:1] + ours[2:], strict=True):
        np.testing.assert_allclose(b, a, rtol=rtol, atol=rtol / 100, err_msg=what)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", TABLE)
def test_densities_and_moments(name):
    pairs = [made(T, name) for T in LIBRARIES]
    leaves = [[*own, value] if value.requires_grad else own for _, own, value in pairs]
    rtol = 1e-5 if name == "VonMises" else 1e-7  # torch's Bessel functions are polynomials
    for method in ("log_prob", "cdf"):
        agree([lambda d=d, v=v, m=method: getattr(d, m)(v) for d, _, v in pairs], leaves, method, rtol)
    for method in ("mean", "variance", "stddev", "mode"):
        if (name, method) != ("Kumaraswamy", "mode"):  # torch's is nan: test_mode_of_kumaraswamy
            agree([lambda d=d, m=method: getattr(d, m) for d, _, _ in pairs], leaves, method, rtol)
    agree([lambda d=d: d.entropy() for d, _, _ in pairs], leaves, "entropy")
    quantiles = [T.tensor([0.1, 0.5, 0.9], dtype=T.float64) for T in LIBRARIES]
    agree([lambda d=d, q=q: d.icdf(q) for (d, _, _), q in zip(pairs, quantiles)], leaves, "icdf")


@pytest.mark.one_in(6)
@pytest.mark.filterwarnings("ignore:Singular sample")  # of torch 2.13's Wishart, for draws that are not singular
@pytest.mark.parametrize("name", TABLE)
def test_shapes_and_words(name):
    pairs = [made(T, name)[0] for T in LIBRARIES]
    for of in (
        lambda d: (tuple(d.batch_shape), tuple(d.event_shape)), lambda d: (d.has_rsample, d.has_enumerate_support),
        lambda d: tuple(d.sample().shape), lambda d: tuple(d.sample((2, 1)).shape),
        lambda d: str(d.sample().dtype).split(".")[-1],
        lambda d: d.expand((4, *d.batch_shape)).sample().shape[0],
        lambda d: tuple(d.expand((4, *d.batch_shape)).log_prob(d.sample()).shape),
        lambda d: repr(d.expand((4, *d.batch_shape))).split("(")[0], lambda d: list(d.arg_constraints),
    ):  # fmt: skip
        assert of(pairs[0]) == of(pairs[1])
    if "MultivariateNormal" not in name:
        assert repr(pairs[1].support).split("(")[0] == repr(pairs[0].support).split("(")[0]
    if pairs[0].has_enumerate_support:
        for expand in (True, False):
            theirs, ours = (d.enumerate_support(expand).tolist() for d in pairs)
            assert theirs == ours


# Without a mean or variance, or with a mean that is no average of the numbers.
UNMEASURED = ("Cauchy", "HalfCauchy", "StudentT", "Categorical", "Pareto", "InverseGamma", "VonMises",
              "LogisticNormal")  # fmt: skip


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", TABLE)
def test_draws_have_the_moments(name):
    xgrad.manual_seed(0)
    distribution, leaves, _ = made(xgrad, name)
    drawn = distribution.sample((4000,))
    assert not drawn.requires_grad
    assert bool(distribution.support.check(drawn).all())
    if name.strip() not in UNMEASURED and "Relaxed" not in name:
        error = (drawn.mean(0) - distribution.mean).abs() / (distribution.variance / 4000).sqrt()
        assert float(error.max()) < 5
    if distribution.has_rsample:
        result = distribution.rsample((3,))
        assert result.requires_grad
        grads = xgrad.autograd.grad(result.sum(), leaves, allow_unused=True)
        assert all(bool(g.isfinite().all()) for g in grads if g is not None)
        assert any(g is not None and bool((g != 0).any()) for g in grads) or any(
            kind in name for kind in ("Dirichlet", "Relaxed", "LogisticNormal")
        )  # whose sums are 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "moment", "derivative"),
    [
        ("Gamma", lambda d: d.rsample((20000,)).mean(0), lambda a, b: 1 / np.array(b)),
        ("Beta", lambda d: d.rsample((20000,)).mean(0), lambda a, b: np.array(b) / (np.array(a) + np.array(b)) ** 2),
        ("StudentT ", lambda d: d.rsample((20000,)).abs().mean(0), None),
    ],
)
def test_gradients_of_draws_are_those_of_the_moments(name, moment, derivative):
    xgrad.manual_seed(1)
    distribution, leaves, _ = made(xgrad, name)
    (grad,) = xgrad.autograd.grad(moment(distribution).sum(), leaves[:1])
    if derivative is not None:
        np.testing.assert_allclose(grad.tolist(), derivative(A, B), atol=0.05)
    assert bool(grad.isfinite().all())


PAIRS = [(name, name) for name in TABLE if "Relaxed" not in name and name.strip() not in (
    "Multinomial", "StudentT", "HalfCauchy", "Chi2", "Wishart")]  # fmt: skip
PAIRS += [
    ("Exponential", "Gamma"), ("Gamma", "Exponential"), ("Uniform", "Normal"), ("Exponential", "Normal"),
    ("Laplace", "Normal"), ("Chi2", "Gamma"), ("Bernoulli", "Bernoulli "), ("Categorical", "Categorical "),
    ("MultivariateNormal ", "MultivariateNormal"), ("MultivariateNormal", "MultivariateNormal  "),
]  # fmt: skip


def other(T, name):
    """A distribution of the same kind with other parameters."""
    given, _ = TABLE[name]
    changed = {}
    for key, value in given.items():
        x = value if isinstance(value, int) else T.tensor(value, dtype=T.float64)
        if key in ("loc", "rate", "scale", "concentration", "df", "concentration1", "logits"):
            x = x * 1.25
        if key == "high":
            x = x + 1
        if key == "probs":
            x = x.flip(-1)
        changed[key] = x
    return getattr(T.distributions, name.strip())(**changed)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(pair))
def test_divergences(pair):
    firsts = [made(T, pair[0]) for T in LIBRARIES]
    seconds = [other(T, pair[1]) for T in LIBRARIES]
    agree(
        [
            lambda T=T, p=p, q=q: T.distributions.kl_divergence(p, q)
            for T, (p, _, _), q in zip(LIBRARIES, firsts, seconds)
        ],
        [own for _, own, _ in firsts],
        "kl",
    )


COMPOSED = {
    "independent": lambda D, T, x: D.Independent(D.Normal(x, 1.0), 1),
    "mixture": lambda D, T, x: D.MixtureSameFamily(D.Categorical(logits=x), D.Normal(x * 2, 0.7)),
    "mixture of vectors": lambda D, T, x: D.MixtureSameFamily(
        D.Categorical(logits=x[0, :2]), D.Independent(D.Normal(x, 0.7), 1)
    ),
    "affine": lambda D, T, x: D.TransformedDistribution(D.Normal(x, 1.0), D.AffineTransform(0.5, 2.0)),
    "affine of vectors": lambda D, T, x: D.TransformedDistribution(
        D.Independent(D.Normal(x, 1.0), 1), [D.AffineTransform(0.5, x.exp(), event_dim=1)]
    ),
    "several": lambda D, T, x: D.TransformedDistribution(
        D.Normal(x, 1.0), [D.AffineTransform(0.5, -2.0), D.SigmoidTransform()]
    ),
    "tanh": lambda D, T, x: D.TransformedDistribution(D.Normal(x, 1.0), D.TanhTransform(cache_size=1)),
    "softplus": lambda D, T, x: D.TransformedDistribution(D.Normal(x, 1.0), [D.SoftplusTransform()]),
    "power": lambda D, T, x: D.TransformedDistribution(D.Exponential(x.exp()), [D.PowerTransform(T.tensor(2.0))]),
    "inverse": lambda D, T, x: D.TransformedDistribution(D.LogNormal(x, 1.0), [D.ExpTransform().inv]),
    "composed": lambda D, T, x: D.TransformedDistribution(
        D.Normal(x, 1.0), D.ComposeTransform([D.AffineTransform(0.0, 0.1), D.ExpTransform()])
    ),
    "independent transform": lambda D, T, x: D.TransformedDistribution(
        D.Normal(x, 1.0), D.IndependentTransform(D.ExpTransform(), 1)
    ),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", COMPOSED)
def test_distributions_of_distributions(name):
    pairs, leaves = [], []
    for T in LIBRARIES:
        x = T.tensor([[0.2, -0.3, 0.5], [1.6, 0.3, -0.1]], dtype=T.float64, requires_grad=True)
        pairs.append(COMPOSED[name](T.distributions, T, x))
        leaves.append([x])
    value = pairs[0].sample((2,)).detach()
    values = [value, xgrad.tensor(value.tolist(), dtype=xgrad.float64)]
    agree([lambda d=d, v=v: d.log_prob(v) for d, v in zip(pairs, values)], leaves, "log_prob")
    if "vectors" not in name and "independent" not in name:
        agree([lambda d=d, v=v: d.cdf(v) for d, v in zip(pairs, values)], leaves, "cdf")
    for method in ("mean", "variance", "entropy"):
        if method != "entropy" or name == "independent":
            of = [lambda d=d, m=method: getattr(d, m)() if m == "entropy" else getattr(d, m) for d in pairs]
            agree(of, leaves, method)
    for of in (
        lambda d: (tuple(d.batch_shape), tuple(d.event_shape), d.has_rsample, repr(d.support)),
        lambda d: tuple(d.sample((2,)).shape), lambda d: tuple(d.expand((3, *d.batch_shape)).sample().shape),
        lambda d: tuple(d.expand((3, *d.batch_shape)).log_prob(d.sample()).shape),
    ):  # fmt: skip
        assert of(pairs[0]) == of(pairs[1])


WRONG = {
    "scale": lambda D, T: D.Normal(0.0, -1.0),
    "nan": lambda D, T: D.Normal(T.tensor(float("nan")), 1.0),
    "simplex": lambda D, T: D.OneHotCategorical(T.tensor([-0.5, 1.5])),
    "both": lambda D, T: D.Bernoulli(0.5, logits=0.0),
    "neither": lambda D, T: D.Categorical(),
    "scalar": lambda D, T: D.Categorical(T.tensor(0.5)),
    "uniform": lambda D, T: D.Uniform(1.0, 0.0),
    "support": lambda D, T: D.Exponential(1.0).log_prob(T.tensor(-1.0)),
    "integer": lambda D, T: D.Poisson(1.0).log_prob(T.tensor(0.5)),
    "event": lambda D, T: D.Dirichlet(T.ones(3)).log_prob(T.ones(2) / 2),
    "batch": lambda D, T: D.Normal(T.zeros(3), 1.0).log_prob(T.zeros(2)),
    "number": lambda D, T: D.Normal(0.0, 1.0).log_prob(0.5),
    "dirichlet": lambda D, T: D.Dirichlet(T.tensor(1.0)),
    "geometric": lambda D, T: D.Geometric(0.0),
    "no kl": lambda D, T: D.kl_divergence(D.StudentT(3.0), D.Poisson(1.0)),
    "dims": lambda D, T: D.Independent(D.Normal(0.0, 1.0), 1),
    "mvn": lambda D, T: D.MultivariateNormal(T.zeros(2)),
    "mixture": lambda D, T: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)),
    "components": lambda D, T: D.MixtureSameFamily(D.Categorical(T.ones(2)), D.Normal(T.zeros(3), 1.0)),
    "rsample": lambda D, T: D.Bernoulli(0.5).rsample(),
    "text": lambda D, T: D.Normal("0", 1.0),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    errors = []
    for T in LIBRARIES:
        with pytest.raises(Exception) as error:  # noqa: PT011 - compared below
            WRONG[name](T.distributions, T)
        errors.append((type(error.value), str(error.value).split()[:3]))
    assert errors[0] == errors[1]


def test_checks_are_switched():
    D = xgrad.distributions
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
        D.Exponential(1.0).log_prob(xgrad.tensor(-1.0))
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        D.Normal(0.0, -1.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["lazy", "compiled"])
def test_lazily_and_compiled(how):
    D = xgrad.distributions

    def loss(loc, concentration):
        q = D.Independent(D.Normal(loc, loc.exp()), 1)
        z = q.rsample()
        kl = D.kl_divergence(q, D.Independent(D.Normal(xgrad.zeros_like(loc), 1.0), 1))
        drawn = D.Gamma(concentration, 1.0).rsample()
        return (kl - q.log_prob(z) + D.Categorical(logits=z).entropy() + drawn.sum()).sum()

    def step(loc, concentration):
        return xgrad.autograd.grad(loss(loc, concentration), (loc, concentration))

    leaves = [xgrad.tensor(values, requires_grad=True) for values in ([[0.1, 0.2, 0.3]], [0.5, 2.0])]
    xgrad.manual_seed(0)
    expected = [[g.tolist() for g in step(*leaves)] for _ in range(2)]
    xgrad.manual_seed(0)
    if how == "lazy":
        with xgrad.lazy():
            found = [step(*leaves) for _ in range(2)]
    else:
        compiled = xgrad.compile(step)
        found = [compiled(*leaves) for _ in range(2)]
    for a, b in zip(expected, found):
        for x, y in zip(a, b):
            np.testing.assert_allclose(y.tolist(), x, rtol=1e-5)


def test_under_vmap():
    D = xgrad.distributions
    loc, value = xgrad.tensor([0.0, 1.0]), xgrad.tensor([0.5, -0.5])
    mapped = xgrad.vmap(lambda m, x: D.Normal(m, 2.0).log_prob(x))(loc, value)
    np.testing.assert_allclose(mapped.tolist(), D.Normal(loc, 2.0).log_prob(value).tolist(), rtol=1e-6)


@pytest.mark.parametrize("at", [0.0, 0.3, 1 - 2**-24, 1.0])
def test_slopes_of_kumaraswamys_quantiles_to_the_ends(at):
    def program(T):
        given = [
            T.tensor(x, dtype=T.float64, requires_grad=True)
            for x in ([0.5, 1.0, 2.0, 5.0], [0.5, 1.0, 3.0, 0.5], [at] * 4)
        ]
        found = T.distributions.Kumaraswamy(*given[:2]).icdf(given[2])
        return found, T.autograd.grad(found.sum(), given[1:])

    as_torch(program, rtol=1e-5)


def test_mode_of_kumaraswamy():
    p = xgrad.distributions.Kumaraswamy(xgrad.tensor([2.0, 3.0, 0.5]), xgrad.tensor([3.0, 1.5, 2.0]))
    x = xgrad.linspace(0.001, 0.999, 4001).unsqueeze(-1)
    highest = x[p.log_prob(x).argmax(0), 0]
    np.testing.assert_allclose(p.mode[:2].tolist(), highest[:2].tolist(), atol=1e-3)
    assert p.mode[2].isnan()


@pytest.mark.parametrize("concentration", [1e-7, 0.01, 0.5, 4.0, 300.0])
def test_angles_have_the_direction(concentration):
    xgrad.manual_seed(0)
    p = xgrad.distributions.VonMises(xgrad.tensor(1.0), xgrad.tensor(concentration))
    x = p.sample((4000,))
    assert x.dtype == xgrad.float32
    assert float(x.abs().max()) <= np.pi + 1e-6
    assert abs(float((x - 1).cos().mean()) - (1 - float(p.variance))) < 0.05
    assert abs(float((x - 1).sin().mean())) < 0.05


DRAWN = {
    "Beta": lambda D, x: D.Beta(0.1 * x, 0.1 * x),
    "Dirichlet": lambda D, x: D.Dirichlet(0.1 * xgrad.stack([x, x, x])),
    "Laplace": lambda D, x: D.Laplace(0 * x, x),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Beta", "float32"),
        ("Beta", "float64"),
        ("Dirichlet", "float32"),
        ("Laplace", "bfloat16"),
    ],
)
def test_draws_and_their_densities_are_finite(name, dtype):
    """A tenth of the draws of Beta(0.1, 0.1) is within a rounding of 1, where the density is infinite."""
    xgrad.manual_seed(0)
    x = xgrad.ones((), dtype=getattr(xgrad, dtype), requires_grad=True)
    p = DRAWN[name](xgrad.distributions, x)
    drawn = p.rsample((5000,))
    density = p.log_prob(drawn)
    assert bool(drawn.isfinite().all())
    assert bool(density.isfinite().all())
    assert bool(xgrad.autograd.grad(density.float().mean(), x)[0].isfinite())


def test_draws_of_few_degrees_of_freedom_are_finite():
    xgrad.manual_seed(0)
    assert bool(xgrad.distributions.StudentT(0.02).sample((1000,)).isfinite().all())


@pytest.mark.parametrize("pair", ["low-low", "full-low", "low-full"])
def test_divergences_of_low_rank(pair):
    found = []
    for T in LIBRARIES:
        D, leaf = T.distributions, T.tensor(FACTOR, dtype=T.float64, requires_grad=True)

        def made(kind, factor, x, T=T, D=D):
            loc, diagonal = T.tensor([0.1, x], dtype=T.float64), T.tensor([x, 1.5], dtype=T.float64)
            if kind == "low":
                return D.LowRankMultivariateNormal(loc, factor[:, :1], diagonal)
            return D.MultivariateNormal(loc, scale_tril=factor)

        first, second = pair.split("-")
        p, q = made(first, leaf, 0.4), made(second, leaf * 1.5, 0.9)
        gaps = [D.kl_divergence(*pair) for pair in ((p, q), (p.expand((2,)), q), (p, q.expand((2,))))]
        assert [gap.shape for gap in gaps] == [(), (2,), (2,)]
        gap = sum(gap.sum() for gap in gaps)
        found.append([gap.item(), *T.autograd.grad(gap, leaf)[0].flatten().tolist()])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


def test_generalized_pareto(monkeypatch):
    given = {"loc": P, "scale": B, "concentration": [0.3, 0.0, -0.2]}, [0.3, 0.7, 2.0]
    monkeypatch.setitem(TABLE, "GeneralizedPareto", given)
    torch.set_default_dtype(torch.float64)  # torch 2.13 compares the concentration with a number of this dtype
    try:
        test_densities_and_moments("GeneralizedPareto")
        test_shapes_and_words("GeneralizedPareto")
        test_draws_have_the_moments("GeneralizedPareto")
    finally:
        torch.set_default_dtype(torch.float32)


def test_normal_numbers_of_packages():
    drawn = xgrad.distributions.utils._standard_normal((2, 3), dtype=xgrad.float64, device=xgrad.device("cpu"))
    assert (drawn.shape, drawn.dtype) == ((2, 3), xgrad.float64)


def test_factors_of_correlations():
    xgrad.manual_seed(0)
    found = []
    value = xgrad.distributions.LKJCholesky(3, xgrad.tensor([0.5, 2.0], dtype=xgrad.float64)).sample((3,))
    for T in LIBRARIES:
        n = T.tensor([0.5, 2.0], dtype=T.float64, requires_grad=True)
        p = T.distributions.LKJCholesky(3, n)
        logs = p.log_prob(T.tensor(value.tolist(), dtype=T.float64))
        assert (tuple(p.expand((4, 2)).sample().shape), repr(p.support)) == ((4, 2, 3, 3), "CorrCholesky()")
        found.append([*logs.flatten().tolist(), *T.autograd.grad(logs.sum(), n)[0].tolist()])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)
    m = xgrad.distributions.LKJCholesky(3, 1.0).sample((4000,))
    m = m @ m.mT
    assert float(m.mean(0).tril(-1).abs().max()) < 0.04
    np.testing.assert_allclose(float(m[:, 1, 0].var()), 1 / 4, atol=0.02)  # Beta(3/2, 3/2) on [-1, 1]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Kumaraswamy", (2.0, 3.0)), ("Pareto", (1.0, 2.0)), ("Exponential", (2.0,)), ("HalfNormal", (1.0,)),
     ("HalfCauchy", (1.0,)), ("GeneralizedPareto", (0.0, 1.0, -0.5))],
)  # fmt: skip
def test_a_cdf_beyond_the_support_is_0_or_1(name, parameters):
    found = getattr(xgrad.distributions, name)(*map(xgrad.tensor, parameters), validate_args=False)
    assert found.cdf(xgrad.tensor([-5.0, 1e30])).tolist() == pytest.approx([0, 1])


@pytest.mark.parametrize(
    ("name", "parameters", "outside"),
    [("Pareto", (1.0, 2.0), -5.0), ("Kumaraswamy", (2.0, 3.0), 1.5), ("HalfNormal", (2.0,), -5.0),
     ("GeneralizedPareto", (0.0, 1.0, -0.5), -5.0), ("GeneralizedPareto", (0.0, 1.0, -0.5), 9.0)],
)  # fmt: skip
def test_logarithms_and_slopes_of_a_cdf_beyond_the_support(name, parameters, outside):
    values = [xgrad.tensor(v, requires_grad=True) for v in (*parameters, outside)]
    found = getattr(xgrad.distributions, name)(*values[:-1], validate_args=False)
    names = ("cdf", "log_cdf", "log_survival_function")
    logs = [getattr(found, n)(values[-1]) for n in names if hasattr(found, n)]
    assert [log.item() for log in logs] == ([1, 0, -np.inf] if outside > 0 else [0, -np.inf, 0])[: len(logs)]
    for slope in xgrad.autograd.grad(sum(logs), values):
        assert slope == 0


@pytest.mark.parametrize(
    ("name", "parameters", "outside"),
    [("Kumaraswamy", (2.0, 3.0), (-0.5, 1.5)), ("Pareto", (1.0, 2.0), (0.5, -1.0)), ("Exponential", (2.0,), (-0.1, -5)),
     ("Gamma", (2.0, 3.0), (-0.5, -3.0)), ("Beta", (2.0, 3.0), (-0.5, 1.5)), ("Weibull", (2.0, 3.0), (-0.5, -1.0)),
     ("InverseGamma", (2.0, 3.0), (-0.5, -1.0)), ("FisherSnedecor", (2.0, 3.0), (-0.5, -1.0)),
     ("ContinuousBernoulli", (0.3,), (-0.5, 1.5)), ("GeneralizedPareto", (0.0, 1.0, -0.5), (-0.5, 2.5))],
)  # fmt: skip
def test_no_probability_beyond_the_support(name, parameters, outside):
    values = [xgrad.tensor(v, requires_grad=True) for v in parameters]
    found = getattr(xgrad.distributions, name)(*values, validate_args=False)
    x = xgrad.tensor(outside, requires_grad=True)
    logs = found.log_prob(x)
    assert logs.tolist() == [-np.inf, -np.inf]
    assert found.log_prob(xgrad.tensor(float("nan"))).isnan()
    for slope in xgrad.autograd.grad(logs.sum(), [x, *values]):
        assert (slope == 0).all()


@pytest.mark.parametrize("logits", [0.0, 20.5, 30.0, -25.0])
def test_a_binomial_of_large_log_odds_keeps_its_small_terms(logits):
    for value in (10.0, 9.0):
        found = []
        for T in LIBRARIES:
            x = T.tensor(logits, dtype=T.float64, requires_grad=True)
            n = T.tensor(value, dtype=T.float64)
            log_prob = T.distributions.Binomial(10, logits=x).log_prob(n)
            log_prob.backward()
            found.append((log_prob.item(), x.grad.item()))
        np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-13)


@pytest.mark.parametrize("x", [20.5, 30.0, -30.0])
def test_the_slopes_of_transforms_are_exact_beyond_20(x):
    """PyTorch's softplus is the identity there; log(sigmoid'(x)) is -x - 2·log(1 + exp(-x))."""
    t = xgrad.tensor(x, dtype=xgrad.float64)
    found = xgrad.distributions.SigmoidTransform().log_abs_det_jacobian(t, t.sigmoid())
    np.testing.assert_allclose(float(found), -abs(x) - 2 * np.log1p(np.exp(-abs(x))), rtol=1e-15)
    assert float(xgrad.distributions.SoftplusTransform()(t)) == pytest.approx(np.logaddexp(0, x), rel=1e-15)
