"""Joining, repeating, flipping, triangles, diagonals, copies: values and derivatives as torch's; nothing is saved."""

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import same_error
from .derivatives import derivatives, numbers, tangents

A, B, V = numbers(2, 3), numbers(2, 3, seed=1), numbers(3, seed=2)
C = numbers(2, 3) + 1j * numbers(2, 3, seed=3)

PROGRAMS = {
    "cat": lambda T, x, y, v: T.cat([x, y, x], dim=-1),
    "cat_empty": lambda T, x, y, v: T.cat([x, T.zeros(0, dtype=T.float64), y]),
    "cat_mixed": lambda T, x, y, v: T.cat([x, T.ones(1, 3, dtype=T.int64)]),
    "stack": lambda T, x, y, v: T.stack([x, y], dim=1),
    "stacks": lambda T, x, y, v: [T.hstack([x, y]), T.vstack([x, v]), T.dstack([x, y]), T.column_stack([v, v])],
    "block_diag": lambda T, x, y, v: T.block_diag(x, v, y),
    "cartesian": lambda T, x, y, v: [T.cartesian_prod(v, v), T.combinations(v), T.combinations(v, 2, True)],
    "meshgrid": lambda T, x, y, v: [
        *T.meshgrid(v, x[0, :2], indexing="ij"),
        *T.meshgrid(v, v[0], v[:2], indexing="xy"),
    ],
    "repeat": lambda T, x, y, v: [x.repeat(2, 1, 2), x.repeat((1, 2)), v.repeat(0), T.tile(x, (2,)), x.tile(2, 1, 1)],
    "repeat_interleave": lambda T, x, y, v: [x.repeat_interleave(2), x.repeat_interleave(2, 1)],
    "repeat_tensor": lambda T, x, y, v: [x.repeat_interleave(T.tensor([2, 0, 1]), dim=1)],
    "flip": lambda T, x, y, v: [T.flip(x, (0, 1)), x.flip(-1), x.flip(dims=(0,)), T.fliplr(x), T.flipud(x)],
    "rot90": lambda T, x, y, v: [T.rot90(x), x.rot90(-1, (1, 0)), x.rot90(2)],
    "roll": lambda T, x, y, v: [x.roll(1), T.roll(x, (1, -1), (0, 1)), x.roll(2, -1)],
    "triangles": lambda T, x, y, v: [x.tril(), T.triu(x, 1), x.tril(diagonal=-1), T.stack([x, y]).triu()],
    "diagonals": lambda T, x, y, v: [v.diag(1), x.diag(), T.diag_embed(x, 1, 0, 2), T.diagflat(x, -1)],
    "sum_to_size": lambda T, x, y, v: [x.sum_to_size(1, 3), x.sum_to_size((3,)), x.sum_to_size(2, 3)],
    "clone": lambda T, x, y, v: [x.clone(), T.clone(x, memory_format=T.preserve_format)],
    "copies": lambda T, x, y, v: [T.narrow_copy(x, 1, 0, 2), T.select_copy(x, 0, 1), *T.unbind_copy(x), T.t_copy(x)],
    "scatters": lambda T, x, y, v: [T.select_scatter(x, v, 0, 1), x.slice_scatter(y[:, :2], 1, 0, 3, 2),
                                    x.diagonal_scatter(v[:2])],
}  # fmt: skip


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives(name):
    program, arrays = PROGRAMS[name], (A, B, V)
    for got, wanted in zip(derivatives(xgrad, program, arrays, 2), derivatives(torch, program, arrays, 2), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)
    for got, wanted in zip(tangents(xgrad, program, arrays), tangents(torch, program, arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["cat", "flip", "triangles", "repeat"])
def test_complex(name):
    program, arrays = PROGRAMS[name], (C, C * 2, C[0])
    for got, wanted in zip(derivatives(xgrad, program, arrays, 1), derivatives(torch, program, arrays, 1), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "program", [lambda x: x.flip(0), lambda x: x.tril(), lambda x: x.repeat(2, 2), lambda x: xgrad.cat([x, x]),
                lambda x: x.roll(1), lambda x: x.clone(), lambda x: x.diag_embed()]
)  # fmt: skip
def test_linear_operators_save_no_tensor(program):
    saved = program(xgrad.ones(2, 2, requires_grad=True)).grad_fn.saved
    assert all(isinstance(value, int) for value in saved)


def test_a_node_of_any_number_of_tensors_leads_to_those_that_require_grad():
    """Two of two, then two of three: the masks are the same, the nodes are not."""
    x, y, constant = xgrad.ones(2, requires_grad=True), xgrad.ones(2, requires_grad=True), xgrad.ones(2)
    leaves = [[fn for fn, _ in xgrad.cat(tensors).grad_fn.next_functions] for tensors in ([x, y], [x, y, constant])]
    assert [[fn is not None for fn in found] for found in leaves] == [[True, True], [True, True, False]]


def test_clone_and_copies_share_nothing():
    x = xgrad.zeros(2, 2)
    for copy in (x.clone(), xgrad.t_copy(x), xgrad.view_copy(x, (4,)), *xgrad.split_with_sizes_copy(x, [1, 1])):
        copy.add_(1)
    assert x.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (lambda T: T.cat([]), "non-empty list"),
        (lambda T: T.stack([]), "stack expects a non-empty TensorList"),
        (lambda T: T.hstack([]), "^hstack expects a non-empty TensorList"),
        (lambda T: T.column_stack([]), "column_stack expects a non-empty TensorList"),
        (lambda T: T.cat([T.ones(2, 3), T.ones(2, 2)]), "Sizes of tensors must match except in dimension 0"),
        (lambda T: T.cat([T.tensor(1.0)]), "zero-dimensional tensor"),
        (lambda T: T.cat([T.ones(2), T.ones(2, 2)]), "same number of dimensions"),
        (lambda T: T.stack([T.ones(2), T.ones(3)]), "expects each tensor to be equal size"),
        (lambda T: T.ones(2, 3).repeat(2), "can not be smaller than number of dimensions"),
        (lambda T: T.ones(3).flip(5), "Dimension out of range"),
        (lambda T: T.ones(3, 3).flip(0, 0), "appears multiple times"),
        (lambda T: T.ones(3).roll((1, 2)), "must align"),
        (lambda T: T.diag(T.ones(2, 2, 2)), "Supports 1D or 2D"),
        (lambda T: T.ones(3).sum_to_size(2), "is not expandable"),
        (lambda T: T.ones(3).tril(), "at least 2 dimensions"),
        (lambda T: T.ones(3).repeat_interleave(T.tensor([1, 2]), 0), "must have the same size"),
        (lambda T: T.ones(3).repeat_interleave(-1), "negative"),
        (lambda T: T.tensor([1, 2]).repeat_interleave(T.tensor([1, 2]), output_size=5), "does not match required size"),
        (lambda T: T.repeat_interleave(T.tensor([1, 2]), output_size=2), "does not match required size"),
        (lambda T: T.select_scatter(T.ones(2, 2), T.ones(3), 0, 0), "size equal to the slice"),
    ],
)
def test_wrong_arguments(program, match):
    same_error(program, match)


def test_sums_to_a_size_of_integers_do_not_wrap_around():
    assert xgrad.full((200,), 100, dtype=xgrad.int8).sum_to_size(1).tolist() == [20_000]
    assert xgrad.ones(2, 3, dtype=xgrad.bool).sum_to_size(2, 1).tolist() == [[3], [3]]
    with pytest.raises(RuntimeError, match="does not match required size"):
        xgrad.ones(2, 3).repeat_interleave(2, 1, output_size=5)
    assert xgrad.ones(2, 3).repeat_interleave(2, 1, output_size=6).shape == (2, 6)
