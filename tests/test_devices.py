"""Two devices: gradients land where their variable lives, and a copy across devices is CopyBackwards."""

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
    assert node.name() == "CopySlices"
    (base * base).sum().backward()
    assert on(source.grad) == {DEVICES[1].id}
    np.testing.assert_allclose(source.grad.numpy(), 2 * source.numpy(force=True))


def test_whole_copy_across_devices():
    source, target = second(3), leaf(xgrad, 3) * 1
    target.copy_(source)
    assert target.grad_fn.name() == "CopyBackwards"
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
