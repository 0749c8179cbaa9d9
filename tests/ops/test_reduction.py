"""Sums, products, variances, extrema, medians, norms: values, derivatives, ties and zeros, what is saved, errors."""

import numpy as np
import pytest
import torch

import xgrad
from xgrad.dispatch.saved_attributes import kept_names

from ..traced import as_torch
from .derivatives import agree, numbers

X = numbers(3, 4)
NAN = np.where(numbers(3, 4, seed=1) > 0.6, np.nan, X)
TIES = np.array([[3.0, 1.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0], [0.0, -1.0, 4.0, -1.0]])

BY_DIM = ["sum", "mean", "nansum", "nanmean", "prod", "logsumexp", "amax", "amin", "std", "var"]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", BY_DIM)
def test_reductions_over_one_dimension_and_their_derivatives(name):
    agree(lambda lib, x: getattr(lib, name)(x, dim=1), X)
    agree(lambda lib, x: getattr(x, name)(-2, keepdim=True), X, order=1, forward=False)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", sorted(set(BY_DIM) - {"logsumexp"}))
def test_reductions_of_all_elements(name):
    agree(lambda lib, x: getattr(lib, name)(x), X)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "var", "logsumexp"])
def test_reductions_over_several_dimensions(name):
    agree(lambda lib, x: getattr(lib, name)(x, (0, -1)), numbers(2, 3, 2), order=1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "prod", "all", "any"])
def test_zero_dimensional_input(name):
    agree(lambda lib, x: getattr(lib, name)(x, dim=0), np.array(2.0))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["nansum", "nanmean", "nanmedian", "max", "median"])
def test_nan(name):
    agree(lambda lib, x: getattr(lib, name)(x), NAN, order=1, forward=False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
def test_integers_are_summed_as_int64(dtype):
    x = (np.arange(6) % 3).astype(dtype)
    for name in ("sum", "prod", "nansum", "count_nonzero", "all", "any"):
        if not (dtype == "bool" and name == "nansum"):
            agree(lambda lib, x, name=name: getattr(lib, name)(x), x)


def test_sum_in_another_dtype_returns_the_gradient_in_the_inputs():
    x = xgrad.tensor(X.astype("float32"), requires_grad=True)
    y = x.sum(dtype=xgrad.float64)
    assert y.dtype == xgrad.float64
    y.backward()
    assert x.grad.dtype == xgrad.float32


def test_mean_of_integers_is_refused():
    with pytest.raises(RuntimeError, match=r"could not infer output dtype.*Got: Long"):
        xgrad.mean(xgrad.tensor(np.arange(3)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("zeros", [(), (1,), (1, 2), (0, 1, 2)])
def test_prod_and_cumprod_with_zeros_to_second_order(zeros):
    x = numbers(4)
    x[list(zeros)] = 0
    agree(lambda lib, x: lib.prod(x), x)
    agree(lambda lib, x: lib.prod(x, 0), x)
    agree(lambda lib, x: lib.cumprod(x, 0), x)


def test_a_sum_saves_nothing_and_a_maximum_only_indices():
    x = xgrad.tensor(X, requires_grad=True)
    assert x.sum(0).grad_fn.saved == ()
    assert x.mean(0).grad_fn.saved == ()
    assert kept_names(x.max(0).values.grad_fn) == ["indices"]
    assert kept_names(x.sort(0).values.grad_fn) == ["indices"]


# -- variance ---------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((), {}),
        ((False,), {}),
        ((1, False), {}),
        ((1, True, True), {}),
        ((), {"unbiased": False}),
        ((), {"dim": 0, "correction": 0}),
        (((0, 1),), {"correction": 2, "keepdim": True}),
    ],
)
def test_overloads_of_variance(name, args, options):
    agree(lambda lib, x: getattr(lib, name)(x, *args, **options), X, order=1, forward=False)


def test_std_has_gradient_zero_where_it_is_zero():
    agree(lambda lib, x: lib.std(x, 1), TIES, order=1)
    agree(lambda lib, x: lib.std_mean(x, 1), TIES, order=1, forward=False)


def test_variance_of_complex_numbers_is_real():
    agree(lambda lib, x: lib.var(x, 0), X + 1j * numbers(3, 4, seed=2), order=1)


def test_unbiased_and_correction_together_are_refused():
    with pytest.raises(TypeError, match="unbiased= or correction="):
        xgrad.var(xgrad.tensor(X), unbiased=True, correction=0)


# -- extrema ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["amax", "amin", "aminmax"])
def test_ties_share_the_gradient_evenly(name):
    agree(lambda lib, x: getattr(lib, name)(x, dim=1), TIES, order=1)


@pytest.mark.parametrize("name", ["max", "min", "amax", "aminmax"])
def test_ties_of_all_elements_share_the_gradient_evenly(name):
    agree(lambda lib, x: getattr(lib, name)(x), TIES, order=1, forward=False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["max", "min"])
def test_along_a_dimension_the_index_gets_the_whole_gradient(name):
    agree(lambda lib, x: tuple(getattr(lib, name)(x, 1)), TIES)
    agree(lambda lib, x: tuple(getattr(lib, name)(x, -2, True)), X)


def test_values_and_indices_are_named():
    found = xgrad.tensor(X).max(1)
    assert type(found) is xgrad.return_types.max
    np.testing.assert_array_equal(found.indices.numpy(), X.argmax(1))
    assert repr(found).startswith("xgrad.return_types.max(\nvalues=tensor(")


def test_values_may_be_changed_in_place_before_backward():
    x = xgrad.tensor(TIES, requires_grad=True)
    values = x.max(1).values
    values.mul_(2)
    values.sum().backward()
    assert x.grad.sum().item() == 6


def test_max_and_min_of_two_tensors():
    agree(lambda lib, x, y: lib.max(x, y), X, numbers(3, 4, seed=5))
    agree(lambda lib, x, y: lib.min(x, other=y), X, numbers(4, seed=5))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_indices_of_extrema(name):
    for args in ((), (1,), (0, True)):
        agree(lambda lib, x, args=args: getattr(lib, name)(x, *args), TIES)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["median", "nanmedian", "mode", "kthvalue"])
def test_selection_by_rank(name):
    args = (2,) if name == "kthvalue" else ()
    for dim in (0, -1):
        agree(lambda lib, x, dim=dim: tuple(getattr(lib, name)(x, *args, dim=dim)), numbers(3, 5))


def test_mode_takes_the_smallest_of_the_most_frequent():
    found = xgrad.mode(xgrad.tensor(TIES), 1)
    np.testing.assert_array_equal(found.values.numpy(), [1, 2, -1])
    np.testing.assert_array_equal(found.indices.numpy(), torch.mode(torch.tensor(TIES), 1).indices.numpy())


def test_extremum_of_nothing_is_refused():
    with pytest.raises(IndexError, match="Expected reduction dim 1 to have non-zero size"):
        xgrad.zeros(3, 0).max(1)
    with pytest.raises(RuntimeError, match="no order"):
        xgrad.amax(xgrad.tensor(X + 0j))


def test_dimensions_out_of_range_or_repeated_are_refused():
    x = xgrad.tensor(X)
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)"):
        x.sum(2)
    with pytest.raises(RuntimeError, match="dim 1 appears multiple times"):
        x.sum((1, -1))


# -- norms ------------------------------------------------------------------------------------------------------------

ORDERS = [0, 0.5, 1, 1.5, 2, 3, np.inf, -1, -np.inf]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("p", ORDERS)
def test_vector_norms(p):
    agree(lambda lib, x: lib.linalg.vector_norm(x, p, dim=1), X, order=1)
    agree(lambda lib, x: lib.norm(x, p), X, order=1 if p else 0, forward=False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("p", [1, 2, 3, np.inf])
def test_second_derivatives_of_vector_norms(p):
    agree(lambda lib, x: lib.linalg.vector_norm(x, p), X)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, np.inf])
def test_norms_have_gradient_zero_at_zero_and_share_ties(p):
    for x in ([0.0, 0.0], [0.0, 1.0], [1.0, -1.0]):
        agree(lambda lib, x: lib.linalg.vector_norm(x, p), np.array(x), order=1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("p", [1, 2, 3, np.inf])
def test_norms_of_complex_numbers_are_real(p):
    agree(lambda lib, x: lib.norm(x, p, 1), X + 1j * numbers(3, 4, seed=2), order=1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("p", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_matrix_norms(p):
    agree(lambda lib, x: lib.linalg.matrix_norm(x, p), numbers(2, 3, 4), order=1)
    agree(lambda lib, x: lib.linalg.norm(x, p, dim=(0, 2), keepdim=True), numbers(2, 3, 4), order=1, forward=False)


@pytest.mark.parametrize("p", [1, 2, float("inf"), "nuc", -1, -2])
def test_norms_of_matrices_without_elements(p):
    for shape in ((2, 0, 3), (2, 3, 0), (0, 3, 3)):
        try:
            wanted = torch.linalg.matrix_norm(torch.ones(shape), p)
        except (IndexError, RuntimeError):
            with pytest.raises(IndexError, match="matrices without elements have no norm"):
                xgrad.linalg.matrix_norm(xgrad.ones(shape), p)
        else:
            assert xgrad.linalg.matrix_norm(xgrad.ones(shape), p).tolist() == wanted.tolist()
    for T in (torch, xgrad):
        with pytest.raises(RuntimeError, match="must have at least 2 dimensions"):
            T.linalg.matrix_norm(T.ones(3), p)
        with pytest.raises(RuntimeError, match=r"Expected a floating point or complex tensor as input\. Got Long"):
            T.linalg.matrix_norm(T.ones(2, 2, dtype=T.int64), p)


def test_refused_arguments_of_distances():
    for T in (torch, xgrad):
        x = T.ones(2, 2)
        for p in (-1.0, float("nan")):
            with pytest.raises(RuntimeError, match="cdist only supports non-negative p values"):
                T.cdist(x, x, p=p)
            with pytest.raises(RuntimeError, match="pdist only supports non-negative p values"):
                T.nn.functional.pdist(x, p=p)
        with pytest.raises(ValueError, match="x is not a valid value for compute_mode"):
            T.cdist(x, x, compute_mode="x")


def test_norm_in_another_dtype():
    x = xgrad.tensor(X.astype("float32"))
    assert x.norm(dtype=xgrad.float64).dtype == xgrad.float64
    with pytest.raises(RuntimeError, match="Expected a floating point or complex tensor"):
        xgrad.linalg.vector_norm(xgrad.tensor(np.arange(3)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_distances(p):
    agree(lambda lib, x, y: lib.dist(x, y, p), X, numbers(4, seed=1), order=1)
    agree(lambda lib, x, y: lib.cdist(x, y, p=float(p)), X, numbers(2, 4, seed=1), order=1, forward=False)


def test_truth_along_no_dimension_is_that_of_each_element():
    def program(T):
        x = T.tensor([[1, 0], [2, 3]], dtype=T.uint8)
        return [[f(x, dim=dim), f(x.bool(), dim, keepdim=True)] for f in (T.all, T.any) for dim in ((), (0,), (0, 1))]

    as_torch(program)
