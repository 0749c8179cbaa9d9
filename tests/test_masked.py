"""xgrad.masked: values, derivatives, dtypes and errors as those of torch.masked."""

import jax
import numpy as np
import pytest

import xgrad

from .ops.derivatives import agree, numbers
from .oracle import as_torch, same_error

X = numbers(3, 4)
MASK = np.array([[True, False, True, True], [False] * 4, [True, True, False, True]])
SOME = np.array([[True, False, True, True], [False, True, True, False], [True, True, False, True]])
REDUCTIONS = ["sum", "prod", "amax", "amin", "mean", "logsumexp", "norm", "var"]


def _masked(name, mask, *args, **options):
    return lambda lib, x: getattr(lib.masked, name)(x, *args, mask=lib.tensor(mask), **options)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    agree(_masked(name, SOME), X)
    agree(_masked(name, SOME[0], dim=1, keepdim=True), X, order=1, forward=False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "logsumexp", "mean", "var", "std"])
def test_a_slice_of_which_nothing_is_left(name):
    as_torch(lambda T: _masked(name, MASK, 1)(T, T.tensor(X)))


@pytest.mark.parametrize("name", ["sum", "amin", "mean", "std"])
def test_without_a_mask(name):
    agree(lambda lib, x: getattr(lib.masked, name)(x, (0, 1)), X, order=1, forward=False)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin", "cumsum", "cumprod"])
def test_normalizations(name):
    agree(_masked(name, SOME, -1), X)


@pytest.mark.parametrize("ord", [2.0, 1.0, 0.0, float("inf"), -float("inf")])
def test_norms(ord):
    agree(_masked("norm", SOME, ord, 1), X, order=1, forward=False)
    agree(_masked("normalize", SOME, ord, 1), X, order=1, forward=False)


def test_std_median_and_logaddexp():
    agree(_masked("std", SOME, 1, unbiased=False), X, order=1, forward=False)
    agree(_masked("median", MASK, 1), X, order=1, forward=False)
    agree(
        lambda lib, x, y: lib.masked.logaddexp(x, y, input_mask=lib.tensor(SOME), other_mask=lib.tensor(MASK)),
        X, X[::-1].copy(), order=1, forward=False,
    )  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "argmax", "argmin", "logsumexp", "var", "median"])
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8"])
def test_integers(name, dtype):
    x = (np.arange(12).reshape(3, 4) * 7 % 11).astype(dtype)
    as_torch(lambda T: _masked(name, SOME, 1)(T, T.tensor(x)), rtol=1e-6)


def test_the_dtype_that_was_asked_for():
    def program(T):
        x = T.tensor(X)
        names = ["sum", "amax", "argmax", "mean", "var", "logsumexp"]
        return [_masked(n, SOME, dim=1, dtype=T.float32)(T, x) for n in names] + [
            _masked("softmax", SOME, 1, dtype=T.float32)(T, x),
            _masked("cumsum", SOME, 1)(T, T.tensor([[1, 2, 3, 4]] * 3)),
        ]  # fmt: skip

    as_torch(program, rtol=1e-5)


def test_runs_under_a_trace():
    found = jax.jit(lambda a, m: xgrad.masked.mean(xgrad.tensor(a), 1, mask=xgrad.tensor(m))._read())(X, SOME)
    np.testing.assert_allclose(found, (X * SOME).sum(1) / SOME.sum(1))


REFUSED = {
    "dims of the mask": (lambda T, x: T.masked.sum(x, mask=T.tensor(MASK[None])), "mask dimensionality higher than"),
    "shape of the mask": (lambda T, x: T.masked.sum(x, mask=T.tensor(MASK[:2])), "expanded size|must match|broadcast"),
    "dims twice": (lambda T, x: T.masked.sum(x, (0, 0)), "appears multiple times in the list of dims"),
    "dim": (lambda T, x: T.masked.softmax(x, 2), "Dimension out of range"),
    "mean of integers": (lambda T, x: T.masked.mean(x.long()), "mean.*: Could not infer output dtype. Input dtype"),
    "mean in integers": (lambda T, x: T.masked.mean(x, dtype=T.int32), "Optional dtype must be either"),
    "median": (lambda T, x: T.masked.median(x.long(), 1, mask=T.tensor(MASK)), "no fully masked out rows"),
    "bools": (lambda T, x: T.masked.amax(x > 0, mask=T.tensor(MASK)), "identity of amax"),
    "unbiased": (lambda T, x: T.masked.var(x, 0, True, correction=1), "Only one of unbiased and correction"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    program, match = REFUSED[name]
    same_error(lambda T: program(T, T.tensor(X)), match)


def test_sparse_tensors_are_refused():
    with pytest.raises(NotImplementedError, match="to_dense"):
        xgrad.masked.sum(xgrad.eye(2).to_sparse(), mask=xgrad.ones(2, 2))
