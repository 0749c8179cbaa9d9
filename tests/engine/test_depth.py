"""Neither long graphs nor deeply nested backward calls meet Python's recursion limit."""

import sys

import pytest
import torch

import xgrad

from ..oracle import leaf, same

LONG, DEEP = 100_000, 1000


def chain(T, n):
    x = leaf(T, 2)
    y = x
    for _ in range(n):
        y = y * 1.00001
    return x, y


@pytest.mark.exhaustive
def test_backward_and_destruction_of_a_long_chain():
    x, y = chain(xgrad, LONG)
    y.sum().backward()
    same(x.grad, torch.full((2,), 1.00001**LONG, dtype=torch.float64), rtol=1e-9)
    del y  # frees a hundred thousand nodes, one inside of the other


@pytest.mark.exhaustive
def test_destruction_of_a_long_chain_without_backward():
    _, y = chain(xgrad, LONG // 2)
    node = y.grad_fn
    del y
    assert node._topological_nr() == LONG // 2
    del node


@pytest.mark.exhaustive
def test_gradient_of_an_input_at_the_end_of_a_long_chain():
    x, y = chain(xgrad, LONG // 10)
    (g,) = xgrad.autograd.grad(y.sum(), x)
    same(g, torch.full((2,), 1.00001 ** (LONG // 10), dtype=torch.float64), rtol=1e-9)


@pytest.mark.eager("launches")
@pytest.mark.one_in(2)
def test_long_chain_of_writes_through_views(path):
    n = 2000
    x = leaf(xgrad, 2, 2)
    base = x.clone()
    for i in range(n):
        base[i % 2].mul_(1.001)
    base.sum().backward()
    same(x.grad, torch.full((2, 2), 1.001 ** (n // 2), dtype=torch.float64), rtol=1e-9)


class Nested(xgrad.autograd.Function):
    """Its backward runs a backward through itself, `depth` levels deep."""

    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        if not ctx.depth:
            return grad, None
        with xgrad.enable_grad():
            inner = x.detach().requires_grad_()
            out = Nested.apply(inner, ctx.depth - 1).sum()
        (g,) = xgrad.autograd.grad(out, inner)
        return g + grad, None


@pytest.mark.one_in(2)
@pytest.mark.parametrize("limit", [None, 400])
def test_reentrant_backward(limit):
    previous = sys.getrecursionlimit()
    if limit:
        sys.setrecursionlimit(limit)
    try:
        x = leaf(xgrad, 2)
        Nested.apply(x, DEEP).sum().backward()
    finally:
        sys.setrecursionlimit(previous)
    same(x.grad, torch.full((2,), DEEP + 1.0, dtype=torch.float64))


def test_reentrant_backward_inside_hooks():
    count = []

    def descend(depth):
        with xgrad.enable_grad():
            x = xgrad.ones(2, requires_grad=True)
            y = x * 2
        if depth:
            y.register_hook(lambda grad: descend(depth - 1))
        with xgrad.enable_grad():
            y.sum().backward()
        count.append(depth)

    descend(DEEP)
    assert count == list(range(DEEP + 1))


def test_error_at_the_bottom_of_nested_backward_calls_arrives_at_the_top():
    class BottomError(Exception):
        pass

    def descend(depth):
        def hook(grad):
            if not depth:
                raise BottomError
            descend(depth - 1)

        with xgrad.enable_grad():
            x = xgrad.ones(2, requires_grad=True)
            y = x * 2
            y.register_hook(hook)
            y.sum().backward()

    with pytest.raises(BottomError):
        descend(60)
    assert xgrad.is_grad_enabled()
