"""Leaves that are views, as parameters made by `reshape` or cut out of a flat buffer are: they keep their gradients."""

import numpy as np
import pytest
import torch

import xgrad

from .oracle import array, as_torch, data, same_error

pytestmark = pytest.mark.usefixtures("path")

MAKE = {
    "reshape": lambda T: (T.arange(6.0).reshape(2, 3).requires_grad_(), None),
    "transposed": lambda T: (T.arange(6.0).reshape(2, 3).t().requires_grad_(), None),
    "part of a buffer": lambda T: (lambda flat: (flat[:6].view(2, 3).requires_grad_(), flat))(T.arange(8.0)),
    "detached": lambda T: (T.arange(6.0).reshape(2, 3).detach().requires_grad_(), None),
}
WRITE = {
    "-=": lambda x, flat: x.sub_(0.1),
    "data": lambda x, flat: x.data.add_(1),
    "slice": lambda x, flat: x[0].mul_(2),
    "buffer": lambda x, flat: (x if flat is None else flat).add_(1),
    "whole": lambda x, flat: x.copy_(x + 1),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize("write", WRITE.values(), ids=WRITE)
def test_leaf_that_is_a_view_stays_a_leaf(make, write):
    def program(T):
        x, flat = make(T)
        seen = []
        x.register_hook(lambda grad: seen.append(grad.sum().item()))
        gradients = []
        for _ in range(3):
            x.grad = None
            (x * x).sum().backward()
            gradients.append(x.grad.clone())
            with T.no_grad():
                write(x, flat)
        (only,) = T.autograd.grad((x * x * x).sum(), x)
        gradients += [only, T.tensor(seen), x.detach()]
        assert x.is_leaf
        assert x.grad_fn is None
        return gradients

    as_torch(program, rtol=1e-6)


def test_view_of_a_buffer_made_under_no_grad_trains():
    def program(T):
        flat = T.arange(8.0)
        with T.no_grad():
            w = flat[:4].view(2, 2)
        w.requires_grad_()
        for _ in range(3):
            w.grad = None
            (w * w).sum().backward()
            with T.no_grad():
                flat -= 0.1
        return [w.grad, w.detach(), flat]

    as_torch(program)


@pytest.mark.parametrize(
    "write",
    [
        lambda v: v.mul_(2),
        lambda v: v.__setitem__(0, 1.0),
        lambda v: v[0].mul_(2),
        lambda v: v.squeeze_(),
        lambda v: v[:1].copy_(v[1:]),
    ],
)
def test_leaf_that_is_a_view_must_not_be_written_while_recording(write):
    for T in (xgrad, torch):
        v = T.zeros(4)[:2].requires_grad_()
        before = array(v.detach()), v._version
        with pytest.raises(RuntimeError, match=r"a (view of a )?leaf Variable that requires grad"):
            write(v)
        np.testing.assert_array_equal(array(v.detach()), before[0])
        assert v._version == before[1]
        assert v.is_leaf


def test_as_strided_of_a_leaf_that_is_a_view_reaches_the_leaf():
    def program(T):
        x = data(T, (3, 4)).narrow(1, 1, 2).requires_grad_()
        y = x.t().as_strided((2, 2), (1, 4), 5)
        (g,) = T.autograd.grad((y * y * y).sum(), x, create_graph=True)
        (second,) = T.autograd.grad((g * g).sum(), x)
        (y * y).sum().backward()
        return [g.detach(), second, x.grad]

    as_torch(program)


def test_leaf_that_its_base_took_into_the_graph():
    def program(T):
        base = T.ones(5)
        leaf = base.narrow(0, 1, 4).requires_grad_()
        base[1:] = leaf * 2
        assert not leaf.is_leaf
        (leaf * leaf).sum().backward()

    same_error(program, "leaf variable has been moved into the graph interior")


def test_view_of_a_detached_base_must_not_be_written():
    def program(T):
        y = T.ones(4, requires_grad=True) * 2
        v = y[:2]
        y.detach_()
        v.mul_(2)

    same_error(program, "a view of a leaf Variable that requires grad")


def test_bits_of_a_tensor_are_outside_of_the_graph():
    def program(T):
        x = T.ones(4, requires_grad=True)
        b = x * 1
        bits = b.view(T.int32)
        half = b.view(T.float16)
        assert not bits.requires_grad
        assert not half.requires_grad
        assert not bits._is_view()
        assert bits.is_leaf
        bits.fill_(0)
        assert b._version == 1
        (b + b.view(T.float32)).sum().backward()
        return [x.grad, b.detach(), bits]

    as_torch(program)


def test_pieces_of_one_split_share_one_node():
    def program(T):
        x = T.arange(12.0).reshape(4, 3).requires_grad_()
        told = []
        out = []
        for pieces in (x.split([1, 3]), x.unbind(1), x.chunk(2)):
            node = pieces[0].grad_fn
            assert all(p.grad_fn is node for p in pieces)
            told.append([p.output_nr for p in pieces])
            node.register_prehook(lambda grads: told.append([g is None for g in grads]))
            node.register_hook(lambda ins, outs: told.append((len(ins), len(outs))))
            (g,) = T.autograd.grad((pieces[0] * pieces[0]).sum(), x, create_graph=True)
            (second,) = T.autograd.grad((g * g).sum(), x)
            (every,) = T.autograd.grad(sum((p * p * (i + 1)).sum() for i, p in enumerate(x.unbind())), x)
            out += [g.detach(), second, every]
        return [*out, told]

    def compare(T):
        *tensors, told = program(T)
        return tensors, told

    ours, theirs = compare(xgrad), compare(torch)
    assert ours[1] == theirs[1]
    for a, b in zip(ours[0], theirs[0]):
        np.testing.assert_allclose(array(a), array(b), rtol=1e-6)


def test_a_jax_array_is_no_way_out_of_the_graph():
    import jax.numpy as jnp

    x = xgrad.ones(3, requires_grad=True)
    for convert in (jnp.asarray, lambda x: jnp.ones(3) * x):
        with pytest.raises(RuntimeError, match="requires grad"):
            convert(x)
    assert (x * jnp.ones(3)).requires_grad
    np.testing.assert_array_equal(jnp.ones(3) * x.detach(), 1)
    with xgrad.no_grad():
        np.testing.assert_array_equal(jnp.asarray(x), 1)
