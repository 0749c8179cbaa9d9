"""xgrad.linalg: packed decompositions and solving with them, and matrices that they fail on."""

import numpy as np
import pytest
import torch

import xgrad
from xgrad.linalg import LinAlgError

from .derivatives import agree, numbers, value

SQUARE = numbers(2, 3, 3) + 2 * np.eye(3)
TALL, WIDE = numbers(4, 3), numbers(3, 5)
COMPLEX = SQUARE + 1j * numbers(2, 3, 3, seed=4)
SINGULAR = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 1.0, 1.0]])


def same(function, *arrays):
    """Assert that all results are PyTorch's, dtypes and all."""
    results = []
    for library in (xgrad, torch):
        out = function(library, *(library.tensor(a) for a in arrays))
        results.append(out if isinstance(out, tuple) else (out,))
    assert len(results[0]) == len(results[1])
    for got, wanted in zip(*results):
        assert value(got).dtype == value(wanted).dtype
        assert got.shape == tuple(wanted.shape)
        np.testing.assert_allclose(value(got), value(wanted), rtol=1e-9, atol=1e-10)


# -- LU ---------------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(4)
@pytest.mark.parametrize("x", [SQUARE, TALL, WIDE, COMPLEX], ids=["square", "tall", "wide", "complex"])
def test_lu_factor_packs_what_lu_unpack_unpacks(x):
    same(lambda lib, x: lib.linalg.lu_factor_ex(x), x)
    agree(lambda lib, x: lib.linalg.lu_factor(x).LU, x, order=1)
    agree(lambda lib, x: lib.lu_unpack(*lib.linalg.lu_factor(x))[1:], x, order=1)
    p, lower, u = xgrad.lu_unpack(*xgrad.linalg.lu_factor(xgrad.tensor(x)))
    np.testing.assert_allclose((p @ lower @ u).numpy(), x, atol=1e-12)


def test_lu_unpack_leaves_out_what_is_not_wanted():
    for options in ({"unpack_data": False}, {"unpack_pivots": False}):
        same(lambda lib, x, options=options: lib.lu_unpack(*lib.linalg.lu_factor(x), **options), SQUARE)


def test_permutations_have_no_gradient():
    x = xgrad.tensor(SQUARE, requires_grad=True)
    assert [t.requires_grad for t in xgrad.linalg.lu(x)] == [False, True, True]
    assert [t.requires_grad for t in xgrad.lu_unpack(*xgrad.linalg.lu_factor(x))] == [False, True, True]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [False, True])
def test_lu_solve(left, adjoint):
    b = numbers(2, 3, 2) if left else numbers(2, 2, 3)

    def solve(lib, x, b):
        return lib.linalg.lu_solve(*lib.linalg.lu_factor(x), b, left=left, adjoint=adjoint)

    agree(solve, SQUARE, b, order=1)
    agree(solve, COMPLEX, b + 1j, order=0)


@pytest.mark.filterwarnings("ignore:torch.*deprecated")
def test_older_forms_of_lu():
    b = numbers(2, 3, 2)
    same(lambda lib, x, b: lib.lu_solve(b, *x.lu()), SQUARE, b)
    assert len(xgrad.tensor(SQUARE).lu(get_infos=True)) == 3


def test_pivots_that_are_none_are_refused():
    x = xgrad.tensor(SQUARE[0])
    for function in (xgrad.lu_unpack, lambda x, p: xgrad.linalg.lu_solve(x, p, x)):
        with pytest.raises(RuntimeError, match=r"must be between 1 and LU.size\(-2\) inclusive"):
            function(x, xgrad.tensor([1, 2, 9], dtype=xgrad.int32))
        with pytest.raises(RuntimeError, match=r"torch.int32"):
            function(x, xgrad.tensor([1, 2, 3]))
    with pytest.raises(RuntimeError, match="LU without pivoting is not implemented"):
        xgrad.linalg.lu_factor(x, pivot=False)


# -- reflections ------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(4)
@pytest.mark.parametrize("x", [SQUARE, TALL, COMPLEX], ids=["square", "tall", "complex"])
def test_products_of_reflections(x):
    a, tau = (value(t) for t in torch.geqrf(torch.tensor(x)))
    same(lambda lib, x: lib.geqrf(x), x)
    agree(lambda lib, a, tau: lib.linalg.householder_product(a, tau), a, tau)
    c = numbers(*x.shape[:-2], x.shape[-2], 2).astype(x.dtype)
    for transpose in (False, True):
        agree(lambda lib, *xs, t=transpose: lib.ormqr(*xs, transpose=t), a, tau, c, order=1, forward=False)
    agree(lambda lib, a, tau, c: a.ormqr(tau, c.mT, left=False), a, tau, c, order=1, forward=False)


def test_fewer_reflections_than_columns():
    agree(lambda lib, a, tau: lib.linalg.householder_product(a, tau), TALL, numbers(2), order=1)
    agree(lambda lib, a, tau: lib.orgqr(a, tau), TALL, numbers(0), order=0)


def test_shapes_of_reflections_are_checked():
    x, tau = xgrad.tensor(TALL), xgrad.tensor(numbers(3))
    with pytest.raises(RuntimeError, match=r"input.shape\[-2\] must be greater than or equal to input.shape\[-1\]"):
        xgrad.linalg.householder_product(x.T, tau)
    with pytest.raises(RuntimeError, match=r"input.shape\[-1\] must be greater than or equal to tau.shape\[-1\]"):
        xgrad.linalg.householder_product(x[:, :2], tau)
    with pytest.raises(RuntimeError, match=r"other.shape\[-2\] must be equal to input.shape\[-2\]"):
        xgrad.ormqr(x, tau, x.T)
    with pytest.raises(NotImplementedError, match="the derivative for 'geqrf' is not implemented"):
        xgrad.geqrf(x.requires_grad_())[0].sum().backward()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("x", [TALL, WIDE, COMPLEX], ids=["tall", "wide", "complex"])
def test_qr_of_every_shape_is_differentiable(x):
    agree(lambda lib, x: tuple(abs(t) for t in lib.linalg.qr(x)), x)


def test_qr_modes_without_a_derivative():
    x = xgrad.tensor(TALL, requires_grad=True)
    with pytest.raises(RuntimeError, match="mode='complete' and nrows > ncols"):
        xgrad.linalg.qr(x, "complete").Q.sum().backward()
    with pytest.raises(RuntimeError, match="not computed when mode='r'"):
        xgrad.linalg.qr(x, "r").R.sum().backward()


# -- LDL --------------------------------------------------------------------------------------------------------------


def indefinite(n, hermitian):
    """Symmetric matrices whose small diagonal asks for blocks of two."""
    x = numbers(2, n, n) + (1j * numbers(2, n, n, seed=1) if hermitian is not None else 0)
    x = x + (x.conj() if hermitian else x).swapaxes(-1, -2)
    x[:, np.arange(n), np.arange(n)] *= 0.05
    return x


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("hermitian", [None, False, True])
def test_ldl_chooses_the_pivots_of_lapack(hermitian):
    x, b = indefinite(7, hermitian), numbers(2, 7, 2)
    options = {"hermitian": bool(hermitian)}
    assert (torch.linalg.ldl_factor(torch.tensor(x), **options).pivots < 0).any()
    same(lambda lib, x: tuple(lib.linalg.ldl_factor_ex(x, **options)), x)
    b = b.astype(x.dtype)
    same(lambda lib, x, b: lib.linalg.ldl_solve(*lib.linalg.ldl_factor(x, **options), b, **options), x, b)


@pytest.mark.exhaustive
def test_ldl_of_one_row_of_none_and_of_a_singular_matrix():
    for x in (np.full((1, 1), 3.0), np.zeros((2, 0, 0)), np.ones((3, 3)), np.zeros((3, 3))):
        same(lambda lib, x: tuple(lib.linalg.ldl_factor_ex(x)), x)
    with pytest.raises(LinAlgError, match="exactly zero"):
        xgrad.linalg.ldl_factor(xgrad.tensor(np.ones((3, 3))))
    with pytest.raises(NotImplementedError, match="the derivative for 'linalg_ldl_factor_ex'"):
        xgrad.linalg.ldl_factor(xgrad.tensor(SQUARE, requires_grad=True)).LD.sum().backward()


# -- least squares ----------------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize("driver", [None, "gels", "gelsd", "gelss"])
@pytest.mark.parametrize("x", [TALL, WIDE, SQUARE], ids=["tall", "wide", "batch"])
def test_lstsq_gives_what_its_driver_gives(x, driver):
    b = numbers(*x.shape[:-1], 2, seed=1)
    same(lambda lib, x, b: tuple(lib.linalg.lstsq(x, b, driver=driver)), x, b)


@pytest.mark.exhaustive
def test_lstsq_is_differentiable():
    agree(lambda lib, x, b: lib.linalg.lstsq(x, b).solution, TALL, numbers(4, 2, seed=1))
    agree(lambda lib, x, b: lib.linalg.lstsq(x, b).solution, numbers(2, 4, 3), numbers(2, 4, seed=1), order=1)
    agree(lambda lib, x, b: tuple(lib.linalg.lstsq(x, b, driver="gels")[:2]), TALL, numbers(4, 2), order=1)


def test_lstsq_by_gels_refuses_a_deficient_rank():
    a, b = [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], [[1.0], [1.0], [1.0]]
    for t in (xgrad, torch):
        with pytest.raises(t.linalg.LinAlgError, match="full rank"):
            t.linalg.lstsq(t.tensor(a), t.tensor(b), driver="gels")


def test_lstsq_of_deficient_rank_is_the_least_solution():
    b = numbers(3, 2)
    same(lambda lib, x, b: tuple(lib.linalg.lstsq(x, b, driver="gelsd")), SINGULAR, b)
    same(lambda lib, x, b: lib.linalg.lstsq(x, b, rcond=0.2, driver="gelsd").solution, SINGULAR, b)


def test_lstsq_errors():
    x = xgrad.tensor(SQUARE[0])
    with pytest.raises(RuntimeError, match=r"parameter `driver` should be one of \(gels, gelsy, gelsd, gelss\)"):
        xgrad.linalg.lstsq(x, x, driver="best")
    with pytest.raises(RuntimeError, match=r"input.size\(-2\) should match other.size\(-2\)"):
        xgrad.linalg.lstsq(x, x[:2])
    with pytest.raises(RuntimeError, match="same dtype"):
        xgrad.linalg.lstsq(x, x.to(xgrad.float32))


@pytest.mark.filterwarnings("ignore:torch.*deprecated")
def test_older_triangular_solve():
    b = numbers(3, 2)
    for options in ({}, {"upper": False, "transpose": True, "unitriangular": True}):
        # torch's tangents are wrong: they take in those of the triangle that is not read.
        agree(lambda lib, b, x, o=options: tuple(b.triangular_solve(x, **o)), b, SQUARE[0], order=1, forward=False)


@pytest.mark.parametrize(
    ("b", "L", "text"),
    [
        (
            (3, 2),
            (2, 2),
            "Incompatible matrix sizes for cholesky_solve: each A matrix is 2 by 2 but each b matrix is 3",
        ),
        ((3, 2), (2, 3), "A must be batches of square matrices, but they are 2 by 3 matrices"),
        ((3,), (3, 3), "b should have at least 2 dimensions, but has 1 dimensions instead"),
        ((3, 1), (3,), "u should have at least 2 dimensions, but has 1 dimensions instead"),
    ],
)
def test_shapes_that_cholesky_solve_refuses(b, L, text):
    for T in (torch, xgrad):
        with pytest.raises(RuntimeError, match=text):
            T.cholesky_solve(T.ones(b), T.ones(L))
    for dtype in (xgrad.int64, xgrad.float64):  # integers gave NaN; two dtypes were promoted
        with pytest.raises(RuntimeError, match=r"Expected a floating point|same dtype"):
            xgrad.cholesky_solve(xgrad.ones(3, 1), xgrad.eye(3, dtype=dtype))


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda la, x: la.inv(x), "The diagonal element 3 is zero.*input matrix is singular"),
        (lambda la, x: la.inv_ex(x, check_errors=True), "The diagonal element 3 is zero"),
        (lambda la, x: la.solve(x, x), "The solver failed because the input matrix is singular"),
        (lambda la, x: la.matrix_power(x, -1), "input matrix is singular"),
        (lambda la, x: la.tensorinv(x, 1), "input matrix is singular"),
        (lambda la, x: la.tensorsolve(x, x[0]), "input matrix is singular"),
        (lambda la, x: la.lu_factor(x), r"U\[3,3\] is zero"),
        (lambda la, x: la.cholesky(-x), "the leading minor of order 1 is not positive-definite"),
        (lambda la, x: la.cholesky_ex(-x, check_errors=True), "leading minor of order 1"),
        (lambda la, x: la.inv(x.expand(2, 3, 3)), r"\(Batch element 0\)"),
    ],
)
def test_matrices_that_cannot_be_factorized(call, text):
    for library in (torch, xgrad):
        with pytest.raises(RuntimeError, match=text) as caught:
            call(library.linalg, library.tensor(SINGULAR))
    assert isinstance(caught.value, LinAlgError)


@pytest.mark.exhaustive
def test_info_tells_which_matrices_failed():
    x = np.stack([np.diag([1.0, -2.0, 1.0]), np.eye(3), np.zeros((3, 3))])
    for name, field in (("inv_ex", 1), ("cholesky_ex", 1), ("lu_factor_ex", 2), ("ldl_factor_ex", 2)):
        same(lambda lib, x, name=name, field=field: getattr(lib.linalg, name)(x)[field], x)
    same(lambda lib, x: lib.linalg.solve_ex(x, x).info, x)
    same(lambda lib, x: lib.linalg.cond(x, "fro"), x)


def test_failures_are_not_looked_for_under_a_trace():
    import jax

    @jax.jit
    def traced(x):
        return xgrad.linalg.inv(xgrad.tensor(x)).__jax_array__()

    assert not np.isfinite(traced(np.zeros((2, 2)))).any()


def test_several_results_are_written_into_tensors():
    x = xgrad.tensor(SQUARE)
    out = xgrad.empty(0, dtype=xgrad.float64), xgrad.empty(0, dtype=xgrad.int32)
    result = xgrad.linalg.lu_factor(x, out=out)
    assert result.LU is out[0]
    assert result.pivots is out[1]
    np.testing.assert_array_equal(out[0].numpy(), xgrad.linalg.lu_factor(x).LU.numpy())
    values, vectors = xgrad.empty(0, dtype=xgrad.float64), xgrad.empty(0, dtype=xgrad.float64)
    xgrad.linalg.eigh(x, out=(values, vectors))
    assert vectors.shape == (2, 3, 3)
    inverse = xgrad.empty(0, dtype=xgrad.float64)
    assert xgrad.linalg.inv(x, out=inverse) is inverse
    with pytest.raises(TypeError, match="must be tuple of 2 Tensors"):
        xgrad.linalg.eigh(x, out=values)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        xgrad.linalg.eigh(x.requires_grad_(), out=(values, vectors))


# -- low rank ---------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (2, 5, 4)])
def test_low_rank_finds_the_largest_singular_values(shape):
    x = numbers(*shape)
    U, S, V = xgrad.svd_lowrank(xgrad.tensor(x), 4)
    np.testing.assert_allclose(S.numpy(), np.linalg.svd(x, compute_uv=False), atol=1e-10)
    np.testing.assert_allclose(((U * S.unsqueeze(-2)) @ V.mT).numpy(), x, atol=1e-10)
    centred = x - x.mean(-2, keepdims=True)
    found = xgrad.pca_lowrank(xgrad.tensor(x), 2, niter=9)[1].numpy()
    np.testing.assert_allclose(found, np.linalg.svd(centred, compute_uv=False)[..., :2], rtol=1e-4)
    agree(lambda lib, x: lib.svd_lowrank(x, 4)[1], x, order=1, forward=False)
    with pytest.raises(ValueError, match="must be non-negative integer and not greater than"):
        xgrad.pca_lowrank(xgrad.tensor(x), 9)
    assert xgrad.svd_lowrank(xgrad.tensor(x), 9)[1].shape == (*shape[:-2], 4)  # as many as there are
    xgrad.manual_seed(3)
    first = xgrad.svd_lowrank(xgrad.tensor(x), 2, 0)[1].numpy()
    xgrad.manual_seed(3)
    np.testing.assert_array_equal(xgrad.svd_lowrank(xgrad.tensor(x), 2, 0)[1].numpy(), first)
