"""Two devices: gradients land where their variable lives, and a copy across devices is CopyBackwards."""

import pickle

import jax
import numpy as np
import pytest
import torch

import xgrad

from .oracle import leaf

DEVICES = jax.devices("cpu")

pytestmark = pytest.mark.skipif(len(DEVICES) < 2, reason="needs two devices")


def on(tensor):
    array = tensor._read()
    return {d.id for d in array.sharding.device_set}


def second(*shape, seed=0, requires_grad=True):
    x = leaf(xgrad, *shape, seed=seed).detach().to(DEVICES[1])
    return x.requires_grad_() if requires_grad else x


def test_to_moves_and_its_gradient_comes_back():
    x = leaf(xgrad, 3)
    y = x.to(DEVICES[1])
    assert on(y) == {DEVICES[1].id}
    (y * y).sum().backward()
    assert on(x.grad) == {DEVICES[0].id}
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy(force=True))
    assert y.device != x.device
    assert y.to("cpu:1") is y


def test_gradient_lands_where_the_variable_lives():
    x = second(3)
    y = (x * x).sum()
    y.backward()
    assert on(x.grad) == {DEVICES[1].id}
    y = (x * 2).sum()
    y.backward()
    assert on(x.grad) == {DEVICES[1].id}


def test_leaves_on_both_devices():
    a, b = leaf(xgrad, 3), second(3, seed=1)
    (a.to(DEVICES[1]) * b).sum().backward()
    assert (on(a.grad), on(b.grad)) == ({DEVICES[0].id}, {DEVICES[1].id})
    np.testing.assert_allclose(a.grad.numpy(), b.numpy(force=True))


def test_copy_across_devices_is_copy_backwards(path):
    source = second(3)
    base = leaf(xgrad, 2, 3) * 1
    base[0].copy_(source)
    assert on(base) == {DEVICES[0].id}
    node = base.grad_fn
    assert type(node).__name__ == "CopySlices"
    (base * base).sum().backward()
    assert on(source.grad) == {DEVICES[1].id}
    np.testing.assert_allclose(source.grad.numpy(), 2 * source.numpy(force=True))


def test_whole_copy_across_devices():
    source, target = second(3), leaf(xgrad, 3) * 1
    target.copy_(source)
    assert target.grad_fn.name() == "torch::autograd::CopyBackwards"
    assert on(target) == {DEVICES[0].id}
    target.sum().backward()
    assert on(source.grad) == {DEVICES[1].id}


def test_assignment_across_devices(path):
    source, base = second(3), leaf(xgrad, 2, 3) * 1
    base[1] = source
    base.sum().backward()
    assert on(source.grad) == {DEVICES[1].id}


def test_views_and_writes_stay_on_their_device(path):
    x = second(2, 3)
    base = x * 1
    base[0].mul_(2)
    base.t()[1].tanh_()
    assert on(base) == on(base[0]) == {DEVICES[1].id}
    base.sum().backward()
    assert on(x.grad) == {DEVICES[1].id}


def test_second_gradient_across_devices():
    x = leaf(xgrad, 3)
    y = x.to(DEVICES[1])
    (g,) = xgrad.autograd.grad((y * y * y).sum(), x, create_graph=True)
    (h,) = xgrad.autograd.grad(g.sum(), x)
    assert on(g) == on(h) == {DEVICES[0].id}
    np.testing.assert_allclose(h.numpy(), 6 * x.numpy(force=True))


def test_operands_on_two_devices_are_refused():
    a, b = xgrad.as_tensor(jax.device_put(leaf(xgrad, 3).numpy(force=True), DEVICES[0])), second(3)
    for call in (lambda: a + b, lambda: (a * 1).add_(b), lambda: xgrad.cat([a, b])):
        with pytest.raises(RuntimeError, match="same device"):
            call()


def test_scalar_gradient_moves_across_devices():
    scale = leaf(xgrad)
    x = second(3)
    (x * scale.to(DEVICES[1])).sum().backward()
    assert on(scale.grad) == {DEVICES[0].id}


def test_hook_must_not_change_the_device():
    x = second(3)
    x.register_hook(lambda grad: grad.to(DEVICES[0]))
    with pytest.raises(RuntimeError, match="device"):
        (x * 2).sum().backward()


def test_misplaced_gradient_is_moved_and_warned_about_once():
    """A custom Function that forgot the device: the accumulator moves the gradient to its variable."""

    class Forgets(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad.to(DEVICES[0])

    x = second(3)
    y = Forgets.apply(x).sum()
    with pytest.warns(UserWarning, match="sharding"):
        y.backward(retain_graph=True)
    y.backward()
    assert on(x.grad) == {DEVICES[1].id}


def test_sharded_parameter_keeps_its_sharding():
    sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(DEVICES[:2], ("i",)), jax.sharding.PartitionSpec("i"))
    x = leaf(xgrad, 4, 3).detach().to(sharding).requires_grad_()
    (x * x).sum().backward()
    assert x.grad.sharding.is_equivalent_to(sharding, 2)
    with xgrad.no_grad():
        x.sub_(x.grad * 0.1)
        x[0].zero_()
    assert on(x) == {d.id for d in DEVICES[:2]}
    np.testing.assert_array_equal(x.numpy(force=True)[0], 0.0)


@pytest.mark.parametrize("T", [xgrad, torch], ids=["xgrad", "torch"])
def test_devices_compare_with_devices_alone(T):
    assert T.device("cpu") == T.ones(1).device
    assert T.device("cpu") != "cuda"
    assert T.device("cpu") != "cpu"
    assert T.device("cpu", 0) != T.device("cpu", 1)
    assert hash(T.device("cpu", 0)) == hash(T.device("cpu", 0))


# -- the gradient layout contract --------------------------------------------------------------------------------------


def sharded(*names):
    mesh = jax.sharding.Mesh(np.array(DEVICES[:2]), ("i",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*names))


def returning(placement):
    """The Function x * x whose backward leaves its gradient at `placement`."""

    class Forgets(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return (grad * 2 * ctx.saved_tensors[0]).to(placement)

    return Forgets


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_are_moved_and_accumulated_where_their_variable_lives(create_graph):
    x = second(3)
    y = returning(DEVICES[0]).apply(x).sum()
    with pytest.warns(UserWarning, match="sharding"):
        y.backward(retain_graph=True, create_graph=create_graph)
    y.backward(retain_graph=True, create_graph=create_graph)  # a second warning would be an error
    assert on(x.grad) == {DEVICES[1].id}
    np.testing.assert_allclose(x.grad.numpy(force=True), 4 * x.numpy(force=True))
    if create_graph:
        (second_order,) = xgrad.autograd.grad(x.grad.sum(), x)
        assert on(second_order) == {DEVICES[1].id}
        np.testing.assert_allclose(second_order.numpy(), 4.0)


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradient_that_each_device_has_is_sharded_without_a_word(create_graph):
    x = leaf(xgrad, 4).detach().to(sharded("i")).requires_grad_()
    y = returning(sharded()).apply(x).sum()
    for _ in range(2):
        y.backward(retain_graph=True, create_graph=create_graph)
        assert x.grad.sharding.is_equivalent_to(sharded("i"), 1)
    np.testing.assert_allclose(x.grad.numpy(force=True), 4 * x.numpy(force=True))


def test_gradient_that_is_sharded_in_another_way_is_moved():
    x = leaf(xgrad, 4, 2).detach().to(sharded("i")).requires_grad_()
    with pytest.warns(UserWarning, match="sharding"):
        returning(sharded(None, "i")).apply(x).sum().backward()
    assert x.grad.sharding.is_equivalent_to(sharded("i"), 2)


def test_tensor_hooks_see_the_gradient_as_it_arrives_and_post_accumulate_hooks_where_it_lands():
    seen, x = [], second(3)
    x.register_hook(lambda grad: seen.append(on(grad)))
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(on(leaf.grad)))
    with pytest.warns(UserWarning, match="sharding"):
        returning(DEVICES[0]).apply(x).sum().backward()
    assert seen == [{DEVICES[0].id}, {DEVICES[1].id}]


def test_gradient_given_by_the_user_stays_the_object_into_which_is_accumulated():
    x = second(3)
    x.grad = mine = xgrad.ones(3, dtype=xgrad.float64, device=DEVICES[1])
    (x * 2).sum().backward()
    assert x.grad is mine
    assert on(mine) == {DEVICES[1].id}
    np.testing.assert_allclose(mine.numpy(), 3.0)


def test_leaf_whose_data_moved_after_it_was_used():
    x = leaf(xgrad, 3)
    y = (x * 2).sum()
    x.data = x.data.to(DEVICES[1])
    y.backward()
    assert on(x.grad) == {DEVICES[1].id}


def test_gradients_that_are_made_up_lie_where_their_tensors_do():
    x = second(3)
    (zeros,) = xgrad.autograd.grad(leaf(xgrad), x, materialize_grads=True)
    assert on(zeros) == {DEVICES[1].id}
    y, z = x * 1, x * 2
    y.sum().backward(inputs=[y, z])
    assert on(y.grad) == {DEVICES[1].id}


@pytest.mark.parametrize("create_graph", [False, True])
def test_policy_switched_off_leaves_gradients_where_the_first_one_arrives(create_graph):
    x = second(3)
    home = returning(DEVICES[1]).apply(x).sum()
    y = returning(DEVICES[0]).apply(x).sum()
    with xgrad.autograd.enforce_grad_layout_policy(False):
        y.backward(retain_graph=True, create_graph=create_graph)  # a warning would be an error
        assert on(x.grad) == {DEVICES[0].id}
        home.backward(retain_graph=True, create_graph=create_graph)
        assert on(x.grad) == {DEVICES[0].id}
        np.testing.assert_allclose(x.grad.numpy(force=True), 4 * x.numpy(force=True))
        x.grad = None
        home.backward(create_graph=create_graph)
        y.backward(create_graph=create_graph)
    assert on(x.grad) == {DEVICES[1].id}
    np.testing.assert_allclose(x.grad.numpy(force=True), 4 * x.numpy(force=True))


def test_a_device_that_declares_strides_has_its_views_tracked_by_geometry():
    from xgrad.base.platforms import STRIDED

    def name_after_write(x):
        y = x.clone()
        row = y[0]
        row.mul_(2)
        return row.grad_fn.name()

    x = xgrad.ones(2, 2, requires_grad=True)
    assert name_after_write(x) == "SelectBackward0"
    STRIDED.add("cpu")
    try:
        assert name_after_write(x) == "AsStridedBackward0"
        traced = []
        jax.jit(lambda a: traced.append(name_after_write(xgrad.as_tensor(a).requires_grad_())))(jax.numpy.ones((2, 2)))
        assert traced == ["AsStridedBackward0"]
        with xgrad.views.tracking("replay"):
            assert name_after_write(x) == "SelectBackward0"
    finally:
        STRIDED.remove("cpu")


@pytest.mark.parametrize("name", ["cuda:3", "cuda", "tpu:1", "cpu:17"])
def test_an_absent_device_is_a_name_that_fails_where_a_tensor_is_put(name):
    device = xgrad.device(name)
    if "tpu" not in name:
        assert (str(device), repr(device)) == (str(torch.device(name)), repr(torch.device(name)))
    assert device == pickle.loads(pickle.dumps(device)) == xgrad.device(name) != xgrad.device("cpu")
    assert len({device, xgrad.device(name)}) == 1
    for use in (lambda: xgrad.ones(2, device=device), lambda: xgrad.ones(2).to(device), device.__enter__):
        with pytest.raises(RuntimeError, match="is not available: JAX sees"):
            use()
    assert xgrad.ones(2).device == xgrad.device("cpu")
