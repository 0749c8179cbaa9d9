"""Transforms and the registries of them: values, Jacobians, gradients, shapes and errors are torch's."""

import copy
import inspect
import pickle

import numpy as np
import pytest
import torch
import torch.distributions

import xgrad
import xgrad.distributions

LIBRARIES = (torch, xgrad)
VECTORS = [[0.2, -0.3, 0.5], [1.6, 0.3, -0.1]]
MATRICES = [[[0.3, 5.0], [0.2, -0.4]], [[0.1, 0.2], [-1.5, 0.6]]]
POSITIVE = [[0.2, 1.3, 0.5], [1.6, 0.3, 2.1]]
# name: (the transform, values)
TABLE = {
    "Abs": (lambda D, T: D.AbsTransform(), VECTORS),
    "Affine": (lambda D, T: D.AffineTransform(0.5, T.tensor([2.0, -1.0, 0.5], dtype=T.float64)), VECTORS),
    "Affine of vectors": (lambda D, T: D.AffineTransform(0.5, -2.0, event_dim=1), VECTORS),
    "Cat": (lambda D, T: D.CatTransform([D.ExpTransform(), D.SigmoidTransform()], -1, [2, 1]), VECTORS),
    "Cat of rows": (lambda D, T: D.CatTransform([D.ExpTransform(), D.TanhTransform()]), VECTORS),
    "Cat of vectors": (
        lambda D, T: D.CatTransform([D.AffineTransform(0.1, 2.0, event_dim=1), D.ExpTransform()], -1, [2, 1]), VECTORS,
    ),
    "Cat of stacked vectors": (
        lambda D, T: D.CatTransform([D.AffineTransform(0.1, 2.0, event_dim=1), D.ExpTransform()], 0), VECTORS,
    ),
    "Compose": (lambda D, T: D.ComposeTransform([D.AffineTransform(0.1, 2.0), D.ExpTransform()]), VECTORS),
    "CorrCholesky": (lambda D, T: D.CorrCholeskyTransform(), VECTORS),
    "CorrCholesky of 2": (lambda D, T: D.CorrCholeskyTransform(), [[0.3], [-1.2]]),
    "CumulativeDistribution": (
        lambda D, T: D.CumulativeDistributionTransform(D.Normal(T.tensor([0.1, 0.2, 0.3], dtype=T.float64), 0.7)),
        VECTORS,
    ),
    "Exp": (lambda D, T: D.ExpTransform(), VECTORS),
    "Independent": (lambda D, T: D.IndependentTransform(D.ExpTransform(), 1), VECTORS),
    "LowerCholesky": (lambda D, T: D.LowerCholeskyTransform(), MATRICES),
    "PositiveDefinite": (lambda D, T: D.PositiveDefiniteTransform(), MATRICES),
    "Power": (lambda D, T: D.PowerTransform(T.tensor([2.0, -0.5, 1.5], dtype=T.float64)), POSITIVE),
    "Reshape": (lambda D, T: D.ReshapeTransform((3,), (3, 1)), VECTORS),
    "Sigmoid": (lambda D, T: D.SigmoidTransform(), VECTORS),
    "Softmax": (lambda D, T: D.SoftmaxTransform(), VECTORS),
    "Softplus": (lambda D, T: D.SoftplusTransform(), VECTORS),
    "Stack": (lambda D, T: D.StackTransform([D.ExpTransform(), D.SigmoidTransform()]), VECTORS),
    "Stack of columns": (
        lambda D, T: D.StackTransform([D.ExpTransform(), D.SigmoidTransform(), D.identity_transform], 1), VECTORS,
    ),
    "StickBreaking": (lambda D, T: D.StickBreakingTransform(), VECTORS),
    "Tanh": (lambda D, T: D.TanhTransform(), VECTORS),
}  # fmt: skip


def measured(T, make, values):
    """The result, the inverse of it, the Jacobian, each with its gradient, and what is known of shapes."""
    transform = make(T.distributions, T)
    x = T.tensor(values, dtype=T.float64, requires_grad=True)
    y = transform(x)
    start = T.tensor(y.tolist(), dtype=T.float64, requires_grad=True)
    found = [(y, x), (transform.inv(start), start)]
    if transform.bijective:
        found += [(transform.log_abs_det_jacobian(x, transform(x)), x)]
        found += [(transform.inv.log_abs_det_jacobian(start, transform.inv(start)), start)]
    numbers = []
    for result, leaf in found:
        weight = T.arange(1.0, result.numel() + 1, dtype=T.float64).reshape(result.shape)
        grad = T.autograd.grad((result * weight).sum(), leaf)[0] if result.requires_grad else leaf * 0
        numbers += [result.tolist(), grad.tolist()]
    known = [
        tuple(transform.forward_shape(x.shape)), tuple(transform.inverse_shape(y.shape)), transform.bijective,
        transform.codomain.event_dim, transform.domain.event_dim, repr(transform), repr(transform.inv),
        transform.inv.inv is transform, transform == transform, transform == make(T.distributions, T),
        transform == T.distributions.AbsTransform(),
    ]  # fmt: skip
    return numbers, known


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", TABLE)
def test_values_jacobians_gradients_and_shapes(name):
    (theirs, their_words), (ours, our_words) = (measured(T, *TABLE[name]) for T in LIBRARIES)
    assert our_words == their_words
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", TABLE)
def test_caches_copies_and_pickles(name):
    make, values = TABLE[name]
    transform = make(xgrad.distributions, xgrad).with_cache()
    x = xgrad.tensor(values, dtype=xgrad.float64, requires_grad=True)
    y = transform(x)
    assert transform(x) is y or name in ("Compose", "identity")
    assert transform.inv(y) is x or name == "Compose"
    assert transform.with_cache() is transform
    for copied in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        assert copied(x).tolist() == y.tolist()
        assert repr(copied.inv) == repr(transform.inv)
    assert pickle.loads(pickle.dumps(transform.inv))(y).shape == x.shape


CONSTRAINTS = {
    "real": lambda C: C.real, "real_vector": lambda C: C.real_vector, "positive": lambda C: C.positive,
    "nonnegative": lambda C: C.nonnegative, "greater_than": lambda C: C.greater_than(0.2),
    "greater_than_eq": lambda C: C.greater_than_eq(-0.2), "less_than": lambda C: C.less_than(0.5),
    "unit_interval": lambda C: C.unit_interval, "interval": lambda C: C.interval(-1.0, 2.0),
    "half_open_interval": lambda C: C.half_open_interval(0, 1), "simplex": lambda C: C.simplex,
    "independent": lambda C: C.independent(C.positive, 1), "corr_cholesky": lambda C: C.corr_cholesky,
    "lower_cholesky": lambda C: C.lower_cholesky, "positive_definite": lambda C: C.positive_definite,
    "positive_semidefinite": lambda C: C.positive_semidefinite,
    "cat": lambda C: C.cat([C.positive, C.unit_interval], -1, [2, 1]),
    "stack": lambda C: C.stack([C.positive, C.simplex], 0),
    "boolean": lambda C: C.boolean, "square": lambda C: C.square, "dependent": lambda C: C.dependent,
    "multinomial": lambda C: C.multinomial(2), "lower_triangular": lambda C: C.lower_triangular,
}  # fmt: skip


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_transforms_to_constraints(registry, name):
    found = []
    for T in LIBRARIES:
        D = T.distributions
        constraint = CONSTRAINTS[name](D.constraints)
        try:
            transform = getattr(D, registry)(constraint)
        except NotImplementedError as error:
            found.append([str(error)])
            continue
        words = [repr(transform), transform.bijective]
        if name == "stack" and registry == "biject_to":  # parts of different shapes
            found.append(words)
            continue
        x = T.tensor(MATRICES if constraint.event_dim == 2 and name != "corr_cholesky" else VECTORS, dtype=T.float64)
        y = transform(x)
        if name != "stack":  # of the simplex, 1 value for each vector
            assert bool(constraint.check(y).all())
        found.append([*words, y.tolist()])
    assert found[0][:2] == found[1][:2]
    if len(found[0]) == 3:
        np.testing.assert_allclose(found[1][2], found[0][2], rtol=1e-9)


def test_registries_of_users():
    for T in LIBRARIES:
        D = T.distributions
        registry = D.constraint_registry.ConstraintRegistry()

        @registry.register(D.constraints.positive)
        def factory(constraint, D=D):
            return D.SoftplusTransform()

        assert repr(registry(D.constraints.greater_than(1.0))) == "SoftplusTransform()"
        registry.register(type(D.constraints.real), lambda constraint, D=D: D.identity_transform)
        assert registry(D.constraints.real) is D.identity_transform
        with pytest.raises(TypeError, match="Expected constraint to be either a Constraint subclass or instance, but "
                                            "got 3"):  # fmt: skip
            registry.register(3, factory)
        with pytest.raises(NotImplementedError, match="Cannot transform _Interval constraints"):
            registry(D.constraints.unit_interval)


WRONG = {
    "lengths": lambda D, T: D.CatTransform([D.ExpTransform()], 0, [1, 2]),
    "no transform": lambda D, T: D.StackTransform([D.ExpTransform(), 3]),
    "cat": lambda D, T: D.CatTransform([D.ExpTransform()], 0)(T.ones(2)),
    "cat's dim": lambda D, T: D.CatTransform([D.ExpTransform()], 1)(T.ones(2)),
    "stack": lambda D, T: D.StackTransform([D.ExpTransform()])(T.ones(2)),
    "stack's inverse": lambda D, T: D.StackTransform([D.ExpTransform()]).inv(T.ones(2)),
    "elements": lambda D, T: D.ReshapeTransform((2, 3), (5,)),
    "reshape": lambda D, T: D.ReshapeTransform((2, 3), (6,)).forward_shape((3, 2)),
    "reshape's dims": lambda D, T: D.ReshapeTransform((2, 3), (6,)).forward_shape((3,)),
    "reshape's inverse": lambda D, T: D.ReshapeTransform((2, 3), (6,)).inverse_shape((5,)),
    "triangle": lambda D, T: D.CorrCholeskyTransform().forward_shape((2, 4)),
    "square": lambda D, T: D.CorrCholeskyTransform().inverse_shape((2, 4)),
    "matrix": lambda D, T: D.CorrCholeskyTransform().inverse_shape((2,)),
    "softmax": lambda D, T: D.SoftmaxTransform().forward_shape(()),
    "stick": lambda D, T: D.StickBreakingTransform().inverse_shape(()),
    "vec": lambda D, T: D.utils.vec_to_tril_matrix(T.ones(5)),
    "tril": lambda D, T: D.utils.tril_matrix_to_vec(T.ones(2, 2), 2),
    "sign": lambda D, T: D.SoftmaxTransform().sign,
    "sign of all": lambda D, T: D.Transform().sign,
    "jacobian": lambda D, T: D.LowerCholeskyTransform().log_abs_det_jacobian(T.ones(2, 2), T.ones(2, 2)),
    "cache": lambda D, T: D.StickBreakingTransform(cache_size=2),
    "event_dim": lambda D, T: D.CorrCholeskyTransform().event_dim,
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    errors = []
    for T in LIBRARIES:
        with pytest.raises(Exception) as error:  # noqa: PT011 - compared below
            WRONG[name](T.distributions, T)
        errors.append((type(error.value), str(error.value).split()[:2]))
    assert errors[0][0] is errors[1][0]
    if errors[0][0] is not AssertionError:
        assert errors[0] == errors[1]


@pytest.mark.parametrize("diag", [-2, -1, 0, 1, 2])
def test_triangles_and_vectors(diag):
    found = []
    for T in LIBRARIES:
        utils = T.distributions.utils
        m = T.arange(18.0).reshape(2, 3, 3).requires_grad_()
        v = utils.tril_matrix_to_vec(m, diag)
        weight = T.arange(1.0, v.shape[-1] + 1)
        numbers = [v.tolist(), T.autograd.grad((v * weight).sum(), m)[0].tolist()]
        if diag < 1:
            leaf = v.detach().requires_grad_()
            back = utils.vec_to_tril_matrix(leaf, diag)
            numbers += [back.tolist(), T.autograd.grad((back * m.detach()).sum(), leaf)[0].tolist()]
        found.append(numbers)
    assert found[0] == found[1]


def test_transforms_of_users():
    for T in LIBRARIES:
        D = T.distributions

        class Plain(D.Transform):
            def _call(self, x):
                return x + 1

        class Own(Plain):
            def __init__(self, shift):
                super().__init__()
                self.shift = shift

        assert Plain().with_cache()._cache_size == 1
        with pytest.raises(NotImplementedError, match="with_cache is not implemented"):
            Own(2).with_cache()


def test_supports_depend():
    for name in ("Uniform", "Pareto", "GeneralizedPareto", "Binomial", "Categorical", "Multinomial", "Independent",
                 "MixtureSameFamily", "TransformedDistribution"):  # fmt: skip
        supports = [getattr(T.distributions, name).support for T in LIBRARIES]
        assert all(T.distributions.constraints.is_dependent(s) for T, s in zip(LIBRARIES, supports)), name
        known = []
        for support in supports:
            try:
                known.append((support.is_discrete, support.event_dim))
            except NotImplementedError:
                known.append(None)
        assert known[0] == known[1], name
    assert repr(xgrad.distributions.Uniform(0.0, 1.0).support).startswith("Interval")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["CorrCholesky", "StickBreaking", "PositiveDefinite", "Cat", "Stack", "Reshape"])
def test_compiled_and_lazy_and_mapped(name):
    make, values = TABLE[name]
    transform = make(xgrad.distributions, xgrad)
    x = xgrad.tensor(values, requires_grad=True)

    def step(x):
        y = transform(x)
        total = y.pow(2).sum() + transform.inv(y).sum()
        if transform.bijective:
            total = total + transform.log_abs_det_jacobian(x, y).sum()
        return xgrad.autograd.grad(total, x)[0]

    expected = step(x).tolist()
    with xgrad.lazy():
        lazily = step(x).tolist()
    np.testing.assert_allclose(lazily, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(xgrad.compile(step)(x).tolist(), expected, rtol=1e-4, atol=1e-5)
    if name != "Stack":
        np.testing.assert_allclose(xgrad.vmap(transform)(x).tolist(), transform(x).tolist(), rtol=1e-5)


@pytest.mark.parametrize("name", torch.distributions.__all__)
def test_classes_have_pytorchs_members(name):
    theirs, ours = (getattr(T.distributions, name) for T in LIBRARIES)
    if not isinstance(theirs, type):
        assert callable(ours) is callable(theirs)
        return
    if name != "InverseGamma":  # its parameters are attributes of each
        assert {member for member in dir(theirs) if not member.startswith("_")} - set(dir(ours)) == set()
    for member in ("support", "domain", "codomain", "sign"):
        values = [getattr(kind, member, None) for kind in (theirs, ours)]
        if isinstance(values[0], torch.distributions.constraints.Constraint):
            assert type(values[1]).__name__ == type(values[0]).__name__, member
    signatures = [list(inspect.signature(kind.__init__).parameters) for kind in (theirs, ours)]
    assert signatures[1] == signatures[0]


def test_old_form_of_samples():
    for T in LIBRARIES:
        with pytest.warns(FutureWarning, match="will be deprecated"):
            assert tuple(T.distributions.Normal(T.zeros(2), 1.0).sample_n(3).shape) == (3, 2)


def test_transforms_are_compared_and_not_hashed():
    for T in LIBRARIES:
        D = T.distributions
        for make in (D.ExpTransform, D.SoftmaxTransform, D.AbsTransform, lambda D=D: D.AffineTransform(1.0, 2.0)):
            for transform in (make(), make().inv, D.ComposeTransform([make()])):
                with pytest.raises(TypeError, match="unhashable"):
                    hash(transform)
            assert make() == make()
            assert make().inv == make().inv
