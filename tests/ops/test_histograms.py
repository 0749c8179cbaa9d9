"""histc, histogram, histogramdd, bincount: values, edges, weights, NaN, traces, what is refused."""

import jax
import numpy as np
import pytest

import xgrad

from ..oracle import same_error
from ..traced import as_torch
from .derivatives import agree, numbers

X = numbers(4, 5)
NAN = np.where(X > 1, np.nan, X)
POINTS = numbers(7, 2)
EDGES = np.array([-1.0, 0.0, 0.5, 2.0])


@pytest.mark.parametrize("args", [(4,), (4, -1, 1), (3, 0.5, 0.5), (5, -100, 100)])
def test_histc(args):
    as_torch(lambda T: [T.histc(T.tensor(X), *args), T.tensor(X[0, 0]).histc(*args), T.histc(T.ones(0), *args)])


def test_edges_are_torchs_last_bit():
    """A product with the reciprocal of a width would put 35 / 5 and (7.3 - 0.1) / 9 a rounding beside."""
    x = np.arange(500, dtype=np.float32) / 10
    as_torch(lambda T: [T.histc(T.tensor(x), 10, 0, 50), T.bucketize(T.tensor(x), T.linspace(0, 50, 7))])
    as_torch(lambda T: T.linspace(0.1, 7.3, 4, dtype=T.float64), rtol=0, atol=0)


def test_histc_leaves_nan_out():
    as_torch(lambda T: T.histc(T.tensor(NAN), 4, -2, 2))


def test_histc_counts_integers_too():
    found = xgrad.histc(xgrad.tensor([0, 1, 1, 255], dtype=xgrad.uint8), 4, 0, 255)
    assert found.tolist() == [3, 0, 0, 1]
    assert found.dtype == xgrad.uint8


HISTOGRAMS = {
    "bins": lambda T, x: T.histogram(x, 4),
    "range": lambda T, x: T.histogram(x, 4, range=(-1.0, 1.0)),
    "density": lambda T, x: x.histogram(3, density=True),
    "weight": lambda T, x: T.histogram(x, 3, weight=x.abs()),
    "edges": lambda T, x: T.histogram(x, T.tensor(EDGES), weight=x.abs(), density=True),
    "one value": lambda T, x: T.histogram(x[0, 0], 2),
    "nothing": lambda T, x: T.histogram(x[:0], 2),
    "half": lambda T, x: T.histogram(x.half(), 4, range=(-1.0, 1.0)),
    "points": lambda T, x: T.histogramdd(T.tensor(POINTS), (2, 3)),
    "points with a range": lambda T, x: T.histogramdd(T.tensor(POINTS), 3, range=[-1.0, 1.0, -2.0, 0.5], density=True),
    "points with edges": lambda T, x: T.histogramdd(
        T.tensor(POINTS), [T.tensor(EDGES), T.tensor(EDGES[:3])], weight=T.tensor(POINTS[:, 0])
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histogram(name):
    def program(T):
        found = HISTOGRAMS[name](T, T.tensor(X))
        return found.hist, found.bin_edges

    as_torch(program)


def test_an_element_on_an_edge_is_in_the_bin_on_its_right_and_on_the_last_one_in_the_last():
    as_torch(lambda T: T.histogram(T.tensor([0.0, 1.0, 1.0, 2.0]), T.tensor([0.0, 1.0, 2.0])).hist)


@pytest.mark.exhaustive
def test_histograms_run_under_a_trace():
    def counts(x):
        found = xgrad.histogram(x, 4)
        return xgrad.histc(x, 4, -1, 1)._read(), found.hist._read()

    x = xgrad.tensor(X)
    traced = jax.jit(lambda array: counts(xgrad.tensor(array)))(X)
    for ours, wanted in zip(traced, counts(x)):
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_bincount(dtype):
    v = np.array([0, 3, 3, 1], dtype)
    as_torch(lambda T: [T.tensor(v).bincount(), T.bincount(T.tensor(v), minlength=6), T.bincount(T.tensor(v[:0]))])
    for weights in (X[0, :4], X[0, :4].astype("float32"), np.arange(4)):
        as_torch(lambda T, w=weights: T.bincount(T.tensor(v), T.tensor(w), 2))


def test_bincount_has_a_gradient_in_its_weights():
    w = xgrad.tensor([1.0, 2.0, 3.0], dtype=xgrad.float64, requires_grad=True)
    counts = xgrad.bincount(xgrad.tensor([0, 2, 2]), w)
    (counts * xgrad.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert w.grad.tolist() == [1, 100, 100]


def test_bincount_says_under_a_trace_what_to_use():
    with pytest.raises(RuntimeError, match=r"bincount makes a tensor whose shape depends on values.*scatter_add"):
        jax.jit(lambda a: xgrad.tensor(a).bincount()._read())(np.arange(3))
    with pytest.raises(RuntimeError, match="dynamic shape"):
        xgrad.vmap(lambda x: x.bincount())(xgrad.tensor([[0, 1]]))


REFUSED = {
    "no bins": (lambda T, x: T.histc(x, 0), "bins must be > 0, but got 0"),
    "order": (lambda T, x: T.histc(x, 4, 1, -1), "max must be larger than min"),
    "infinite": (lambda T, x: T.histc(x, 4, 0, float("inf")), "is not finite"),
    "infinite data": (lambda T, x: T.histc(T.tensor([1.0, float("inf")])), "is not finite"),
    "complex": (lambda T, x: T.histc(x * 1j, 4, -1, 1), "not implemented for 'ComplexDouble'"),
    "integers": (lambda T, x: T.histogram(T.arange(3), 4, range=(0.0, 1.0)), "not implemented for 'Long'"),
    "one bound": (lambda T, x: T.histogram(x, 4, range=(0.0,)), "range should have 2 elements, but got 1"),
    "bounds": (lambda T, x: T.histogram(x, 4, range=(1.0, 0.0)), "min should not exceed max, but got min 1 max 0"),
    "weight": (lambda T, x: T.histogram(x, 4, weight=x[0]), "weight tensor is provided it should have the same shape"),
    "dtype of weight": (lambda T, x: T.histogram(x, 4, weight=x.float()), "weight tensor should have the same dtype"),
    "dtype of edges": (lambda T, x: T.histogram(x, T.tensor([0.0, 1.0])), "should have the same dtype"),
    "a matrix of edges": (lambda T, x: T.histogram(x, x), "bins tensor should have one dimension"),
    "one edge": (lambda T, x: T.histogram(x, x[0, :1]), "bins must be > 0, but got 0"),
    "bins of points": (lambda T, x: T.histogramdd(x, [2]), "size of bins must be equal to the innermost dimension"),
    "edges of points": (lambda T, x: T.histogramdd(x, [x[0]]), "expected 5 sequences of bin edges"),
    "no points": (lambda T, x: T.histogramdd(x[0], [2]), "at least 2 dimensions"),
    "negative": (lambda T, x: T.bincount(T.tensor([-1])), "1-d non-negative integral inputs"),
    "matrix": (lambda T, x: T.bincount(T.tensor([[1]])), "1-d non-negative integral inputs"),
    "floats": (lambda T, x: T.bincount(x[0]), "not implemented for 'Double'"),
    "minlength": (lambda T, x: T.bincount(T.tensor([1]), minlength=-1), "minlength should be >= 0"),
    "length": (lambda T, x: T.bincount(T.tensor([1]), x[0]), "same length"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    program, match = REFUSED[name]
    same_error(lambda T: program(T, T.tensor(X)), match)


SEGMENTS = {
    "lengths": (X, [[2, 0, 2]], "lengths", 0),
    "fewer": (X, [[1, 1]], "lengths", 0),
    "offsets": (X, [[0, 1, 4]], "offsets", 0),
    "of rows": (X, [[[2, 3], [0, 5], [5, 0], [4, 1]]], "lengths", 1),
    "offsets of rows": (X[:2], [[[0, 3, 5], [0, 0, 5]]], "offsets", -1),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("initial", [None, 0.25])
def test_segment_reduce(name, reduce, initial):
    x, (given,), kind, axis = SEGMENTS[name]
    options = {"axis": axis, "unsafe": name == "fewer", "initial": initial}

    def program(lib, x):
        run = lib._segment_reduce
        return run(x, reduce, **{kind: lib.tensor(given)}, **options)

    agree(program, x, order=1, forward=False)


@pytest.mark.exhaustive
def test_segment_reduce_has_more_derivatives_than_torch():
    def program(x):
        return xgrad.segment_reduce(x, "prod", lengths=xgrad.tensor([2, 3]))

    x = xgrad.tensor(X[0], requires_grad=True)
    assert xgrad.autograd.gradcheck(program, (x,), check_forward_ad=True)
    assert xgrad.autograd.gradgradcheck(program, (x,))


SEGMENTS_REFUSED = {
    "reduction": (lambda T, x: T._segment_reduce(x, "median", lengths=T.tensor([4])), "reduce argument must be either"),
    "sum": (lambda T, x: T._segment_reduce(x, "sum", lengths=T.tensor([1, 2])), "Expected all rows of lengths"),
    "negative": (lambda T, x: T._segment_reduce(x, "sum", lengths=T.tensor([5, -1])), "contains negative value"),
    "nothing": (lambda T, x: T._segment_reduce(x, "sum"), "lengths or offsets must be defined"),
    "integers": (lambda T, x: T._segment_reduce(T.arange(4), "sum", lengths=T.tensor([4])), "not implemented for"),
}


@pytest.mark.parametrize("name", SEGMENTS_REFUSED)
def test_segment_reduce_refuses(name):
    program, match = SEGMENTS_REFUSED[name]
    same_error(lambda T: program(T, T.tensor(X)), match)
