"""`to_jax(grad="tape")`: JAX's transformations take the gradient that the tape gives, with all of its marks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.autograd import Function

X = jnp.array([1.2, 2.3, 3.4])
XS = np.asarray(X)


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


def hooked(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y.sum()


def without_recording(x):
    with xgrad.no_grad():
        scale = x.sum()
    return (x * scale).sum()


CASES = {
    "detach": (lambda x: (x**3 * x.detach()).sum(), 3 * XS**3),
    "no_grad": (without_recording, np.full(3, XS.sum())),
    "a hook": (hooked, np.full(3, 20.0)),
    "a custom Function": (lambda x: StraightThrough.apply(x).sum(), np.full(3, 3.0)),
}


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_marks_of_the_tape_count(name):
    function, expected = CASES[name]
    gradient = jax.grad(xgrad.to_jax(function, grad="tape"))
    np.testing.assert_allclose(gradient(X), expected)
    np.testing.assert_allclose(jax.jit(gradient)(X), expected)
    x = xgrad.tensor(X, requires_grad=True)
    np.testing.assert_allclose(xgrad.autograd.grad(function(x), x)[0].numpy(), expected)
    if name == "a hook":
        with pytest.raises(RuntimeError, match="cannot register a hook on a tensor that doesn't require grad"):
            xgrad.to_jax(function)(X)
    else:
        assert not np.allclose(jax.grad(xgrad.to_jax(function))(X), expected)  # as the docstring says


@pytest.mark.exhaustive
def test_arguments_of_numpy_outside_of_jit():
    assert jax.grad(xgrad.to_jax(lambda x: x.sum() * 2, grad="tape"))(XS).tolist() == [2.0, 2.0, 2.0]


def test_second_derivatives_are_the_tapes_too():
    gradient = jax.grad(xgrad.to_jax(CASES["detach"][0], grad="tape"))
    np.testing.assert_allclose(jax.jacrev(gradient)(X), np.diag(6 * XS**2), rtol=1e-6)


@pytest.mark.exhaustive
def test_batches_scans_and_checkpoints():
    gradient = jax.grad(xgrad.to_jax(CASES["detach"][0], grad="tape"))
    np.testing.assert_allclose(jax.vmap(gradient)(jnp.stack([X, X])), [3 * XS**3] * 2)
    total, _ = jax.lax.scan(lambda c, a: (c + gradient(a[None])[0], None), 0.0, X)
    np.testing.assert_allclose(total, (3 * XS**3).sum())
    np.testing.assert_allclose(jax.grad(jax.checkpoint(xgrad.to_jax(CASES["detach"][0], grad="tape")))(X), 3 * XS**3)


@pytest.mark.exhaustive
def test_trees_numbers_integers_and_writes_to_arguments():
    @xgrad.to_jax(grad="tape")
    def f(tree, n, key=None):
        x, i = tree["x"], tree["i"]
        y = x.clone()
        y[1:].mul_(y[:-1].clone())
        x.mul_(n)  # its own
        return {"value": (x * y).sum(), "best": x.argmax(), "at": y[i], "none": key}

    def by_hand(x, i, n):
        y = jnp.concatenate([x[:1], x[1:] * x[:-1]])
        return (n * x * y).sum() + y[i]

    tree = {"x": X, "i": jnp.array(2)}
    out = f(tree, 3)
    assert int(out["best"]) == 2
    assert out["none"] is None
    (value, again), gradient = jax.value_and_grad(
        lambda x: (f(tree | {"x": x}, 3)["value"] + f(tree | {"x": x}, 3)["at"], x), has_aux=True
    )(X)
    np.testing.assert_allclose(value, by_hand(X, 2, 3))
    np.testing.assert_allclose(gradient, jax.grad(by_hand)(X, 2, 3))
    np.testing.assert_array_equal(again, X)


@pytest.mark.exhaustive
def test_complex_gradients_are_jaxs():
    z = jnp.array([1 + 2j, 3 - 1j])

    def f(z):
        return (z * z).abs().sum()

    np.testing.assert_allclose(jax.grad(xgrad.to_jax(f, grad="tape"))(z), jax.grad(lambda z: jnp.abs(z * z).sum())(z))


def test_what_does_not_depend_on_an_argument_has_zeros():
    f = xgrad.to_jax(lambda x, y: (x.detach() * 2 + y * 0).sum(), grad="tape")
    assert jax.grad(f)(X, X).tolist() == [0.0] * 3
    g = xgrad.to_jax(lambda x: x.detach().sum(), grad="tape")
    assert jax.grad(g)(X).tolist() == [0.0] * 3


def test_errors():
    with pytest.raises(ValueError, match='grad must be "jax" or "tape", but got \'both\''):
        xgrad.to_jax(lambda x: x, grad="both")
    with pytest.raises(TypeError, match="can't apply forward-mode autodiff"):
        jax.jvp(xgrad.to_jax(lambda x: x * 2, grad="tape"), (X,), (X,))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        jax.grad(xgrad.to_jax(lambda x: (x.exp().exp_().mul_(2)).sum(), grad="tape"))(X)
