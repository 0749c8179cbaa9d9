"""In-place writes keep the sharding of a storage, and its memory; gradients are sharded as their variables."""

import contextlib
import warnings

import jax
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import xgrad

from ..oracle import values

pytestmark = pytest.mark.skipif(len(jax.devices()) < 8, reason="needs eight devices")


def mesh():
    return xgrad.mesh({"a": 4, "b": 2})


def sharding(*axes):
    return NamedSharding(mesh().mesh, P(*axes))


WRITES = {
    "whole, by another sharding": lambda x, y: x.mul_(y),
    "whole, by a number": lambda x, y: x.mul_(2),
    "whole, of a constant": lambda x, y: x.fill_(2),
    "zero": lambda x, y: x.zero_(),
    "copy": lambda x, y: x.copy_(y),
    "copy of a row": lambda x, y: x.copy_(y[0]),
    "row": lambda x, y: x[0].mul_(2),
    "rows": lambda x, y: x[1:7:2].copy_(y[:3]),
    "column": lambda x, y: x[:, 0].add_(y[:, 1]),
    "transposed": lambda x, y: x.t().mul_(y.t()),
    "transposed column": lambda x, y: x.t()[1].zero_(),
    "reshaped": lambda x, y: x.view(4, 8).mul_(y.view(4, 8)),
    "flat": lambda x, y: x.view(-1)[3:9].add_(1),
    "whole flat": lambda x, y: x.view(-1).zero_(),
    "diagonal": lambda x, y: x.diagonal().zero_(),
    "item": lambda x, y: x.__setitem__((2, 3), 5.0),
    "index": lambda x, y: x.__setitem__([0, 3], 1.0),
    "mask": lambda x, y: x.masked_fill_(y > 0, 1.0),
    "scan": lambda x, y: x.cumsum_(0),
    "index_add": lambda x, y: x.index_add_(0, x.new_tensor([0, 3]).long(), y[:2]),
    "lerp": lambda x, y: x.lerp_(y, 0.5),
    "addcmul": lambda x, y: x.addcmul_(y, y),
}


def pair(T, *places):
    """Two tensors; in xgrad, placed.  The first is ours to donate."""
    made = [T.from_numpy(values((8, 4), seed)) for seed in (0, 1)]
    if T is xgrad:
        made = [x.to(place) for x, place in zip(made, places)]
    return made[0] * 1, made[1]


@pytest.mark.one_in(16)
@pytest.mark.parametrize("write", WRITES)
def test_write_keeps_the_sharding(write, path):
    expected, other = pair(torch)
    WRITES[write](expected, other)
    where = sharding("a", "b")
    x, y = pair(xgrad, where, sharding(None, "b"))
    first = x[0]
    for _ in range(2):  # in the second one it is what the first has left
        x.copy_(pair(xgrad, where, where)[0])
        WRITES[write](x, y)
        assert x.sharding == where
    np.testing.assert_allclose(x.numpy(), expected.numpy(), rtol=1e-12)
    np.testing.assert_allclose(first.numpy(), expected[0].numpy(), rtol=1e-12)


def shards(x):
    array = x._read()
    return [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("write", ["row", "column", "flat", "transposed", "whole, by a number", "item"])
def test_each_shard_is_written_where_it_is(write):
    x, y = pair(xgrad, sharding("a", "b"), sharding("a", "b"))
    x.add_(1)
    before = shards(x)
    view = None if write.startswith("whole") else x[0]
    WRITES[write](x, y)
    assert shards(x) == before
    assert view is None or view.shape == (4,)


def test_shards_that_somebody_holds_are_not_written():
    x, _ = pair(xgrad, sharding("a", "b"), sharding("a", "b"))
    before = x.numpy().copy()
    held = x._read()
    x[0].zero_()
    assert not held.is_deleted()
    np.testing.assert_array_equal(np.asarray(held), before)
    assert x.sharding == sharding("a", "b")


@pytest.mark.exhaustive
def test_write_of_a_value_made_elsewhere_keeps_the_device():
    """What is written need not depend on what was there: a program for it alone would run on the default device."""
    for place in ("cpu:1", sharding("a"), sharding()):
        x = xgrad.ones(8, 4, device=place)
        where = x.sharding
        for write in (
            lambda x: x.zero_(),
            lambda x: x.fill_(3),
            lambda x: x.uniform_(),
            lambda x: x.view(-1).zero_(),
            lambda x: x.copy_(xgrad.ones(8, 4)),
            lambda x: xgrad.ones(4, out=x[0]),
        ):
            write(x)
            assert x.sharding == where


@pytest.mark.one_in(2)
def test_recorded_write_through_views_of_a_sharded_base(path):
    """The transposed, the strided and the flat view; equal to torch, and the gradients are placed as their leaves."""

    def program(leaf, other):
        base = leaf * 1
        base.t()[1].mul_(other)
        base[::2].add_(base[1::2])
        base.view(-1)[3:9].tanh_()
        return (base * base).sum()

    leaves = [torch.from_numpy(values(shape)).requires_grad_() for shape in ((8, 4), (8,))]
    program(*leaves).backward()
    where = (sharding("a", "b"), sharding("b"))
    mine = [xgrad.tensor(values(s), device=w, requires_grad=True) for s, w in zip(((8, 4), (8,)), where)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a gradient that XLA sharded in another way is moved
        program(*mine).backward()
    for ours, theirs, place in zip(mine, leaves, where):
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-12)
        assert ours.grad.sharding.is_equivalent_to(place, ours.ndim)


@pytest.mark.exhaustive
def test_optimizer_step_keeps_the_shardings():
    weights = xgrad.tensor(values((8, 4)), device=sharding("a", "b"), requires_grad=True)
    momentum = xgrad.zeros_like(weights)
    data = xgrad.tensor(values((16, 8), 2), device=sharding("a"))
    for _ in range(3):
        weights.grad = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (data @ weights).square().mean().backward()
        assert weights.grad.sharding.is_equivalent_to(weights.sharding, 2)
        with xgrad.no_grad():
            momentum.mul_(0.9).add_(weights.grad)
            weights.sub_(momentum, alpha=0.1)
        assert weights.sharding == momentum.sharding == sharding("a", "b")


def test_gradient_that_is_moved_is_warned_about_once_for_a_variable():
    """And where nobody asked for a place of the variable, its gradient is not bound to one: the next step runs too."""
    weights = xgrad.tensor(values((4, 3)), requires_grad=True)
    data = xgrad.tensor(values((8, 4)), device=sharding("a"))
    for step in range(3):
        weights.grad = None
        with pytest.warns(UserWarning, match="sharding") if step == 0 else contextlib.nullcontext():
            (data @ weights).square().mean().backward()
        assert weights.grad.sharding == weights.sharding
        with xgrad.no_grad():
            weights.sub_(weights.grad, alpha=0.1)


def test_gradient_given_by_the_user_keeps_its_sharding():
    x = xgrad.tensor(values((8, 4)), device=sharding("a"), requires_grad=True)
    x.grad = mine = xgrad.ones(8, 4, dtype=xgrad.float64, device=sharding(None, "b"))
    (x * 2).sum().backward()
    assert x.grad is mine
    assert mine.sharding == sharding(None, "b")
    np.testing.assert_array_equal(mine.numpy(), 3.0)


def test_gradient_that_was_moved_is_not_donated():
    """A replicated gradient moved to the first device is another array over the same buffer, which a hook may hold."""
    held = []
    x = xgrad.ones(64, 512, device="cpu:0", requires_grad=True)

    class Forgets(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            grad = grad.to(sharding())
            held.append(grad.detach())
            return grad

    y = Forgets.apply(x).sum()
    with pytest.warns(UserWarning, match="sharding"):
        y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_array_equal(held[0].numpy(), 1.0)
    np.testing.assert_array_equal(held[1].numpy(), 1.0)
    np.testing.assert_array_equal(x.grad.numpy(), 2.0)


def test_tangents_lie_where_their_primals_do():
    from xgrad.autograd import forward_ad as fw

    x = xgrad.tensor(values((8, 4)), device=sharding("a", "b"))
    tangent = xgrad.tensor(values((4, 8), 1), device=sharding("b", "a"))
    with fw.dual_level():
        dual = fw.make_dual(x.t(), tangent)
        out = fw.unpack_dual(dual * dual).tangent
        base = x * 1
        base[0].copy_(fw.make_dual(xgrad.ones(4, device=base.device), xgrad.ones(4, device=base.device)))
        written = fw.unpack_dual(base * 2).tangent
    np.testing.assert_allclose(out.numpy(), 2 * values((8, 4)).T * values((4, 8), 1))
    assert written.device == x.device
    np.testing.assert_array_equal(written.numpy()[:2], [[2.0] * 4, [0.0] * 4])
