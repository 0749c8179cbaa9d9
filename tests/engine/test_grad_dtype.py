"""Tensor.grad_dtype: what it casts, what it refuses, whom it concerns."""

import copy

import pytest

import xgrad

from ..oracle import as_torch, leaf, same_error


def doubling(T):
    class Double(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad.double() * 2

    return Double.apply


def name(dtype):
    return str(dtype).split(".")[-1]


def single(T):
    return leaf(T, 3).detach().float().requires_grad_()


def test_default_is_the_tensors_dtype():
    def program(T):
        x = single(T)
        x.data = x.data.double()
        return name(single(T).grad_dtype), name(T.ones(2, dtype=T.int32).grad_dtype), name(x.grad_dtype)

    as_torch(program)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float32", None])
@pytest.mark.parametrize("when", ["before", "after"])
def test_gradients_arrive_in_it(dtype, when):
    """At hooks, in `.grad`, from `autograd.grad`, with create_graph; the second one is added to the first."""

    def program(T):
        x, seen = single(T), []
        x.register_hook(lambda g: seen.append(name(g.dtype)))
        dtype_ = dtype and getattr(T, dtype)
        if when == "before":
            x.grad_dtype = dtype_
        y = doubling(T)(x).sin()
        z = x.expand(2, 3).exp()
        if when == "after":
            x.grad_dtype = dtype_
        (g,) = T.autograd.grad(y.sum(), x, create_graph=True)
        z.sum().backward(retain_graph=True)
        first = name(x.grad.dtype)
        y.sum().backward()
        (z * z).sum().backward()
        return first, name(x.grad.dtype), name(g.dtype), x.grad.double(), g.double(), seen, x.grad_dtype is None

    as_torch(program, rtol=1e-2 if dtype == "bfloat16" else 1e-6)


def test_first_gradient_keeps_its_dtype_where_any_is_allowed():
    def program(T):
        x = single(T)
        x.grad_dtype = None
        doubling(T)(x).sum().backward()
        (x * 3).sum().backward()
        y = single(T)
        y.grad_dtype = None
        (y * 3).sum().backward()
        doubling(T)(y).sum().backward()
        return x.grad, name(x.grad.dtype), y.grad, name(y.grad.dtype)

    as_torch(program)


@pytest.mark.parametrize("given", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("wanted", ["float32", "float64", None])
def test_assigned_gradient_must_have_it(wanted, given):
    def program(T):
        x = single(T)
        x.grad_dtype = wanted and getattr(T, wanted)
        x.grad = T.ones(3, dtype=getattr(T, given))
        return name(x.grad.dtype)

    if wanted in (None, given):
        as_torch(program)
    else:
        same_error(program, "to a tensor with grad_dtype")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda T, x: (x * 2).grad_dtype, "can only be accessed on leaf tensors"),
        (lambda T, x: setattr(x * 2, "grad_dtype", T.float64), "can only be set on leaf tensors"),
        (lambda T, x: setattr(x[:1], "grad_dtype", None), "can only be set on leaf tensors"),
        (lambda T, x: setattr(x, "grad_dtype", 3), "grad_dtype must be a"),
        (lambda T, x: setattr(x, "grad_dtype", T.float64), "Cannot set grad_dtype to"),
    ],
)
def test_refused(change, text):
    def program(T):
        x = single(T)
        x.grad = T.ones(3)
        change(T, x)

    same_error(program, text)


def test_who_has_it():
    def program(T):
        x = single(T)
        x.grad_dtype = T.float64
        p = T.nn.Parameter(T.ones(2))
        p.grad_dtype = T.bfloat16
        (p * 2).sum().backward()
        x.grad = T.ones(3, dtype=T.float64)
        x.grad_dtype = T.float64
        x.grad = None
        x.grad_dtype = T.float32
        return name(x.detach().grad_dtype), name(p.grad.dtype), name(x.grad_dtype)

    as_torch(program)


def test_deep_copy_has_it_and_its_gradient():
    """torch refuses to copy a leaf whose gradient has another dtype."""
    x = single(xgrad)
    x.grad_dtype = xgrad.float64
    (x * 2).sum().backward()
    twin = copy.deepcopy(x)
    assert twin.grad_dtype == twin.grad.dtype == xgrad.float64


def test_sparse_gradient_is_cast():
    table = leaf(xgrad, 4, 2)
    for dtype in (xgrad.float32, None):
        table.grad_dtype = dtype
        xgrad.nn.functional.embedding(xgrad.tensor([1, 1]), table, sparse=True).sum().backward()
        assert table.grad.is_sparse
        assert table.grad.dtype == (dtype or xgrad.float64)
        table.grad = None
