"""`to_jax`: functions over tensors under JAX's transformations."""

import pickle
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad
from xgrad.errors import TracedValueError
from xgrad.interop.jax import from_jax, to_jax

Leaked = jax.errors.UnexpectedTracerError

X = np.array([0.5, -1.0, 2.0])


def through_views(T, x):
    """Writes through views of views, and a column that is read after its row was written."""
    y = T.stack([x, x * x, x.sin()])
    y[0].mul_(y[1].clone())
    column = y.t()[2]
    y[1:].add_(column[1:].clone().unsqueeze(1))
    return (y * y).sum() + (column * x).sum()


@to_jax
def loss(x):
    return through_views(xgrad, x)


def of_torch(x):
    x = torch.tensor(x, requires_grad=True)
    value = through_views(torch, x)
    (first,) = torch.autograd.grad(value, x, create_graph=True)
    rows = [torch.autograd.grad(entry, x, retain_graph=True)[0] for entry in first]
    return value.detach().numpy(), first.detach().numpy(), torch.stack(rows).numpy()


# -- JAX's transformations ---------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_values_and_derivatives_of_writes_through_views_are_torchs():
    value, gradient, hessian = of_torch(X)
    direction = np.array([1.0, 2.0, -1.0])
    push = partial(jax.jvp, loss, (X,), (direction,))
    found = {
        "eager": loss(X),
        "jit": jax.jit(loss)(X),
        "value_and_grad": jax.jit(jax.value_and_grad(loss))(X),
        "grad, eager": jax.grad(loss)(X),
        "jvp": jax.jit(push)(),
        "vjp": jax.vjp(loss, X)[1](2.0)[0],
        "linearize": jax.linearize(loss, X)[1](direction),
        "checkpoint": jax.jit(jax.grad(jax.checkpoint(loss)))(X),
        "hessian": jax.jit(jax.hessian(loss))(X),
        "jacfwd of jacrev": jax.jit(jax.jacfwd(jax.jacrev(loss)))(X),
        "jacrev of jacfwd": jax.jit(jax.jacrev(jax.jacfwd(loss)))(X),
    }
    expected = {
        "eager": value,
        "jit": value,
        "value_and_grad": (value, gradient),
        "grad, eager": gradient,
        "jvp": (value, gradient @ direction),
        "vjp": 2 * gradient,
        "linearize": gradient @ direction,
        "checkpoint": gradient,
        "hessian": hessian,
        "jacfwd of jacrev": hessian,
        "jacrev of jacfwd": hessian,
    }
    for name, theirs in expected.items():
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9, err_msg=name), found[name], theirs)


@pytest.mark.exhaustive
def test_batches_and_batches_of_gradients():
    batch = np.stack([X, 2 * X])
    for f in (jax.vmap(loss), jax.jit(jax.vmap(loss))):
        np.testing.assert_allclose(f(batch), [of_torch(x)[0] for x in batch], rtol=1e-9)
    gradients = jax.jit(jax.vmap(jax.grad(loss)))(batch)
    np.testing.assert_allclose(gradients, [of_torch(x)[1] for x in batch], rtol=1e-9)
    columns = jax.jit(jax.vmap(loss, in_axes=1))(batch.T)
    np.testing.assert_allclose(columns, [of_torch(x)[0] for x in batch], rtol=1e-9)


def test_control_flow_of_jax():
    @to_jax
    def step(x):
        y = x.clone()
        y[1:].mul_(y[:-1])
        return y * 0.5

    expected = X
    for _ in range(3):
        expected = np.concatenate([expected[:1], expected[1:] * expected[:-1]]) * 0.5

    def scanned(x):
        return jax.lax.scan(lambda carry, _: (step(carry), loss(carry)), x, length=3)

    (last, seen) = jax.jit(scanned)(X)
    np.testing.assert_allclose(last, expected)
    assert seen.shape == (3,)
    found = jax.jit(lambda x: jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, step(s[1])), (0, x))[1])(X)
    np.testing.assert_allclose(found, expected)
    chosen = jax.jit(lambda p, x: jax.lax.cond(p, step, lambda x: x, x))
    np.testing.assert_allclose(chosen(True, X), step(X))
    np.testing.assert_allclose(chosen(False, X), X)
    gradient = jax.jit(jax.grad(lambda x: scanned(x)[0].sum()))(X)
    x = y = torch.tensor(X, requires_grad=True)
    for _ in range(3):
        y = torch.cat([y[:1], y[1:] * y[:-1]]) * 0.5
    np.testing.assert_allclose(gradient, torch.autograd.grad(y.sum(), x)[0], rtol=1e-9)


def test_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("data",))
    spec = jax.sharding.PartitionSpec("data")
    halves = jax.shard_map(to_jax(in_place), mesh=mesh, in_specs=spec, out_specs=spec)
    x = jnp.arange(8.0).reshape(4, 2)
    expected = np.concatenate([to_jax(in_place)(x[:2]), to_jax(in_place)(x[2:])])
    np.testing.assert_allclose(jax.jit(halves)(x), expected)
    assert not np.allclose(expected, to_jax(in_place)(x))


def in_place(x):
    y = x.clone()
    y[1:].add_(y[:1])
    return y


def test_custom_vjp_around_and_from_jax_inside():
    @jax.custom_vjp
    def clipped(x):
        return loss(x)

    clipped.defvjp(lambda x: (loss(x), x), lambda x, g: (jnp.clip(jax.grad(loss)(x) * g, -1, 1),))
    np.testing.assert_allclose(jax.jit(jax.grad(clipped))(X), np.clip(of_torch(X)[1], -1, 1), rtol=1e-9)

    straight = jax.custom_vjp(lambda x: jnp.round(x))
    straight.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g,))
    through = to_jax(lambda x: (from_jax(straight)(x) * 3).sum())
    np.testing.assert_allclose(jax.jit(jax.grad(through))(X), [3, 3, 3])


def test_a_view_that_is_first_read_inside_of_a_scan_is_read_outside_again():
    @to_jax
    def f(x):
        y = x * 2
        view = y[1:]
        body = to_jax(lambda t: t + view.sum())
        total = from_jax(lambda a: jax.lax.scan(lambda c, _: (body(c), None), a, length=3)[0])(y[0])
        return total + view.sum()

    assert float(jax.jit(f)(jnp.arange(3.0))) == 24


# -- the tape inside ---------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_backward_inside():
    """Gradients accumulate in leaves that are made inside, hooks run, and JAX differentiates what was found."""
    seen = []

    def gradient(T, x):
        x = x.detach().clone().requires_grad_() if T is torch else x.requires_grad_()
        x.register_hook(lambda g: seen.append(type(g)) or g * 2)
        for _ in range(2):
            through_views(T, x).backward()
        return x.grad

    theirs = gradient(torch, torch.tensor(X))
    for f in (lambda f: f, jax.jit):
        np.testing.assert_allclose(f(to_jax(partial(gradient, xgrad)))(X), theirs, rtol=1e-9)
    assert len(seen) == 6

    @to_jax
    def penalty(x):
        (g,) = xgrad.autograd.grad(through_views(xgrad, x.requires_grad_()), x, create_graph=True)
        return (g * g).sum().detach()

    _, first, hessian = of_torch(X)
    np.testing.assert_allclose(jax.jit(jax.grad(penalty))(X), 2 * hessian @ first, rtol=1e-9)


def test_jax_differentiates_values_and_not_the_tapes_marks():
    """`detach()` is of the tape; `jax.lax.stop_gradient` is what JAX knows."""
    assert float(jax.grad(to_jax(lambda x: x * x.detach()))(3.0 * jnp.ones(()))) == 6
    stopped = from_jax(jax.lax.stop_gradient)
    assert float(jax.grad(to_jax(lambda x: x * stopped(x)))(3.0 * jnp.ones(()))) == 3


def test_complex_gradients_are_the_conjugates_of_pytorchs():
    z = np.array([1.0 + 2.0j, -0.5 + 1.0j])

    def real(T, z):
        y = z.clone()
        y[1:].mul_(z[:-1])
        return (y * y * z).real.sum()

    x = torch.tensor(z, requires_grad=True)
    real(torch, x).backward()
    np.testing.assert_allclose(jax.jit(jax.grad(to_jax(partial(real, xgrad))))(z), x.grad.conj().resolve_conj().numpy())


TIES = {
    "abs": (lambda T, x: x.abs(), [0.0, 1.0, -1.0]),
    "relu": (lambda T, x: x.relu(), [0.0, 1.0, -1.0]),
    "clamp": (lambda T, x: x.clamp(0, 1), [0.0, 1.0, 2.0]),
    "amax": (lambda T, x: x.amax(), [2.0, 2.0, 1.0]),
    "max": (lambda T, x: x.max(), [2.0, 2.0, 1.0]),
    "max along a dimension": (lambda T, x: x.max(0)[0], [2.0, 2.0, 1.0]),
    "maximum": (lambda T, x: T.maximum(x, x.flip(0)), [2.0, 1.0, 2.0]),
    "median": (lambda T, x: x.median(), [2.0, 2.0, 1.0]),
    "nanmedian": (lambda T, x: x.nanmedian(), [2.0, 2.0, float("nan")]),
    "norm at zero": (lambda T, x: x.norm(), [0.0, 0.0, 0.0]),
    "prod with zeros": (lambda T, x: x.prod(), [0.0, 2.0, 3.0]),
    "cumprod with zeros": (lambda T, x: x.cumprod(0), [2.0, 0.0, 3.0]),
    "0**0": (lambda T, x: x**0, [0.0, 1.0, 2.0]),
    "where": (lambda T, x: T.where(x > 0, x.sqrt(), 0.0), [-1.0, 0.0, 4.0]),
    "cross entropy at its bounds": (
        lambda T, x: T.nn.functional.binary_cross_entropy(x, T.tensor([0.0, 1.0, 1.0], dtype=T.float64)),
        [0.0, 1.0, 0.5],
    ),
    "embedding's padding": (
        lambda T, x: T.nn.functional.embedding(T.tensor([0, 1, 1]), x.reshape(3, 1), padding_idx=0), [1.0, 2.0, 3.0]
    ),
    "embedding by frequency": (
        lambda T, x: T.nn.functional.embedding(T.tensor([0, 1, 1]), x.reshape(3, 1), scale_grad_by_freq=True),
        [1.0, 2.0, 3.0],
    ),
    "pseudo-inverse": (lambda T, x: T.linalg.pinv(x.reshape(3, 1) * x, rcond=1e-3), [1.0, 2.0, 3.0]),
    "least squares": (lambda T, x: T.linalg.lstsq(x.reshape(3, 1), x.reshape(3, 1) ** 2)[0], [1.0, 2.0, 4.0]),
}  # fmt: skip


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", TIES)
def test_jaxs_derivative_of_an_operator_is_pytorchs_where_there_are_several(name):
    function, at = TIES[name]
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    function(torch, x).sum().backward()
    ours = jax.jit(jax.grad(to_jax(lambda x: function(xgrad, x).sum())))(np.array(at))
    np.testing.assert_allclose(ours, x.grad, rtol=1e-8, atol=1e-10)


# -- arguments and results ---------------------------------------------------------------------------------------------


def test_arguments_are_never_written():
    def write(x):
        x[1:].zero_()
        x.t_() if x.ndim == 2 else x.mul_(3)
        return x

    host = np.ones(3)
    array, tensor = jnp.asarray(host), xgrad.ones(3, dtype=xgrad.float64)
    whole = xgrad.ones(4, dtype=xgrad.float64)
    for given in (host, array, tensor, whole[1:]):
        for f in (to_jax(write), jax.jit(to_jax(write))):
            np.testing.assert_allclose(f(given), [3, 0, 0])
            np.testing.assert_allclose(np.asarray(given), np.ones(3))
    assert tensor._version == 0
    assert whole.tolist() == [1.0] * 4


def test_trees_static_arguments_and_what_is_no_array():
    @to_jax
    def f(tree, scale, *, mode="a"):
        assert isinstance(tree["a"][0], xgrad.Tensor)
        y = tree["a"][0] * scale + (1 if mode == "a" else 2)
        return {"out": (y, None), "mode": mode, "n": 3}

    out = f({"a": [np.ones(2)]}, 2.0, mode="b")
    assert isinstance(out["out"][0], jax.Array)
    assert (out["out"][1], out["mode"], out["n"]) == (None, "b", 3)
    jitted = jax.jit(lambda tree, scale, mode: f(tree, scale, mode=mode)["out"], static_argnums=2)
    np.testing.assert_allclose(jitted({"a": [np.ones(2)]}, 2.0, "a")[0], [3, 3])
    np.testing.assert_allclose(jitted({"a": [np.ones(2)]}, 2.0, "b")[0], [4, 4])
    assert f.__name__ == "f"


def test_a_number_that_jit_traces_is_a_tensor_of_jaxs_dtype():
    """Outside of a trace a Python number stays one, and is weak; JAX makes an array of it, which is not weak here."""
    f = to_jax(lambda x, by: x * by)
    x = np.ones(2, np.float32)
    assert f(x, 2.5).dtype == np.float32
    assert jax.jit(f)(x, 2.5).dtype == np.float32  # 0-dim against a dimensioned one, as in PyTorch
    assert not jax.jit(to_jax(lambda by: by * 1))(2.5).weak_type
    assert jax.jit(to_jax(lambda by: by * 1))(2.5).dtype == np.float64
    for dtype in (np.float16, np.int8, np.bool_, np.complex64, jnp.bfloat16):
        assert jax.jit(to_jax(lambda x: x[1:]))(np.zeros(3, dtype)).dtype == dtype


def test_tensors_from_outside_are_constants():
    weight = xgrad.tensor([1.0, 2.0, 3.0], dtype=xgrad.float64, requires_grad=True)
    f = jax.jit(jax.grad(to_jax(lambda x: (x * x * weight).sum())))
    np.testing.assert_allclose(f(X), 2 * X * np.array([1, 2, 3]))
    with xgrad.no_grad():
        weight.mul_(2)
    np.testing.assert_allclose(jax.grad(to_jax(lambda x: (x * x * weight).sum()))(X), 4 * X * np.array([1, 2, 3]))
    assert weight.grad is None


@pytest.mark.exhaustive
def test_random_numbers_take_a_key():
    @jax.jit
    @to_jax
    def noisy(x, key):
        with xgrad.random.use_key(key):
            return x + xgrad.randn(3)

    one, two = noisy(X, jax.random.key(0)), noisy(X, jax.random.key(1))
    assert not np.allclose(one, two)
    np.testing.assert_allclose(one, noisy(X, jax.random.key(0)))
    batch = jax.vmap(noisy, in_axes=(None, 0))(X, jax.random.split(jax.random.key(0), 2))
    assert not np.allclose(batch[0], batch[1])
    np.testing.assert_allclose(noisy(X, jax.random.key_data(jax.random.key(0))), one)
    with pytest.warns(UserWarning, match="use_key"):
        jax.jit(to_jax(lambda x: x + xgrad.randn(3)))(X)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_wrong_uses():
    with pytest.raises(TypeError, match="expected a function, but got int"):
        to_jax(3)
    with pytest.raises(RuntimeError, match="requires grad"):
        loss(xgrad.ones(3, requires_grad=True))


READS = {
    "if": lambda x: 1 if x.sum() > 0 else 0,
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "index": lambda x: [1, 2, 3][x.long().sum()],
    "numpy": lambda x: x.numpy(),
    "numpy.asarray": lambda x: np.asarray(x),
    "tolist": lambda x: x.tolist(),
    "format": lambda x: f"{x.sum():.2f}",
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "dlpack": lambda x: jnp.from_dlpack(x),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap], ids=["jit", "vmap"])
def test_a_value_that_is_read_inside_is_an_error_that_says_what_to_do(name, transform):
    with pytest.raises(TracedValueError, match=r"traced|trace") as caught:
        transform(to_jax(READS[name]))(np.ones((2, 3)))
    assert re.search(r"xgrad\.where|outside", str(caught.value))


# How a function leaves a tracer in a tensor from outside.
LEAKS = {
    "in place": lambda x, kept, a: x.add_(a),
    "through a view": lambda x, kept, a: x[1:].copy_(a[1:]),
    "gradient": lambda x, kept, a: (x.requires_grad_() * a).sum().backward() or kept.append(x.grad),
    "result": lambda x, kept, a: kept.append(a * 2),
    "view of a result": lambda x, kept, a: kept.append((a * 2)[1:]),
}
USES = {
    "operator": lambda t: t + 1,
    "in place": lambda t: t.add_(1),
    "in place through a view": lambda t: t[1:].mul_(2),
    "assignment": lambda t: t.__setitem__(0, 1.0),
    "fill": lambda t: t.fill_(2.0),
    "copy": lambda t: t.clone(),
    "copied from": lambda t: xgrad.zeros(t.shape).copy_(t),
    "view, read": lambda t: t[1:] + 1,
    "operand of a backward": lambda t: (t.detach().requires_grad_() * 2).sum().backward(),
    "repr": repr,
    "format": lambda t: f"{t}",
    "numpy": lambda t: t.numpy(),
    "numpy.asarray": lambda t: np.asarray(t),
    "item": lambda t: t[0].item(),
    "tolist": lambda t: t.tolist(),
    "if": lambda t: bool(t.sum()),
    "mask": lambda t: t[t > 0],
    "dlpack": lambda t: jnp.from_dlpack(t),
    "pickle": lambda t: pickle.dumps(t),
    "jnp": lambda t: jnp.sin(t),
    "tree": lambda t: jax.tree.map(lambda x: x + 1, t),
    "jit": lambda t: jax.jit(lambda x: x + 1)(t),
    "to_jax": lambda t: to_jax(lambda x: x + 1)(t),
    "from_jax": lambda t: from_jax(lambda x: x + 1)(t),
    "compile": lambda t: xgrad.compile(lambda x: x + 1)(t),
    "compile, closed over": lambda t: xgrad.compile(lambda x: x + t)(xgrad.ones(t.shape, dtype=t.dtype)),
    "vmap": lambda t: xgrad.func.vmap(lambda x: x + 1)(t),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("leak", LEAKS)
def test_a_tracer_that_is_kept_past_its_trace_is_an_error_at_each_use(leak):
    """It names the line where the tracer was made; nothing is half-changed, and `.data` mends the tensor."""
    x, kept = xgrad.ones(3, dtype=xgrad.float64), []

    @jax.jit
    @to_jax
    def leaking(a):
        LEAKS[leak](x, kept, a)
        return a.sum()

    leaking(X)
    tensor = kept[0] if kept else x
    assert tensor.shape == ((2,) if "view of" in leak else (3,))
    assert tensor.dtype == xgrad.float64
    for name, use in USES.items():
        with pytest.raises(Leaked) as caught:
            use(tensor)
        assert __file__ in str(caught.value), name
    tensor.data = xgrad.ones(tensor.shape, dtype=tensor.dtype)
    with xgrad.no_grad():
        tensor[1:].add_(1)
    assert tensor.tolist() == [1.0, 2.0, 2.0][: len(tensor)]
    leaking(X)  # compiled already: nothing is left behind
    assert tensor.tolist() == [1.0, 2.0, 2.0][: len(tensor)]


@pytest.mark.parametrize("transform", [jax.vmap, jax.grad, lambda f: jax.jit(jax.grad(f))], ids=["vmap", "grad", "jit"])
def test_a_tracer_of_another_transformation_that_is_kept_is_an_error_too(transform):
    """JAX notes for those of `jit` where they were made, and for others their shape and kind."""
    kept = []
    transform(to_jax(lambda a: kept.append(a * 2) or a.sum()))(X if transform is not jax.vmap else np.ones((2, 3)))
    for use in (USES["operator"], USES["repr"], USES["numpy"], USES["in place"], USES["compile"], USES["item"]):
        with pytest.raises(Leaked, match=r"intermediate value with type float64\[3\]"):
            use(kept[0])
