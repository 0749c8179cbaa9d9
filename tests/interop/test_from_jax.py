"""from_jax: JAX functions on the tape, with what is computed again in backward and with residuals."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad
from xgrad.autograd import forward_ad

EVERYTHING = jax.checkpoint_policies.everything_saveable
policies = pytest.mark.parametrize(
    "policy", [None, EVERYTHING, jax.checkpoint_policies.dots_saveable], ids=["again", "residuals", "dots"]
)
X = [0.1, 0.2, 0.3]


def leaf(values=X):
    return xgrad.tensor(values, requires_grad=True)


def exp_sin(x):
    return jnp.exp(x) * jnp.sin(x)


@pytest.mark.one_in(2)
@policies
def test_value_gradient_and_second_derivative_equal_torchs(policy):
    f = xgrad.from_jax(exp_sin, policy=policy)
    x, t = leaf(), torch.tensor(X, dtype=torch.float64, requires_grad=True)
    y, u = f(x), torch.exp(t) * torch.sin(t)
    (g,) = xgrad.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    (gg,) = xgrad.autograd.grad((g * g).sum(), x)
    (hh,) = torch.autograd.grad((h * h).sum(), t)
    for ours, theirs in ((y, u), (g, h), (gg, hh)):
        np.testing.assert_allclose(ours.numpy(force=True), theirs.detach().numpy(), rtol=1e-6)


@policies
def test_the_node_has_the_functions_name_and_an_edge_for_each_leaf(policy):
    def scaled_softmax(x, scale):
        return jax.nn.softmax(x) * scale

    x = leaf()
    y = xgrad.from_jax(scaled_softmax, policy=policy)(x, 2.0)
    assert y.grad_fn.name() == "ScaledSoftmaxBackward0"
    assert [n is None for n, _ in y.grad_fn.next_functions] == [False, True]
    assert y.grad_fn.next_functions[0][0].variable is x


@pytest.mark.one_in(2)
@policies
def test_trees_go_in_and_come_out(policy):
    @xgrad.from_jax(policy=policy)
    def f(params, x, *, shift):
        y = x @ params["w"] + params["b"][0] + shift
        return {"y": y, "best": jnp.argmax(y), "nothing": None}, [y.sum()]

    w, b = xgrad.ones(3, 2).requires_grad_(), leaf([1.0, 2.0])
    out, (total,) = f({"w": w, "b": (b,)}, np.ones((4, 3), np.float32), shift=jnp.float32(0.5))
    assert out["nothing"] is None
    assert out["y"].shape == (4, 2)
    assert not out["best"].requires_grad
    assert out["y"].grad_fn is total.grad_fn
    (out["y"].sum() + total).backward()
    assert w.grad.tolist() == [[8.0, 8.0]] * 3
    assert b.grad.tolist() == [8.0, 8.0]


@pytest.mark.one_in(2)
@policies
def test_only_some_leaves_and_some_results_have_gradients(policy):
    f = xgrad.from_jax(lambda x, y: (x * y, y, x.astype(int)), policy=policy)
    x, y = leaf(), leaf()
    f(x, y.detach())[0].sum().backward()
    assert y.grad is None
    assert x.grad.tolist() == pytest.approx(X)
    f(x, y)[1].sum().backward()  # what does not reach a result has a gradient of zeros, as jax.vjp gives
    assert y.grad.tolist() == [1.0] * 3
    assert x.grad.tolist() == pytest.approx(X)
    with xgrad.no_grad():
        assert not f(x, y)[0].requires_grad


@pytest.mark.one_in(4)
@policies
def test_static_arguments_have_a_program_each_and_the_type_counts(policy):
    traced = []

    @xgrad.from_jax(static_argnums=1, static_argnames="flip", policy=policy)
    def f(x, power, flip=False):
        traced.append((power, flip))
        return -(x**power) if flip else x**power

    x = leaf()
    assert f(x, 2).tolist() == pytest.approx([v**2 for v in X])
    f(x, 2), f(x, power=2)
    before = len(traced)
    assert f(x, 2, True).tolist() == pytest.approx([-(v**2) for v in X])
    f(x, 1), f(x, True)
    assert {t[0].__class__ for t in traced[before:]} == {int, bool}
    count = len(traced)
    f(x, 2, True).sum().backward()
    f(x, 2)
    assert traced[count:].count((2, False)) == 0  # no trace of what had been traced


def test_jit_traces_once_for_each_shape():
    traced = []

    @xgrad.from_jax
    def f(x):
        traced.append(x.shape)
        return x * 2 if x.ndim == 1 else (x, x)  # what comes out depends on the shape

    for _ in range(3):
        assert isinstance(f(leaf()), xgrad.Tensor)
        assert isinstance(f(xgrad.ones(2, 2)), tuple)
    assert traced == [(3,), (2, 2)]


def test_other_leaves_are_static():
    @xgrad.from_jax
    def f(x, how):
        return how["with"](x) if how["name"] == "apply" else x

    assert f(leaf([4.0]), {"name": "apply", "with": jnp.sqrt}).tolist() == [2.0]
    assert f(leaf([4.0]), {"name": "leave", "with": jnp.sqrt}).tolist() == [4.0]


@pytest.mark.one_in(4)
@policies
def test_complex_gradients_follow_pytorchs_convention(policy):
    z, t = leaf([1 + 2j, 3 - 1j]), torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    for f, x in ((xgrad.from_jax(lambda z: z * z * jnp.exp(z), policy=policy), z), (lambda z: z * z * z.exp(), t)):
        y = f(x)
        (y.real.sum() + 2 * y.imag.sum()).backward()
    np.testing.assert_allclose(z.grad.numpy(), t.grad.numpy(), rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@policies
def test_tangents_and_batches(policy):
    f = xgrad.from_jax(exp_sin, policy=policy)
    expected = [float(np.exp(v) * (np.sin(v) + np.cos(v))) for v in X]
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(xgrad.tensor(X), xgrad.ones(3))
        assert forward_ad.unpack_dual(f(dual)).tangent.tolist() == pytest.approx(expected)
    per_entry = xgrad.vmap(xgrad.func.grad(f))(xgrad.tensor(X))
    assert per_entry.tolist() == pytest.approx(expected)
    jacobian = xgrad.func.jacfwd(xgrad.func.jacrev(f))(xgrad.tensor(X))
    second = [float(2 * np.exp(v) * np.cos(v)) for v in X]
    np.testing.assert_allclose(jacobian.numpy(), [np.diag(row) for row in np.diag(second)], rtol=1e-5, atol=1e-7)


@pytest.mark.one_in(2)
@policies
def test_a_custom_vjp_inside_is_what_runs(policy):
    @jax.custom_vjp
    def twice(x):
        return x * 2

    twice.defvjp(lambda x: (x * 2, x), lambda x, g: (g * 10 * x,))
    x = leaf()
    f = xgrad.from_jax(lambda x: twice(x) + x, policy=policy)
    (g,) = xgrad.autograd.grad(f(x).sum(), x, create_graph=True)
    assert g.tolist() == pytest.approx([10 * v + 1 for v in X])
    assert xgrad.autograd.grad(g.sum(), x)[0].tolist() == pytest.approx([10.0] * 3)


@pytest.mark.one_in(4)
@policies
def test_keys_and_integers_are_arguments_like_any_other(policy):
    f = xgrad.from_jax(lambda key, x, i: x[i] * jax.random.normal(key, (2,)), policy=policy)
    x = leaf()
    f(jax.random.key(0), x, xgrad.tensor(1)).sum().backward()
    assert x.grad.tolist() == pytest.approx([0, float(jax.random.normal(jax.random.key(0), (2,)).sum()), 0])


@pytest.mark.one_in(2)
@policies
def test_hooks_and_writes_to_results(policy):
    f, x = xgrad.from_jax(lambda x: (x * 2, x * 3), policy=policy), leaf()
    seen = []
    a, b = f(x)
    a.register_hook(lambda g: seen.append(g.tolist()) or g * 10)
    a.grad_fn.register_hook(lambda given, got: seen.append(len(got)))
    c = a * 1
    b.mul_(2)
    b[0].zero_()
    (c.sum() + b.sum()).backward()
    assert seen == [[1.0] * 3, len(seen[1:]) and seen[1]]
    assert x.grad.tolist() == [20.0, 26.0, 26.0]


@pytest.mark.one_in(2)
@policies
def test_saved_tensors_are_packed_and_released(policy):
    f, x, packed = xgrad.from_jax(exp_sin, policy=policy), leaf(), []
    with xgrad.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t * 1):
        y = f(x)
    assert len(packed) > (policy is EVERYTHING)
    assert set(packed) == {(3,)}
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([float(np.exp(v) * (np.sin(v) + np.cos(v))) for v in X])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()


@policies
def test_a_leaf_that_is_changed_in_place_is_noticed(policy):
    f, x = xgrad.from_jax(exp_sin, policy=policy), leaf()
    a = x * 1
    y = f(a)
    a.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_residuals_are_kept_and_the_function_is_not_computed_again():
    """Where a residual is a leaf or a result, there is no second array of it."""

    def f(w, x):
        return jnp.tanh(jnp.cos(x @ w))

    x, w = xgrad.ones(3, 3), xgrad.ones(3, 3).requires_grad_()
    shapes = []
    with xgrad.autograd.graph.saved_tensors_hooks(lambda t: shapes.append(t.shape) or t, lambda t: t):
        y = xgrad.from_jax(f, policy=EVERYTHING)(w, x)
    assert len(shapes) in (4, 5)  # w, x, tanh (or its derivative), sin
    node = y.grad_fn
    program = node.plan.backward(
        1, tuple(None if i == 0 else (a.shape, a.dtype) for i, a in enumerate(node.avals)), None, (None, None)
    )
    text = str(jax.make_jaxpr(program)(y.detach()._read(), *node._unpack_arrays()))
    assert "tanh" not in text
    assert "cos" not in text
    assert text.count("dot_general") == 1


@pytest.mark.one_in(2)
@policies
def test_compiled_backward_and_compiled_steps(policy):
    f, x = xgrad.from_jax(exp_sin, policy=policy), leaf()
    expected = [float(np.exp(v) * (np.sin(v) + np.cos(v))) for v in X]
    f(x).sum().backward(compiled=True)
    assert x.grad.tolist() == pytest.approx(expected)

    @xgrad.compile
    def step(x):
        x.grad = None
        f(x).sum().backward()

    for _ in range(2):
        step(x)
        assert x.grad.tolist() == pytest.approx(expected)
    assert step.metrics().traces == 1


@pytest.mark.one_in(4)
@policies
def test_scans_and_jitted_functions_inside(policy):
    @jax.jit
    def inner(c, a):
        return jnp.sin(c * a), c

    f, x = xgrad.from_jax(lambda x: jax.lax.scan(inner, jnp.ones(()), x), policy=policy), leaf()
    end, along = f(x)
    (end + along.sum()).backward()
    expected = jax.grad(lambda x: sum(jnp.sum(r) for r in jax.lax.scan(inner, jnp.ones(()), x)))(jnp.array(X))
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


@pytest.mark.one_in(2)
@policies
def test_nothing_is_kept_alive(policy):
    f, x = xgrad.from_jax(exp_sin, policy=policy), leaf()
    f(x).sum().backward()
    gc.disable()
    try:
        y = f(x)
        node, array = weakref.ref(y.grad_fn), weakref.ref(y.grad_fn.saved[-1])
        del y
        assert node() is None
        assert array() is None or array() is x
    finally:
        gc.enable()


def test_subclasses_and_methods():
    class Mine(xgrad.Tensor):
        pass

    f = xgrad.from_jax(lambda x: x * 2)
    assert f(xgrad.ones(2).as_subclass(Mine)).tolist() == [2.0, 2.0]

    class Layer:
        scale = 3.0

        @xgrad.from_jax(static_argnums=0)
        def __call__(self, x):
            return x * self.scale

    assert Layer()(leaf([1.0])).tolist() == [3.0]


def test_errors_name_what_is_wrong():
    f = xgrad.from_jax(lambda x: x)
    with pytest.raises(TypeError, match=r"must be hashable.*\{1\}"):
        f([xgrad.ones(1), {1}])
    with pytest.raises(TypeError, match=r"must return arrays.*returned a str"):
        xgrad.from_jax(lambda x: "no")(leaf())
    with pytest.raises(TypeError, match="expected a function, but got int"):
        xgrad.from_jax(3)
    with pytest.raises(ValueError, match=r"static_argnames has 'z', but the parameters are \['x'\]"):
        xgrad.from_jax(lambda x: x, static_argnames="z")
    with pytest.raises(ValueError, match="static_argnums has 4, but there are 1 parameters"):
        xgrad.from_jax(lambda x: x, static_argnums=4)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        xgrad.from_jax(lambda x: x if x > 0 else -x)(leaf([1.0]))
    with pytest.raises(RuntimeError, match="shapes"):
        xgrad.from_jax(lambda x, y: x + y)(leaf(), xgrad.ones(2))
