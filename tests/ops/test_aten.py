"""PyTorch's internal operators under `xgrad.ops.aten`, and linear_cross_entropy."""

import numpy as np
import pytest
import torch

import xgrad

from .derivatives import agree, numbers, value

X = numbers(2, 4, 3)
WEIGHT, BIAS = numbers(4, seed=1), numbers(4, seed=2)


def aten(lib):
    return lib.ops.aten


def same(function):
    """Assert that all results are PyTorch's, with their dtypes and whether they require grad."""
    got, wanted = function(xgrad), function(torch)
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        assert g.requires_grad == w.requires_grad
        assert value(g).dtype == value(w).dtype
        assert g.shape == tuple(w.shape)
        np.testing.assert_allclose(value(g), value(w), rtol=1e-9, atol=1e-10)


@pytest.mark.exhaustive
def test_normalization_gives_its_statistics():
    def x(lib):
        return lib.tensor(X, requires_grad=True)

    same(lambda lib: lib.native_layer_norm(x(lib), [4, 3], None, None, 1e-5))
    same(lambda lib: lib.native_group_norm(x(lib), lib.tensor(WEIGHT), None, 2, 4, 3, 2, 1e-5))
    agree(lambda lib, x: tuple(lib.native_group_norm(x, None, None, 2, 4, 3, 2, 1e-5)), X, order=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_follows_the_batch(training):
    def run(lib):
        mean, var = lib.tensor(np.zeros(4)), lib.tensor(np.ones(4))
        x = lib.tensor(X, requires_grad=True)
        found = lib.native_batch_norm(x, lib.tensor(WEIGHT), lib.tensor(BIAS), mean, var, training, 0.1, 1e-5)
        return *found, mean, var

    same(run)
    if training:
        for bare in (lambda lib, x: aten(lib)._native_batch_norm_legit(x, None, None, True, 0.1, 1e-5),
                     lambda lib, x: aten(lib)._batch_norm_with_update(
                         x, None, None, lib.tensor(np.zeros(4)), lib.tensor(np.ones(4)), 0.1, 1e-5)):  # fmt: skip
            same(lambda lib, bare=bare: bare(lib, lib.tensor(X, requires_grad=True)))


def test_gradients_of_softmax_and_dropout_as_operators():
    g, y = numbers(3, 4), np.abs(numbers(3, 4, seed=1))
    agree(lambda lib, g, y: aten(lib)._softmax_backward_data(g, y, 1, y.dtype), g, y, order=1, forward=False)
    agree(lambda lib, g, y: aten(lib)._log_softmax_backward_data(g, y, 1, y.dtype), g, y, order=1, forward=False)
    agree(lambda lib, g, m: aten(lib).native_dropout_backward(g, m, 2.0), g, g > 0, order=1, forward=False)
    out, mask = xgrad.native_dropout(xgrad.ones(1000), 0.25, True)
    assert 600 < mask.sum().item() < 900
    np.testing.assert_allclose(out.numpy(), mask.numpy() / 0.75, rtol=1e-6)


def test_softmax_of_nothing_is_zero_and_so_is_its_gradient():
    x = numbers(2, 3)
    x[0] = -np.inf
    agree(lambda lib, x: aten(lib)._safe_softmax(x, 1), x, order=1, forward=False)


def test_masked_indices_may_be_out_of_range():
    mask, rows, columns = np.array([True, False, True]), np.array([0, 7, -1]), np.array([-3, 1, 9])
    agree(
        lambda lib, x, m, i, j: aten(lib)._unsafe_masked_index(x, m, [None, i, j], 2.0),
        X, mask, rows, columns, order=1, forward=False,
    )  # fmt: skip
    agree(
        lambda lib, x, m, i, j, v: aten(lib)._unsafe_masked_index_put_accumulate(x, m, [i, j], v),
        X[0], mask, rows, columns, numbers(3), order=1, forward=False,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="unexpected index type"):
        aten(xgrad)._unsafe_masked_index(xgrad.tensor(X), xgrad.tensor(mask), [xgrad.tensor(numbers(3))], 0.0)


def test_chunks_are_padded_and_joined():
    same(lambda lib: (aten(lib)._chunk_cat([lib.tensor(numbers(3, 2)), lib.tensor(numbers(4, 2))], 0, 2),))
    same(lambda lib: (aten(lib)._chunk_cat([lib.tensor(numbers(2, 3)), lib.tensor(numbers(2, 4, 1))], 1, 2),))
    with pytest.raises(RuntimeError, match="non-empty input tensor list"):
        aten(xgrad)._chunk_cat([], 0, 2)
    with pytest.raises(RuntimeError, match=r"same sizes of 0,...,dim-1 dimensions"):
        aten(xgrad)._chunk_cat([xgrad.ones(2, 3), xgrad.ones(3, 2)], 1, 2)


def test_sampling_by_number():
    image, grid = numbers(1, 2, 4, 4), np.tanh(numbers(1, 3, 3, 2))
    for mode in range(3):
        agree(lambda lib, x, g, m=mode: lib.grid_sampler_2d(x, g, m, 1, False), image, grid, order=0, forward=False)
    agree(lambda lib, x: aten(lib)._upsample_bilinear2d_aa(x, [2, 3], False, None, None), image, order=1)
    agree(lambda lib, x: aten(lib)._upsample_bicubic2d_aa(x, None, False, [0.5, 0.5]), image, order=0)


# -- linear_cross_entropy ---------------------------------------------------------------------------------------------

ROWS, CLASSES = numbers(5, 3), numbers(4, 3, seed=1)
TARGET = np.array([0, 3, -100, 1, 2])


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_linear_cross_entropy_in_chunks_is_the_whole_one(reduction):
    weight = np.array([1.0, 2.0, 0.5, 1.5])

    def loss(lib, x, w, b, target, weight, options=None):
        return lib.nn.functional.linear_cross_entropy(
            x, w, target, linear_bias=b, weight=weight.detach(), reduction=reduction, options=options
        )

    arrays = (ROWS, CLASSES, WEIGHT, TARGET, weight)
    agree(loss, *arrays, order=1)
    options = xgrad.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    agree(lambda lib, *xs: loss(lib, *xs, options=options if lib is xgrad else None), *arrays)


def test_linear_cross_entropy_of_a_single_row_and_of_many_dimensions():
    def loss(lib, x, w, target, **options):
        return lib.nn.functional.linear_cross_entropy(x, w, target, **options)

    agree(loss, ROWS[0], CLASSES, TARGET[1], order=1)
    agree(loss, ROWS, numbers(4, 2, 3), np.stack([TARGET, TARGET], 1), order=1)
    agree(lambda lib, *xs: loss(lib, *xs, label_smoothing=0.1), ROWS, CLASSES, TARGET, order=1)


@pytest.mark.eager("failures")
def test_linear_cross_entropy_refuses_and_warns():
    F, options = xgrad.nn.functional, xgrad.nn.LinearCrossEntropyOptions()
    x, w, target = xgrad.tensor(ROWS), xgrad.tensor(CLASSES), xgrad.tensor(TARGET)
    with pytest.raises(RuntimeError, match="expected equal input and linear_weight last dimensions"):
        F.linear_cross_entropy(x[:, :2], w, target)
    with pytest.raises(RuntimeError, match="expected linear_bias shape"):
        F.linear_cross_entropy(x, w, target, linear_bias=x[0])
    with pytest.raises(IndexError, match="out of bounds"):
        F.linear_cross_entropy(x, w, target + 9, options=options)
    with pytest.warns(UserWarning, match="``options`` ignored"):
        F.linear_cross_entropy(x, w, target, label_smoothing=0.1, options=options)
    for wrong in ({"acc_policy": "best"}, {"chunking_method": "ratio"}, {"batch_chunk_size": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            xgrad.nn.LinearCrossEntropyOptions(**wrong)
    with pytest.raises(ValueError, match="pass only one"):
        xgrad.nn.LinearCrossEntropyOptions(batch_chunk_size=3, chunking_method="aspect_ratio").rows(64, 4, 4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("stride", [1, 2])
def test_gradient_of_max_pool_as_an_operator(stride):
    """Windows overlap at stride 1; on the values of the input nothing depends."""

    def run(lib):
        x = lib.tensor(numbers(2, 4, 4), requires_grad=True)
        pool = (2, stride, 0, 1, False)
        out, indices = lib.nn.functional.max_pool2d_with_indices(x, *pool)
        g = lib.tensor(numbers(*out.shape), requires_grad=True)
        back = aten(lib).max_pool2d_with_indices_backward(g, x, *([n, n] for n in pool[:4]), False, indices)
        return back, *lib.autograd.grad((back * back).sum(), (g, x))

    same(run)
