"""lobpcg against torch's and against linalg.eigh; derivatives against differences; what is refused."""

import numpy as np
import pytest
import torch

import xgrad
from tests.oracle import array


def matrix(T, m=9, seed=0, batch=(), definite=False):
    """A symmetric matrix with eigenvalues that differ."""
    random = np.random.default_rng(seed)
    a = random.standard_normal((*batch, m, m))
    if definite:
        return T.from_numpy(a @ np.swapaxes(a, -1, -2) / m + np.eye(m))
    q = np.linalg.qr(a)[0]
    return T.from_numpy((q * np.linspace(1, 5, m)) @ np.swapaxes(q, -1, -2))


def signed(vectors):
    """Vectors whose largest component is positive."""
    v = array(vectors)
    top = np.take_along_axis(v, np.abs(v).argmax(-2, keepdims=True), -2)
    return v * np.sign(top)


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("options", "largest"),
    [("plain", None), ("plain", False), ("batch", True), ("general", False), ("preconditioned", True)],
)
def test_eigenpairs_are_those_of_torch(options, largest):
    def run(T):
        batch = (2,) if options == "batch" else ()
        A = matrix(T, batch=batch)
        X = T.from_numpy(np.random.default_rng(1).standard_normal((*batch, 9, 3)))
        B = matrix(T, seed=3, definite=True) if options == "general" else None
        iK = T.linalg.inv(A + 2 * T.eye(9, dtype=T.float64)) if options == "preconditioned" else None
        return T.lobpcg(A, k=2, B=B, X=X, iK=iK, tol=1e-10, largest=largest)

    ours, theirs = run(xgrad), run(torch)
    np.testing.assert_allclose(array(ours[0]), array(theirs[0]), rtol=1e-9)
    np.testing.assert_allclose(signed(ours[1]), signed(theirs[1]), atol=1e-6)
    assert isinstance(ours, tuple)


@pytest.mark.exhaustive
def test_the_defaults_are_torchs():
    A = matrix(xgrad).float()
    values, vectors = xgrad.lobpcg(A)
    assert (values.shape, vectors.shape, values.dtype) == ((1,), (9, 1), xgrad.float32)
    np.testing.assert_allclose(array(values), [5.0], rtol=1e-4)
    values, vectors = xgrad.lobpcg(A, k=1, n=3, largest=False, method="basic")
    np.testing.assert_allclose(array(values), [1.0], rtol=1e-4)
    np.testing.assert_allclose(array(A @ vectors), array(vectors) * array(values), atol=5e-3)
    one = xgrad.lobpcg(A, X=xgrad.ones(9, 1), niter=1)[0]
    assert one.item() == pytest.approx(array(A).sum() / 9, rel=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_a_sparse_matrix_is_used_by_its_products(layout):
    A = matrix(xgrad)
    X = xgrad.from_numpy(np.random.default_rng(1).standard_normal((9, 2)))
    dense, sparse = (xgrad.lobpcg(a, X=X, tol=1e-9) for a in (A, A.to_sparse(layout=layout)))
    np.testing.assert_allclose(array(sparse[0]), array(dense[0]), rtol=1e-9)
    np.testing.assert_allclose(signed(sparse[1]), signed(dense[1]), atol=1e-6)
    with pytest.raises(ValueError, match=r"lobpcg\.backward does not support sparse input"):
        xgrad.lobpcg(A.to_sparse().requires_grad_())


@pytest.mark.exhaustive
def test_gradients_are_those_of_torch():
    def run(T):
        A = matrix(T).requires_grad_()
        X = T.from_numpy(np.random.default_rng(1).standard_normal((9, 2)))
        values, vectors = T.lobpcg(A, X=X, tol=1e-10)
        (values * T.tensor([1.0, 2.0], dtype=T.float64)).sum().backward(retain_graph=True)
        first = A.grad.clone()
        ((vectors @ vectors.mT)[0] ** 2).sum().backward()
        return first, A.grad

    A = matrix(xgrad, 6).requires_grad_()
    X = xgrad.ones(6, 1, dtype=xgrad.float64)
    assert xgrad.autograd.gradgradcheck(lambda A: xgrad.lobpcg(A, X=X, tol=1e-13, niter=60)[0], A)
    for ours, theirs in zip(run(xgrad), run(torch), strict=True):
        np.testing.assert_allclose(array(ours), array(theirs), atol=1e-7)
        np.testing.assert_allclose(array(ours), array(ours).T, atol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("general", [False, True])
def test_derivatives_agree_with_differences(general):
    X = xgrad.from_numpy(np.random.default_rng(1).standard_normal((6, 2)))
    A = matrix(xgrad, 6).requires_grad_()
    B = matrix(xgrad, 6, seed=3, definite=True).requires_grad_()

    def function(A, *B):
        A, *B = ((M + M.mT) / 2 for M in (A, *B))
        values, vectors = xgrad.lobpcg(A, B=B[0] if B else None, X=X, tol=1e-13, niter=60)
        return values, vectors @ vectors.mT

    inputs = (A, B) if general else (A,)
    assert xgrad.autograd.gradcheck(function, inputs, check_forward_ad=not general, atol=1e-4)


def test_wrong_arguments_are_refused():
    A = matrix(xgrad)
    with pytest.raises(ValueError, match=r"number of A rows \(=9\) is smaller than 3 x .* eigenpairs \(=4\)"):
        xgrad.lobpcg(A, k=4)
    with pytest.raises(RuntimeError, match="A must be square"):
        xgrad.lobpcg(A[:3])
    with pytest.raises(RuntimeError, match=r"X should be of shape \[9, 2\], but is \[8, 2\]"):
        xgrad.lobpcg(A, X=xgrad.ones(8, 2))
    with pytest.raises(RuntimeError, match="must have the same shape"):
        xgrad.lobpcg(A, B=A[:6, :6])
    with pytest.raises(RuntimeError, match="must be real"):
        xgrad.lobpcg(A.to(xgrad.complex64))
    with pytest.raises(NotImplementedError, match="niter=1"):
        xgrad.lobpcg(A, tracker=print)
    with pytest.raises(ValueError, match="'ortho' or 'basic'"):
        xgrad.lobpcg(A, method="fast")
