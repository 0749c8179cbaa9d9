"""Tensors in JAX's pytrees: a node with one leaf."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad


@pytest.fixture
def tree():
    return {"x": xgrad.arange(4.0), "w": [xgrad.ones(3, requires_grad=True)]}


def values(tree):
    return {"x": tree["x"].tolist(), "w": [w.tolist() for w in tree["w"]]}


def test_map_gives_tensors_without_history(tree):
    out = jax.tree.map(lambda a: a + 1, tree)
    assert values(out) == {"x": [1.0, 2.0, 3.0, 4.0], "w": [[2.0] * 3]}
    assert not out["w"][0].requires_grad
    assert isinstance(out["x"], xgrad.Tensor)


def test_under_no_grad_parameters_and_gradients_have_one_structure(tree):
    grads = {"x": xgrad.ones(4), "w": [xgrad.ones(3)]}
    with xgrad.no_grad():
        stepped = jax.tree.map(lambda p, g: p - g, tree, grads)
        assert jax.tree.structure(tree) == jax.tree.structure(grads)
    assert values(stepped) == {"x": [-1.0, 0.0, 1.0, 2.0], "w": [[0.0] * 3]}
    with pytest.raises(ValueError, match=r"requires grad: use it under xgrad.no_grad\(\), or detach\(\)"):
        jax.tree.map(lambda p, g: p - g, tree, grads)


@pytest.mark.parametrize("use", [jnp.sin, jax.jit(jnp.sin), jax.vmap(jnp.sin), jax.grad(lambda w: jnp.sum(w))])
def test_a_transformation_of_what_requires_grad_is_an_error(use, tree):
    (w,) = tree["w"]
    for _ in range(2):
        use(w.detach())  # which was traced does not matter
        with pytest.raises(RuntimeError, match=r"Can't convert a Tensor that requires grad to a jax\.Array"):
            use(w)
    with xgrad.no_grad():
        use(w)


def test_what_is_no_array_stands_there_itself(tree):
    assert jax.tree.map(lambda a: a.shape, tree, is_leaf=None) == {"x": (4,), "w": [(3,)]}
    host = jax.device_get(tree)
    assert isinstance(host["x"], np.ndarray)
    assert host["x"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert isinstance(jax.eval_shape(lambda x: x * 2, tree["x"]), jax.ShapeDtypeStruct)


def test_placement_and_waiting(tree):
    there = jax.devices()[1]
    moved = jax.device_put(tree, there)
    assert moved["x"].device == xgrad.device(there)
    assert values(moved) == values(tree)
    assert jax.block_until_ready(tree)["w"][0].tolist() == [1.0] * 3
    assert jax.block_until_ready(tree["x"].sum()).item() == 6.0


def test_jnp_functions(tree):
    assert jnp.sum(tree["x"]) == 6.0
    assert isinstance(jnp.sin(tree["x"]), jax.Array)


def test_transformations_take_tensors_and_hand_out_tensors(tree):
    x, tree = tree["x"], {"x": tree["x"], "w": [tree["w"][0].detach()]}
    assert jax.jit(lambda t: t["x"][1:].mul_(2) + t["w"][0].sum())(tree).tolist() == [5.0, 7.0, 9.0]
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]  # the write went to the traced one
    assert jax.vmap(lambda a, b: a * b, in_axes=(0, None))(x, x)[2].tolist() == [0.0, 2.0, 4.0, 6.0]
    end, along = jax.lax.scan(lambda c, a: (c + a, c * a), xgrad.tensor(0.0), x)
    assert end.item() == 6.0
    assert along.tolist() == [0.0, 0.0, 2.0, 9.0]
    grads = jax.grad(lambda t: (t["x"] * t["x"]).sum()._read())(tree)
    assert values(grads) == {"x": [0.0, 2.0, 4.0, 6.0], "w": [[0.0] * 3]}


def test_a_view_is_what_it_shows_and_the_array_is_never_donated():
    base = xgrad.arange(6.0) * 1
    view = base[1:3]
    assert jax.tree.leaves(view)[0].tolist() == [1.0, 2.0]
    (array,) = jax.tree.leaves(base)
    base.add_(1)
    assert array.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert base.tolist()[0] == 1.0
