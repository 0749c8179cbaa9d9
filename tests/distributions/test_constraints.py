"""Constraints: their words, dimensions, checks and errors are torch's."""

import copy
import pickle

import pytest
import torch
import torch.distributions

import xgrad
import xgrad.distributions

LIBRARIES = (torch, xgrad)
VECTORS = [[0.0, 1.0, 0.0], [0.2, 0.3, 0.5], [-1.0, 2.0, 0.5]]
MATRICES = [
    [[1.0, 0.0], [0.6, 0.8]], [[2.0, 0.3], [0.3, 0.5]], [[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]],
    [[-1.0, 0.0], [0.5, 2.0]],
]  # fmt: skip
TABLE = {
    "boolean": lambda C: C.boolean, "one_hot": lambda C: C.one_hot, "real": lambda C: C.real,
    "nonnegative_integer": lambda C: C.nonnegative_integer, "positive_integer": lambda C: C.positive_integer,
    "integer_interval": lambda C: C.integer_interval(0, 1), "real_vector": lambda C: C.real_vector,
    "positive": lambda C: C.positive, "nonnegative": lambda C: C.nonnegative,
    "greater_than": lambda C: C.greater_than(0.2), "greater_than_eq": lambda C: C.greater_than_eq(0.2),
    "less_than": lambda C: C.less_than(0.5), "multinomial": lambda C: C.multinomial(1),
    "unit_interval": lambda C: C.unit_interval, "interval": lambda C: C.interval(0.2, 0.5),
    "half_open_interval": lambda C: C.half_open_interval(0.2, 0.5), "simplex": lambda C: C.simplex,
    "independent": lambda C: C.independent(C.positive, 2), "mixture": lambda C: C.MixtureSameFamilyConstraint(C.real),
    "mixture of vectors": lambda C: C.MixtureSameFamilyConstraint(C.simplex),
    "cat": lambda C: C.cat([C.positive, C.less_than(0.4)], -1, [2, 1]),
    "stack": lambda C: C.stack([C.positive, C.unit_interval, C.boolean], -1),
    "lower_triangular": lambda C: C.lower_triangular, "lower_cholesky": lambda C: C.lower_cholesky,
    "corr_cholesky": lambda C: C.corr_cholesky, "square": lambda C: C.square, "symmetric": lambda C: C.symmetric,
    "positive_semidefinite": lambda C: C.positive_semidefinite,
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_checks(name):
    theirs, ours = (TABLE[name](T.distributions.constraints) for T in LIBRARIES)
    assert (theirs.is_discrete, theirs.event_dim) == (ours.is_discrete, ours.event_dim)
    if name not in ("cat", "stack"):
        assert repr(theirs) == repr(ours)
    assert type(theirs).__name__ == type(ours).__name__
    values = MATRICES if ours.event_dim == 2 and name != "independent" else VECTORS
    values = values[:1] if name == "positive_semidefinite" else values  # the next test has the others
    assert theirs.check(torch.tensor(values)).tolist() == ours.check(xgrad.tensor(values)).tolist()
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert repr(copied) == repr(ours) or name in ("cat", "stack")


def test_definite_matrices_are_checked_one_by_one():
    C = xgrad.distributions.constraints
    assert C.positive_definite.check(xgrad.tensor(MATRICES)).tolist() == [False, True, False, False, False]
    assert C.positive_semidefinite.check(xgrad.tensor(MATRICES)).tolist()[1::2] == [True, False]
    for constraint in (C.square, C.symmetric, C.positive_definite, C.positive_semidefinite):
        assert constraint.check(xgrad.ones(2, 3)).tolist() is False


def test_dependent_constraints():
    for T in LIBRARIES:
        C = T.distributions.constraints
        assert C.is_dependent(C.dependent)
        assert C.is_dependent(C.dependent_property(event_dim=1))
        assert C.dependent(event_dim=1).event_dim == 1
        with pytest.raises(NotImplementedError, match="event_dim cannot be determined statically"):
            _ = C.dependent.event_dim
        with pytest.raises(ValueError, match="Cannot determine validity"):
            C.dependent.check(T.ones(1))
        with pytest.raises(AssertionError, match="must be a Constraint"):
            C.independent(3, 1)


def test_torch_has_no_more_constraints():
    ours, theirs = (T.distributions.constraints.__all__ for T in (xgrad, torch))
    assert set(theirs) == set(ours)
