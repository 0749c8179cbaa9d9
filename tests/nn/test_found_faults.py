"""Faults of layers that comparisons with PyTorch found: dtypes, orders, empty batches, counts."""

import numpy as np
import pytest
import torch

import xgrad
from xgrad import nn

F = nn.functional


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float", "double"])
def test_casts_of_modules_leave_complex_numbers(cast):
    m = nn.Linear(1, 1)
    m.register_buffer("c", xgrad.complex(xgrad.ones(1), xgrad.ones(1)))
    getattr(m, cast)()
    assert m.c.is_complex()
    assert m.c.tolist() == [1 + 1j]
    assert m.weight.dtype == getattr(xgrad.ones(1), cast)().dtype


def test_dictionaries_of_parameters_sort_plain_ones():
    pairs = [("b", xgrad.ones(2)), ("a", xgrad.ones(1))]
    for T, made in ((torch, [(k, torch.ones(v.shape)) for k, v in pairs]), (xgrad, pairs)):
        parameters = T.nn.ParameterDict(dict(made))
        assert [p.shape for p in parameters.parameters()] == [(1,), (2,)]
        assert [*T.nn.ParameterDict(made)] == ["b", "a"]
        assert [*T.nn.ParameterDict(made).copy()] == ["b", "a"]


def test_an_empty_batch_has_gradients_of_zeros():
    for training in (True, False):
        layer = nn.BatchNorm1d(3).train(training)
        layer(xgrad.zeros(0, 3)).sum().backward()
        assert layer.weight.grad.tolist() == layer.bias.grad.tolist() == [0, 0, 0]
        assert layer.bfloat16()(xgrad.zeros(0, 3, dtype=xgrad.bfloat16)).dtype == xgrad.bfloat16


def test_averages_of_half_precision_count_beyond_its_largest_number():
    layer = nn.BatchNorm1d(3, momentum=None).half()
    layer.num_batches_tracked.fill_(70_000)
    layer(100 * xgrad.arange(12.0).reshape(4, 3).half())
    assert all(layer.running_var > 1)


def test_results_have_pytorchs_dtypes_where_weights_are_wider():
    x, target = xgrad.ones(2, 4).bfloat16(), xgrad.zeros(2, 4).bfloat16()
    wide = xgrad.ones(4)
    assert nn.RMSNorm(4)(x).dtype == xgrad.bfloat16
    assert F.binary_cross_entropy_with_logits(x, target, pos_weight=wide).dtype == xgrad.bfloat16
    assert F.binary_cross_entropy_with_logits(x, target, weight=wide).dtype == xgrad.bfloat16
    assert F.binary_cross_entropy(x, target, weight=wide).dtype == xgrad.bfloat16


@pytest.mark.eager("failures")
def test_a_negative_variance_is_an_error():
    for var in (-xgrad.ones(2), -1.0):
        with pytest.raises(ValueError, match="var has negative"):
            F.gaussian_nll_loss(xgrad.ones(2), xgrad.ones(2), var)


def test_spectral_norm_of_a_vector():
    assert nn.utils.spectral_norm(nn.LayerNorm(5))(xgrad.ones(2, 5)).shape == (2, 5)


@pytest.mark.parametrize("name", ["multi_margin_loss", "multilabel_margin_loss"])
def test_a_class_out_of_range_is_nan_in_a_program(name):
    """It was a loss of 0."""
    loss = getattr(xgrad.nn.functional, name)
    target = xgrad.tensor([1, 7]) if name == "multi_margin_loss" else xgrad.tensor([[1, -1, 0], [7, -1, 0]])
    x = xgrad.tensor([[0.1, 0.2, 0.3], [0.3, 0.1, 0.2]])
    found = xgrad.compile(lambda x, t: loss(x, t, reduction="none"))(x, target)
    assert found.isnan().tolist() == [False, True]
    with pytest.raises(RuntimeError, match="target out of range"):
        loss(x, target)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_of_halves_run_for_all_ranks(dtype):
    """XLA's CPU compiler refuses some if the CPU has bfloat16: of three dimensions with two, sums over two of them."""
    for shapes, function in (
        (((2, 5, 16), (9, 16), (9,)), lambda T, x, w, b: T.nn.functional.linear(x, w, b)),
        (((2, 3, 5, 8), (2, 3, 8, 5)), lambda T, x, y: x @ y),
        (((2, 5, 8), (8,)), lambda T, x, y: x @ y),
        (((4, 2, 3), (3, 5)), lambda T, x, y: x @ y),
        (((2, 3, 4), (3, 5)), lambda T, x, y: T.einsum("ijk,jl->kil", x, y)),
        (((2, 5, 8), (3, 8, 5)), lambda T, x, y: T.einsum("abi,cia->abc", x, y[..., :2])),
        (((4, 6), (2, 5, 6)), lambda T, x, y: T.einsum("oi,abi->bao", x, y)),
        (((2, 3, 9), (4, 3, 3)), lambda T, x, w: T.nn.functional.conv1d(x, w, padding=1)),
        (((2, 4, 6), (3, 4, 4), (3, 6, 6)), lambda T, x, v, w: T.einsum("nai,oab,oij->nbj", x, v, w)),
    ):
        found = {}
        for T in (torch, xgrad):
            torch.manual_seed(2)
            made = [torch.randn(shape) / 2 for shape in shapes]
            leaves = [T.tensor(m.tolist(), dtype=getattr(T, dtype), requires_grad=True) for m in made]
            out = function(T, *leaves)
            out.sum().backward()
            found[T] = [a.detach().float().numpy() for a in (out, *[leaf.grad for leaf in leaves])]
        for a, b in zip(*found.values(), strict=True):
            np.testing.assert_allclose(a, b, rtol=0.02, atol=0.05)
