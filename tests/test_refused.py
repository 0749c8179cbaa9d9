"""Dtypes that a platform's compiler lacks: an error in words where its program is traced, and there alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.base.limits import x64_for_now
from xgrad.base.platforms import tracing_for

SQUARE = np.eye(3) + 0.1
REFUSED = {
    "complex128 index_select": (lambda a: a.index_select(0, xgrad.tensor([0, 1])), "complex128"),
    "complex128 sum": (lambda a: a.sum(), "complex128"),
    "to complex128": (lambda a: a.to(xgrad.complex128), "float32"),
    "a division by complex128": (lambda a: a / (1 + a), "complex128"),
    "int64 product": (lambda a: a @ a, "int64"),
    "float64 inv": (lambda a: xgrad.linalg.inv(a), "float64"),
    "float64 solve": (lambda a: xgrad.linalg.solve(a, a), "float64"),
    "float64 slogdet": (lambda a: xgrad.linalg.slogdet(a)[1], "float64"),
    "float64 nextafter": (lambda a: xgrad.nextafter(a, a + 1), "float64"),
}
ALLOWED = {
    "float64 product": (lambda a: a @ a, "float64"),
    "int64 sum": (lambda a: (a * a).sum(), "int64"),
    "int64 floor_divide": (lambda a: a // 3, "int64"),
    "int64 index": (lambda a: a.index_select(0, xgrad.tensor([0, 1])), "int64"),
    "float32 inv": (lambda a: xgrad.linalg.inv(a), "float32"),
    "complex64 division": (lambda a: a / (1 + a), "complex64"),
}


def lower(function, dtype, platform="tpu"):
    with x64_for_now(), tracing_for(platform):
        struct = jax.ShapeDtypeStruct((3, 3), jnp.dtype(dtype))
        program = jax.jit(lambda a: function(xgrad.tensor(a))._read())
        return program.trace(struct).lower(lowering_platforms=(platform,))


@pytest.mark.parametrize("name", REFUSED)
def test_a_tpu_refuses_what_would_end_its_compiler(name):
    function, dtype = REFUSED[name]
    with pytest.raises(NotImplementedError, match=r"not implemented for \w+ on a TPU, .* x\.cpu\(\)"):
        lower(function, dtype)
    lower(function, dtype, "cpu")


@pytest.mark.parametrize("name", ALLOWED)
def test_a_tpu_takes_the_rest(name):
    lower(*ALLOWED[name])


def test_nothing_changes_when_a_call_is_refused():
    with x64_for_now():
        x, y = xgrad.ones(2, 2, dtype=xgrad.int64), xgrad.eye(2, dtype=xgrad.int64)
        with tracing_for("tpu"), pytest.raises(NotImplementedError, match="no products of int64"):
            y.addmm_(x, x)
        assert y.tolist() == [[1, 0], [0, 1]]
        assert y.addmm_(x, x).tolist() == [[3, 2], [2, 3]]


@pytest.mark.parametrize("how", ["eager", "lazy", "compiled"])
def test_eigenvalues_by_the_host_are_those_of_the_cpu(how):
    a = np.random.RandomState(0).randn(4, 4).astype(np.float32)

    def both(x):
        x = x.detach().requires_grad_()
        values, vectors = xgrad.linalg.eig(x)
        (grad,) = xgrad.autograd.grad(values.abs().square().sum() + vectors.abs().pow(4).sum(), x)
        return values, vectors, grad

    expected, _, gradient = both(xgrad.tensor(a))
    with tracing_for("tpu"):
        x = xgrad.tensor(a)
        if how == "lazy":
            with xgrad.lazy():
                values, vectors, grad = both(x)
        else:
            values, vectors, grad = (xgrad.compile(both) if how == "compiled" else both)(x)
        batch = xgrad.vmap(xgrad.linalg.eigvals)(xgrad.stack([x, 2 * x]))
    xgrad.testing.assert_close(values, expected)
    xgrad.testing.assert_close(x.to(xgrad.complex64) @ vectors, vectors * values, atol=1e-4, rtol=1e-4)
    xgrad.testing.assert_close(grad, gradient, atol=1e-4, rtol=1e-4)
    xgrad.testing.assert_close(batch, xgrad.stack([expected, 2 * expected]))


def test_eigenvalues_by_the_host_of_what_is_not_finite_are_nan():
    with tracing_for("tpu"):
        found = xgrad.linalg.eigvals(xgrad.tensor([[[1.0, np.inf], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]]))
    assert found.isnan().all(1).tolist() == [True, False]
