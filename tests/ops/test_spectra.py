"""Eigenvalues and singular values: equal ones, zeros, phases, and triangles that are not read."""

import numpy as np
import pytest
import torch

import xgrad

from ..traced import computed
from .derivatives import agree, derivatives, numbers, value

ROTATION = np.linalg.qr(numbers(3, 3))[0]
HERMITIAN = np.array([[1, 1j, 0], [-1j, 2, 1], [0, 1, 3]])
EQUAL = {"identity": np.eye(3), "zero": np.zeros((3, 3)), "rank one": np.ones((3, 3))}


def test_determinants_whose_products_overflow():
    large = [[[1e30, 1e30], [1e30, 2e30]], [[1e30, 1e30], [1e30, 1e30]], [[1e30, -1e-30], [1e30, 1e-30]]]
    assert xgrad.linalg.det(xgrad.tensor(large)).tolist() == [np.inf, 0, pytest.approx(2)]
    of_three = [np.diag([1e25, 1e25, 1e-30]), np.full((3, 3), 1e30), [[1e20, 1e20, 0], [1e20, -1e20, 0], [0, 0, 1e20]]]
    found = xgrad.linalg.det(xgrad.tensor(np.array(of_three, np.float32))).tolist()
    assert found == [pytest.approx(1e20), 0, -np.inf]


@pytest.mark.parametrize(("size", "scale"), [(4, 1e10), (4, 1e12), (4, 1e-10), (5, 1e9), (5, 1e10)])
def test_slopes_of_determinants_out_of_range(size, scale):
    at = xgrad.tensor(np.eye(size, dtype=np.float32) * np.float32(scale), requires_grad=True)
    xgrad.linalg.det(at).backward()
    with np.errstate(over="ignore"):
        expected = np.float32(scale ** (size - 1))
    np.testing.assert_allclose(np.diag(at.grad.numpy()), np.full(size, expected), rtol=1e-5)


def test_logarithms_of_determinants_out_of_range():
    matrices = [
        [[1e30, 0], [0, 1e30]], [[1e-30, 0], [0, 1e-30]], [[1e25, 2e25], [3e25, -1e25]], [[0, 1e25], [1e25, 0]],
        [[3e-23, 1e-23], [1e-23, 2e-23]], [[2, 1], [1, 3]],
    ]  # fmt: skip

    def found(T):
        at = T.tensor(matrices, requires_grad=True)
        sign, value = T.linalg.slogdet(at)
        value.sum().backward()
        return [sign, value, at.grad, T.logdet(at)]

    for ours, theirs in zip(found(xgrad), found(torch), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-38)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("number", [1.1, 0.7, 1e30])
def test_equal_rows_have_the_determinant_0(number, dtype):
    """A fused product and difference left the rounding of the other product: 1.4e-8 of 1.1."""
    for T in (xgrad, torch):
        A = T.full((2, 2), number, dtype=getattr(T, dtype))
        sign, value = T.linalg.slogdet(A)
        assert (T.linalg.det(A).item(), sign.item(), value.item()) == (0, 0, -np.inf)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("x", EQUAL.values(), ids=EQUAL)
def test_gradients_of_equal_and_zero_values_alone(x):
    agree(lambda lib, x: lib.linalg.eigvalsh(x).sum(), x, order=1)
    agree(lambda lib, x: lib.linalg.eigh(x).eigenvalues.pow(2).sum(), x, order=1)
    agree(lambda lib, x: lib.linalg.svdvals(x).pow(2).sum(), x, order=1)
    agree(lambda lib, x: lib.linalg.matrix_norm(x, 2), x, order=1, forward=False)
    agree(lambda lib, x: lib.linalg.det(x), x, order=1)


def with_a_zero_column(n, column):
    return numbers(n, n) * (np.arange(n) != column)


SINGULAR = {
    "diag(0, 2)": np.diag([0.0, 2.0]),
    "diag(0, 2, 1)": np.diag([0.0, 2.0, 1.0]),
    "diag(1, 2, 0)": np.diag([1.0, 2.0, 0.0]),
    "rank 1": numbers(3, 1) @ numbers(1, 3, seed=9),
    "diag(1, 0, 2, 3)": np.diag([1.0, 0.0, 2.0, 3.0]),
    "diag(1, 2, 3, 0)": np.diag([1.0, 2.0, 3.0, 0.0]),
    "a zero column": with_a_zero_column(4, 1),
    "a zero row": with_a_zero_column(5, 3).T,
    "one singular in a batch": np.stack([with_a_zero_column(4, 0), numbers(4, 4)]),
    "complex": with_a_zero_column(4, 2) * (1 + 2j),
}


def cofactors(x):
    n = x.shape[-1]
    found = np.empty_like(x)
    for *batch, i, j in np.ndindex(x.shape):
        minor = np.delete(np.delete(x[tuple(batch)], i, 0), j, 1)
        found[(*batch, i, j)] = (-1) ** (i + j) * (np.linalg.det(minor) if n > 1 else 1)
    return found


@pytest.mark.parametrize("x", SINGULAR.values(), ids=SINGULAR)
def test_derivatives_of_singular_determinants_are_cofactors(x):
    along = np.asarray(numbers(*x.shape, seed=4), x.dtype)

    def program():
        t = xgrad.tensor(x, requires_grad=True)
        xgrad.linalg.det(t).sum().real.backward()
        with xgrad.autograd.forward_ad.dual_level():
            dual = xgrad.autograd.forward_ad.make_dual(xgrad.tensor(x), xgrad.tensor(along))
            return t.grad, xgrad.autograd.forward_ad.unpack_dual(xgrad.linalg.det(dual)).tangent

    grad, tangent = computed(program)
    np.testing.assert_allclose(grad, cofactors(x).conj(), atol=1e-12)
    np.testing.assert_allclose(tangent, (cofactors(x) * along).sum((-2, -1)), atol=1e-12)


@pytest.mark.parametrize("name", ["diag(0, 2)", "diag(0, 2, 1)", "diag(1, 2, 0)", "rank 1"])
def test_second_derivatives_of_small_singular_determinants(name):
    agree(lambda lib, x: lib.linalg.det(x), SINGULAR[name], forward=False)  # torch's tangents are 0


def gradient(library, function, x):
    t = library.tensor(x, requires_grad=True)
    function(library, t).backward()
    return value(t.grad)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "function",
    [
        lambda lib, x: (lib.linalg.eigh(x).eigenvectors ** 3).sum(),
        lambda lib, x: lib.linalg.eig(x).eigenvectors.abs().pow(4).sum(),
        lambda lib, x: (lib.linalg.svd(x).U ** 3).sum(),
    ],
    ids=["eigh", "eig", "svd"],
)
def test_vectors_of_equal_values_have_no_gradient(function):
    for library in (torch, xgrad):
        assert not np.isfinite(gradient(library, function, np.eye(3))).all()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "field", "node"),
    [("eigh", 1, "linalg_eigh_backward"), ("eig", 1, "linalg_eig_backward"), ("svd", 0, "svd_backward")],
)
def test_losses_that_depend_on_a_phase_are_refused(name, field, node):
    def loss(lib, x):
        return getattr(lib.linalg, name)(x)[field].imag.sum()

    for library in (torch, xgrad):
        with pytest.raises(RuntimeError, match=f"{node}.*specified up to multiplication by e.*ill-defined"):
            gradient(library, loss, HERMITIAN + 0.1)


def test_losses_in_which_phases_cancel_are_not():
    agree(lambda lib, x: lib.linalg.eigh(x).eigenvectors.abs() ** 2, HERMITIAN, order=1, forward=False)

    def polar(lib, x):
        U, _, Vh = lib.linalg.svd(x, full_matrices=False)
        return U @ Vh

    for shape in ((3, 3), (4, 3), (3, 4)):
        agree(polar, numbers(*shape) + 1j * numbers(*shape, seed=1), order=1)


@pytest.mark.exhaustive
def test_eigenvectors_of_general_matrices():
    for x in (numbers(2, 3, 3), numbers(3, 3) + 1j * numbers(3, 3, seed=1)):
        agree(lambda lib, x: lib.linalg.eigvals(x).abs().sum(), x)
        agree(lambda lib, x: lib.linalg.eig(x).eigenvectors.abs().sum((-2, -1)), x)
    assert xgrad.linalg.eig(xgrad.zeros(2, 0, 0, dtype=xgrad.float64)).eigenvectors.dtype == xgrad.complex128


@pytest.mark.parametrize(
    ("dtype", "scale"), [("float32", 1e20), ("float32", 1e-20), ("float32", 1e38), ("float64", 1e150)]
)
def test_eigenvalues_of_large_and_small_matrices(dtype, scale):
    A = np.random.RandomState(0).randn(2, 3, 3)
    wanted = np.sort(np.abs(np.linalg.eigvals(A)))
    scaled = xgrad.tensor(A, dtype=getattr(xgrad, dtype)) * scale
    for values in (xgrad.linalg.eigvals(scaled), xgrad.linalg.eig(scaled)[0]):
        np.testing.assert_allclose(np.sort(np.abs(values.numpy())) / scale, wanted, rtol=1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("UPLO", ["L", "U"])
def test_eigh_reads_one_triangle_also_for_its_derivatives(UPLO):
    agree(lambda lib, x: lib.linalg.eigh(x, UPLO).eigenvalues, numbers(3, 3))
    agree(lambda lib, x: lib.linalg.eigh(x, UPLO).eigenvectors.abs(), numbers(3, 3), order=1)


def test_full_svd_and_its_reduced_form_have_the_same_gradient():
    x = numbers(4, 3)
    found = [
        derivatives(xgrad, lambda lib, x, full=full: lib.linalg.svd(x, full).U[:, :3].abs(), (x,), 1)
        for full in (True, False)
    ]
    for full, reduced in zip(*found):
        np.testing.assert_allclose(full, reduced, atol=1e-12)
