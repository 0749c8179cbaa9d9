"""The modes' context managers as decorators; what a thread of the engine takes over from its caller."""

import numpy as np
import pytest
import torch

import xgrad

LIBRARIES = pytest.mark.parametrize("T", [xgrad, torch], ids=["xgrad", "torch"])


def steps(T, told):
    try:
        told.append(T.is_grad_enabled())
        got = yield 1
        told.append((got, T.is_grad_enabled()))
        try:
            yield 2
        except KeyError as error:
            told.append((str(error), T.is_grad_enabled()))
        yield 3
        told.append("not reached")
    finally:
        told.append(("closed", T.is_grad_enabled()))


def test_decorated_generator_is_sent_thrown_and_closed():
    def program(T):
        told = []
        generator = T.no_grad()(steps)(T, told)
        told.append(next(generator))
        told.append(T.is_grad_enabled())
        told.append(generator.send("sent"))
        told.append(generator.throw(KeyError("thrown")))
        generator.close()
        told.append(T.is_grad_enabled())
        return told

    ours = program(xgrad)
    assert ours == program(torch)
    assert ("closed", False) in ours


@LIBRARIES
def test_decorated_generator_returns_and_raises(T):
    @T.no_grad()
    def returns():
        yield 1
        return "result"

    def outer():
        return (yield from returns())

    generator = outer()
    next(generator)
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "result"

    @T.no_grad()
    def raises():
        yield 1
        raise ValueError("from within")

    generator = raises()
    next(generator)
    with pytest.raises(ValueError, match="from within"):
        next(generator)
    assert T.is_grad_enabled()


def test_key_of_use_key_reaches_backwards_that_change_the_thread():
    """Every 24 nested backwards go on on a fresh thread: random numbers must come from the same key there."""

    class Nested(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            if ctx.depth:
                x = xgrad.ones(1, requires_grad=True)
                with xgrad.enable_grad():
                    Nested.apply(x, ctx.depth - 1).sum().backward()
            else:
                drawn.append(xgrad.rand(3).numpy())
            return grad, None

    drawn = []
    import jax

    for depth in (0, 30):
        with xgrad.random.use_key(jax.random.key(7)):
            Nested.apply(xgrad.ones(1, requires_grad=True), depth).sum().backward()
    np.testing.assert_array_equal(*drawn)
