"""Products, contractions, solvers and decompositions: values, derivatives, what is saved, errors."""

import numpy as np
import pytest
import torch

import xgrad
from xgrad.dispatch.saved_attributes import kept_names

from ..oracle import same_error
from .derivatives import agree, numbers, positive

A, B = numbers(3, 4), numbers(4, 2, seed=1)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((4, 3), (3,)),
        ((4, 3), (3, 2)),
        ((3,), (2, 3, 4)),
        ((2, 4, 3), (3,)),
        ((5, 4, 3), (3, 2)),
        ((4, 3), (5, 3, 2)),
        ((5, 1, 4, 3), (6, 3, 2)),
        ((1, 3, 3), (2, 3, 3)),
        ((2, 0), (0, 3)),
    ],
)
def test_matmul_of_vectors_matrices_and_batches_that_broadcast(first, second):
    agree(lambda lib, x, y: x @ y, numbers(*first), numbers(*second, seed=1))


def test_matmul_saves_a_factor_only_for_the_other_ones_gradient():
    x, w = xgrad.tensor(A, requires_grad=True), xgrad.tensor(B, requires_grad=True)
    assert kept_names((x @ w).grad_fn) == ["self", "other"]
    assert kept_names((x @ w.detach()).grad_fn) == ["other"]
    assert kept_names((x.detach() @ w).grad_fn) == ["self"]
    assert kept_names(xgrad.addmm(w[0], x, w.detach()).grad_fn) == ["mat2", "beta", "alpha"]


PRODUCTS = {
    "mm": [(3, 4), (4, 2)], "bmm": [(2, 3, 4), (2, 4, 5)], "mv": [(3, 4), (4,)], "dot": [(4,), (4,)],
    "vdot": [(4,), (4,)], "inner": [(2, 4), (3, 4)], "outer": [(3,), (4,)], "kron": [(2, 3), (2, 2)],
    "cross": [(2, 3), (2, 3)],
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_two(name):
    x, y = (numbers(*shape, seed=i) for i, shape in enumerate(PRODUCTS[name]))
    options = {"dim": 1} if name == "cross" else {}
    agree(lambda lib, x, y: getattr(lib, name)(x, y, **options), x, y)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(set(PRODUCTS) - {"cross", "kron"}))
def test_products_of_complex_tensors(name):
    x, y = (numbers(*s, seed=i) + 1j * numbers(*s, seed=i + 5) for i, s in enumerate(PRODUCTS[name]))
    agree(lambda lib, x, y: getattr(lib, name)(x, y), x, y, order=1)


BLENDS = {
    "addmm": [(2,), (3, 4), (4, 2)], "addmv": [(3,), (3, 4), (4,)], "addr": [(3, 4), (3,), (4,)],
    "baddbmm": [(2, 3, 1), (2, 3, 4), (2, 4, 5)], "addbmm": [(3, 5), (2, 3, 4), (2, 4, 5)],
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", BLENDS)
@pytest.mark.parametrize("options", [{}, {"beta": 0.5, "alpha": -2.0}])
def test_input_plus_product(name, options):
    arrays = [numbers(*shape, seed=i) for i, shape in enumerate(BLENDS[name])]
    agree(lambda lib, *xs: getattr(lib, name)(*xs, **options), *arrays, order=2 if options else 1)


def test_beta_zero_ignores_nan_and_new_numbers_do_not_recompile():
    x = xgrad.tensor(np.full((3, 2), np.nan), requires_grad=True)
    y = xgrad.addmm(x, xgrad.tensor(A), xgrad.tensor(B), beta=0)
    np.testing.assert_allclose(y.detach().numpy(), A @ B)
    y.sum().backward()
    assert (x.grad.numpy() == 0).all()
    programs = len(xgrad.addmm.operator.kernels)
    xgrad.addmm(x, xgrad.tensor(A), xgrad.tensor(B), beta=0.1234)
    assert len(xgrad.addmm.operator.kernels) == programs


def test_addmm_in_place():
    x = xgrad.tensor(np.ones((3, 2)))
    assert x.addmm_(xgrad.tensor(A), xgrad.tensor(B)) is x
    np.testing.assert_allclose(x.numpy(), 1 + A @ B)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->j", [(3, 4)]),
        ("ii", [(3, 3)]),
        ("ii->i", [(3, 3)]),
        ("ij,jk", [(3, 4), (4, 2)]),
        ("Ba,aC", [(3, 4), (4, 2)]),
        ("...ij,...jk->...ik", [(5, 3, 4), (4, 2)]),
        ("i,ij,j->", [(3,), (3, 4), (4,)]),
    ],
)
def test_einsum(equation, shapes):
    arrays = [numbers(*shape, seed=i) for i, shape in enumerate(shapes)]
    agree(lambda lib, *xs: lib.einsum(equation, *xs), *arrays)


def test_einsum_with_lists_of_dimensions():
    agree(lambda lib, x, y: lib.einsum(x, [0, 1], y, [1, 2], [2, 0]), A, B, order=1)
    agree(lambda lib, x, y: lib.einsum(x, [..., 0], y, [0, 3]), A, B, order=1)


def test_einsum_errors():
    x = xgrad.tensor(A)
    with pytest.raises(RuntimeError, match="fewer operands were provided"):
        xgrad.einsum("ij,jk", x)
    with pytest.raises(RuntimeError, match=r"number of subscripts in the equation \(3\).*number of dimensions \(2\)"):
        xgrad.einsum("ijk", x)


@pytest.mark.parametrize(
    ("equation", "shapes", "match"),
    [
        ("i$->i", [(3, 4)], "invalid subscript given at index 1 in the equation string"),
        ("i1->i", [(3, 4)], "invalid subscript given at index 1"),
        ("i j->i->j", [(3, 4)], "invalid subscript given at index 6"),
        ("i.j->i", [(3, 4)], "found '.' for operand 0 that is not part of any ellipsis"),
        ("......->...", [(3, 4)], "found '.' for operand 0 for which an ellipsis was already found"),
        ("ij->..j", [(3, 4)], "found '.' for output"),
        ("ij->ijk", [(3, 4)], "output subscript k does not appear in the equation for any input operand"),
        ("ij->ii", [(3, 4)], "output subscript i appears more than once in the output"),
        ("ii->i", [(3, 4)], "subscript i is repeated for operand 0 but the sizes don't match, 4 != 3"),
        ("ii->i", [(1, 3)], "subscript i is repeated for operand 0 but the sizes don't match, 3 != 1"),
        ("ij,jk->ik", [(2, 3), (2, 3)], "subscript j has size 2 for operand 1 which does not broadcast.*size 3"),
        ("i,i", [(3,), (2,)], "subscript i has size 2 for operand 1 which does not broadcast.*size 3"),
        ("...i,...i->...", [(2, 3), (4, 3)], "covered by ellipsis.*has size 4"),
    ],
)
def test_einsum_refuses_what_torch_refuses(equation, shapes, match):
    same_error(lambda T: T.einsum(equation, *(T.ones(*shape) for shape in shapes)), match)


def test_einsum_broadcasts_sizes_of_one():
    agree(lambda lib, x, y: lib.einsum("ij,jk->ik", x, y), numbers(3, 1), B, order=1)
    agree(lambda lib, x, y: lib.einsum("...j,...->...j", x, y), numbers(2, 1, 3), numbers(2, 2), order=1)


def test_batches_of_matrices_that_do_not_broadcast():
    match = r"The size of tensor a \(2\) must match the size of tensor b \(3\) at non-singleton dimension 0"
    same_error(lambda T: T.ones(2, 3, 4) @ T.ones(3, 4, 5), match)


def test_contractions_of_many():
    agree(lambda lib, x, y: lib.tensordot(x, y, 1), A, B)
    agree(lambda lib, x, y: lib.tensordot(x, y, ([0, 2], [1, 0])), numbers(2, 3, 4), numbers(4, 2), order=1)
    agree(lambda lib, x, y: lib.tensordot(x, y, lib.tensor([1])), A, B)  # a number, as a tensor of one element is
    with pytest.raises(ValueError, match="two lists of dimensions"):
        xgrad.tensordot(xgrad.tensor(A), xgrad.tensor(A), [0])
    out = xgrad.zeros(3, 4)
    assert xgrad.chain_matmul(xgrad.tensor(A), out=out) is out
    np.testing.assert_array_equal(out.numpy(), A.astype(np.float32))
    with pytest.raises(ValueError, match="not within the valid range"):
        xgrad.einsum(xgrad.tensor(A), [-1, 0], [0])
    agree(lambda lib, *xs: lib.linalg.multi_dot(xs), A, B, numbers(2, 5), numbers(5), order=1)
    for shapes, match in {((), (2,)): "tensor 0 must be 1D or 2D", ((2,), (2,), (2,)): "tensor 1 must be 2D"}.items():
        with pytest.raises(RuntimeError, match=match):
            xgrad.linalg.multi_dot([xgrad.ones(shape) for shape in shapes])
    with pytest.raises(RuntimeError, match="contracted dimensions need to match"):
        xgrad.tensordot(xgrad.tensor(A), xgrad.tensor(A), ([0], [1]))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x, y: x @ x, r"mat1 and mat2 shapes cannot be multiplied \(3x4 and 3x4\)"),
        (
            lambda x, y: x @ xgrad.tensor(B.astype("float32")),
            "expected m1 and m2 to have the same dtype, but got: Double != Float",
        ),
        (lambda x, y: x @ x.sum(), "both arguments to matmul need to be at least 1D, but they are 2D and 0D"),
        (lambda x, y: xgrad.mm(x, x[0]), "mat2 must be a matrix"),
        (lambda x, y: xgrad.bmm(x[None], y), "must be a 3D tensor"),
        (lambda x, y: xgrad.dot(x[0], x[0, :3]), "inconsistent tensor size"),
        (lambda x, y: xgrad.addmm(y.T, x, y), "does not broadcast"),
        (
            lambda x, y: xgrad.addmm(*[xgrad.tensor(np.eye(2, dtype=int))] * 3, alpha=0.5),
            "must not be a floating point",
        ),
        (lambda x, y: xgrad.linalg.inv(x), "must be batches of square matrices, but they are 3 by 4"),
        (lambda x, y: xgrad.linalg.det(x[0]), "must have at least 2 dimensions"),
    ],
)
def test_errors_name_shapes_and_dtypes(call, text):
    with pytest.raises(RuntimeError, match=text):
        call(xgrad.tensor(A), xgrad.tensor(B))


# -- xgrad.linalg -----------------------------------------------------------------------------------------------------

P = np.stack([positive(3), positive(3, seed=1)])
GENERAL = numbers(2, 3, 3) + 2 * np.eye(3)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", ["det", "inv", "pinv", "matrix_exp", "svdvals", "cond"])
def test_functions_of_matrices(name):
    agree(lambda lib, x: getattr(lib.linalg, name)(x), GENERAL, order=1 if name == "matrix_exp" else 2)


@pytest.mark.parametrize("n", [-2, 0, 1, 3])
def test_matrix_powers(n):
    agree(lambda lib, x: lib.linalg.matrix_power(x, n), GENERAL, order=1, forward=n != 0)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bfloat16"])
def test_matrix_powers_of_integers_and_in_half_precision(dtype):
    for n in (0, 1, 2, 5):
        wanted, found = (
            T.linalg.matrix_power(T.tensor([[[1.0, 2.0], [0.0, 3.0]]]).to(getattr(T, dtype)), n) for T in (torch, xgrad)
        )
        assert str(found.dtype).split(".")[1] == dtype
        assert found.tolist() == wanted.tolist()
    with pytest.raises(RuntimeError, match="A must be batches of square matrices"):
        xgrad.linalg.matrix_power(xgrad.ones(2, 3, dtype=getattr(xgrad, dtype)), 2)


@pytest.mark.parametrize("scale", [1.0, 2e5, 1e6, 1e30])
def test_matrix_exponentials_of_large_matrices(scale):
    """jax has NaN, and gradients of 0, beyond 2**16 times the norm that needs no squaring."""
    matrices = np.array([[[-1.0, 0.5], [0.25, -2.0]], [[-0.2, 0.0], [0.0, -1.0]]])
    agree(lambda lib, x: lib.linalg.matrix_exp(x * lib.tensor([[[scale]], [[1.0]]])), matrices, order=1)
    rotation = np.array([[0.0, 1.0], [-1.0, 0.0]]) * min(scale, 1e6)
    found = xgrad.linalg.matrix_exp(xgrad.tensor(rotation)).numpy()[0]
    np.testing.assert_allclose(found, [np.cos(rotation[0, 1]), np.sin(rotation[0, 1])], 1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["inv", "slogdet", "det"])
def test_functions_of_complex_matrices(name):
    x = GENERAL + 1j * numbers(2, 3, 3, seed=4)
    agree(
        lambda lib, x: tuple(lib.linalg.slogdet(x)) if name == "slogdet" else getattr(lib.linalg, name)(x), x, order=1
    )


def test_slogdet():
    agree(lambda lib, x: lib.linalg.slogdet(x).logabsdet, GENERAL)
    agree(lambda lib, x: x.logdet(), P, order=1)
    agree(lambda lib, x: x.logdet(), np.array([[[0.0, 1.0], [2.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]]]), order=1)
    agree(lambda lib, x: x.logdet(), GENERAL + 1j * numbers(2, 3, 3, seed=4), order=1)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ((3, 3), (3,), True),
        ((3, 3), (3, 2), True),
        ((2, 3, 3), (2, 3), True),
        ((2, 3, 3), (3, 2), True),
        ((3, 3), (2, 3, 4), True),
        ((2, 3, 3), (2, 4, 3), False),
    ],
)
def test_solve_of_vectors_matrices_and_batches_that_broadcast(first, second, left):
    x = numbers(*first) + 2 * np.eye(3)
    agree(lambda lib, a, b: lib.linalg.solve(a, b, left=left), x, numbers(*second, seed=1))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_solve_and_cholesky(upper):
    agree(lambda lib, a, b: lib.linalg.solve_triangular(a, b, upper=upper), P, numbers(2, 3, 2), order=1)
    agree(lambda lib, x: lib.linalg.cholesky(x + x.mT, upper=upper), P)
    x = P + 1j * np.triu(np.ones(3), 1) - 1j * np.tril(np.ones(3), -1)
    agree(lambda lib, x: lib.linalg.cholesky(x + x.mH, upper=upper), x, order=1)


def test_cholesky_reads_one_triangle_and_its_gradient_is_symmetric():
    agree(lambda lib, x: lib.linalg.cholesky(x), np.tril(positive(3)), order=1)
    agree(lambda lib, x: lib.linalg.cholesky(x, upper=True), np.triu(positive(3)), order=1)


def test_inverses_save_their_result():
    x = xgrad.tensor(P, requires_grad=True)
    assert kept_names(xgrad.linalg.inv(x).grad_fn) == ["inverse"]
    assert kept_names(xgrad.linalg.cholesky(x).grad_fn) == ["L"]


def test_decompositions_up_to_phases():
    agree(lambda lib, x: lib.linalg.qr(x).R.abs(), numbers(2, 4, 3))
    agree(lambda lib, x: lib.linalg.eigvalsh(x), P)
    agree(lambda lib, x: lib.linalg.eigh(x + x.mT).eigenvectors.abs(), P)
    agree(lambda lib, x: lib.linalg.svd(x, full_matrices=False).U.abs(), numbers(2, 4, 3), order=1)
    agree(lambda lib, x: lib.linalg.svd(x).U[..., :3].abs(), numbers(2, 4, 3), order=1)


def test_full_svd_completes_the_basis():
    U, S, Vh = xgrad.linalg.svd(xgrad.tensor(A))
    assert (U.shape, S.shape, Vh.shape) == ((3, 3), (3,), (4, 4))
    np.testing.assert_allclose((Vh @ Vh.mT).numpy(), np.eye(4), atol=1e-12)
    np.testing.assert_allclose((U @ xgrad.linalg.multi_dot([S.diag(), Vh[:3]])).numpy(), A, atol=1e-12)


def test_qr_and_lu_rebuild_the_matrix():
    x = xgrad.tensor(GENERAL)
    q, r = xgrad.linalg.qr(x)
    p, lower, u = xgrad.linalg.lu(x)
    for product in (q @ r, p @ lower @ u):
        np.testing.assert_allclose(product.numpy(), GENERAL, atol=1e-12)


def test_empty_matrices():
    for name in ("det", "inv"):
        agree(lambda lib, x, name=name: getattr(lib.linalg, name)(x), np.zeros((2, 0, 0)), order=1, forward=False)


def test_rank_counts_singular_values_above_the_tolerance():
    x = np.diag([1.0, 1e-3, 0.0])
    agree(lambda lib, x: lib.linalg.matrix_rank(x), x)
    agree(lambda lib, x: lib.linalg.matrix_rank(x, atol=0.01), x)


# -- older names ------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(10)
@pytest.mark.parametrize(
    "function",
    [
        lambda lib, x: lib.frobenius_norm(x, (0, -1)),
        lambda lib, x: lib.frobenius_norm(x, [], keepdim=True),
        lambda lib, x: lib.frobenius_norm(x, 1, True),
        lambda lib, x: lib.nuclear_norm(x),
        lambda lib, x: lib.nuclear_norm(x, True),
        lambda lib, x: lib.nuclear_norm(x, (0, 2), keepdim=True),
        lambda lib, x: lib.norm_except_dim(x),
        lambda lib, x: lib.norm_except_dim(x, 1, -2),
        lambda lib, x: lib.norm_except_dim(x, 3, -1),
        lambda lib, x: lib.norm_except_dim(x[0, 0], 2, 0),
        lambda lib, x: lib.special.softmax(x, 1),
        lambda lib, x: lib.special.log_softmax(x, -1, dtype=lib.float64),
        lambda lib, x: lib.special.logsumexp(x, (0, 1), keepdim=True),
        lambda lib, x: lib.affine_grid_generator(x, (2, 1, 2, 2), True),
    ],
)
@pytest.mark.filterwarnings("ignore:.*deprecated")  # PyTorch's, of two of them
def test_older_names(function):
    agree(function, numbers(2, 2, 3), order=1, forward=False)


def test_older_norms_refuse_what_they_cannot_measure():
    x = xgrad.ones(2, 3, 4)
    for call, error, text in (
        (lambda: xgrad.frobenius_norm(x, (0, 1, 2)), RuntimeError, "Expected at most 2 dimensions, but got 3"),
        (lambda: xgrad.frobenius_norm(x, (0, 0)), RuntimeError, "appears multiple times in the list of dims"),
        (lambda: xgrad.nuclear_norm(x, (0,)), RuntimeError, "dim must be a 2-tuple"),
        (lambda: xgrad.norm_except_dim(x, 2, 5), IndexError, "Dimension out of range"),
    ):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [{}, {"N": 2, "increasing": True}, {"N": 5}])
def test_vander_as_numpy(options):
    x = numbers(3)
    x[1] = 0
    out = xgrad.vander(xgrad.tensor(x, requires_grad=True), **options)
    np.testing.assert_allclose(out.detach().numpy(), np.vander(x, **options), rtol=1e-12)
    point, weights, step = xgrad.tensor(x, requires_grad=True), numbers(*out.shape, seed=1), 1e-6
    (xgrad.vander(point, **options) * xgrad.tensor(weights)).sum().backward()
    slopes = (np.vander(x + step, **options) - np.vander(x - step, **options)) / (2 * step)
    np.testing.assert_allclose(point.grad.numpy(), (slopes * weights).sum(1), atol=1e-6)


@pytest.mark.exhaustive
def test_vander_of_other_dtypes_and_shapes():
    for dtype in ("bool", "uint8", "int32", "float16", "complex64"):
        ours, theirs = (
            xgrad.vander(xgrad.ones(2, dtype=dtype)),
            torch.vander(torch.ones(2, dtype=getattr(torch, dtype))),
        )
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
        assert ours.dtype == theirs.numpy().dtype
    assert xgrad.vander(xgrad.ones(3), 0).shape == (3, 0)
    for x, options, text in (((2, 2), {}, "x must be a one-dimensional tensor"), ((2,), {"N": -1}, "non-negative")):
        with pytest.raises(RuntimeError, match=text):
            xgrad.vander(xgrad.ones(x), **options)


MIXED = {
    "inner, 0-dim": lambda T: T.inner(T.tensor(2.0), T.tensor([1, 2])),
    "inner, two 0-dim ones": lambda T: T.inner(T.tensor(2), T.tensor(1.5)),
    "inner, dtypes": lambda T: T.inner(T.tensor([2, 1]), T.tensor([1.0, 2])),
    "inner, bools": lambda T: T.inner(T.tensor([True]), T.tensor([True])),
    "vecdot, integers": lambda T: T.linalg.vecdot(T.tensor([1, 2]), T.tensor([1, 2])),
    "vecdot, dtypes": lambda T: T.linalg.vecdot(T.ones(2), T.ones(2, dtype=T.complex64)),
    "cross, dtypes": lambda T: T.cross(T.ones(3), T.ones(3, dtype=T.float64), dim=0),
    "cross, bools": lambda T: T.linalg.cross(T.tensor([True] * 3), T.tensor([True] * 3)),
    "complex alpha": lambda T: T.addmm(T.ones(1, 1), T.ones(1, 2), T.ones(2, 1), alpha=1j),
}


@pytest.mark.parametrize("name", MIXED)
def test_products_take_the_dtypes_that_torch_takes(name):
    found = []
    for T in (torch, xgrad):
        try:
            result = MIXED[name](T)
            found.append((str(result.dtype).partition(".")[2], result.tolist()))
        except (RuntimeError, NotImplementedError) as error:
            found.append(type(error))
    assert found[1] == found[0]


def test_the_product_with_a_0_dim_vector_has_gradients_of_its_factors_dtypes():
    found = []
    for T in (torch, xgrad):
        x, y = T.tensor(2.0, requires_grad=True), T.tensor([1.0, 3.0], dtype=T.float64, requires_grad=True)
        T.inner(x, y).sum().backward()
        found.append((x.grad.item(), y.grad.tolist(), str(x.grad.dtype)[-7:], str(y.grad.dtype)[-7:]))
    assert found[1] == found[0]


def test_alpha_0_leaves_the_product_out():
    """As in BLAS, which PyTorch calls for float32; its addr multiplies."""
    for name, shapes in {
        "addmm": ((2, 2), (2, 3), (3, 2)), "addmv": ((2,), (2, 3), (3,)), "addbmm": ((2, 2), (2, 2, 3), (2, 3, 2)),
        "addr": ((2, 2), (2,), (2,)),
    }.items():  # fmt: skip
        found = []
        for T in (torch, xgrad):
            first, *factors = (T.full(shape, value) for shape, value in zip(shapes, (1.0, np.nan, 1.0)))
            found.append(np.asarray(getattr(T, name)(first, *factors, alpha=0)).tolist())
        np.testing.assert_array_equal(*found, name)
