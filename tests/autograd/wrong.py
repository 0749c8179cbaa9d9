"""Functions with deliberate faults, made in torch or in xgrad, for gradcheck to find."""

import itertools


def function(T, forward, backward, jvp=None, materialize=True):
    """A custom Function of one argument."""

    class Custom(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad):
            return backward(grad, *ctx.saved_tensors)

    if jvp is not None:
        Custom.jvp = staticmethod(jvp)
    return Custom.apply


def wrong_gradient(T):
    return function(T, lambda x: x * x, lambda g, x: g * 3 * x)


def wrong_in_one_element(T):
    def backward(g, x):
        wrong = 2 * g * x
        wrong[1, 0] += g[1, 0]
        return wrong

    return function(T, lambda x: x * x, backward)


def wrong_imaginary_part(T):
    return function(T, lambda x: x * 2, lambda g, x: T.complex(2 * g.real, 3 * g.imag))


def wrong_real_part(T):
    return function(T, lambda x: x * 2, lambda g, x: T.complex(3 * g.real, 2 * g.imag))


def not_conjugated(T):
    return function(T, lambda x: x * x, lambda g, x: g * 2 * x)


def wrong_jvp(T):
    return function(T, lambda x: x * x, lambda g, x: g * 2 * x, lambda ctx, t: t * 3)


def wrong_imaginary_jvp(T):
    return function(T, lambda x: x * 2, lambda g, x: g * 2, lambda ctx, t: T.complex(2 * t.real, 3 * t.imag))


def complex_jvp_of_a_real_function(T):
    return function(T, lambda x: x * 2, lambda g, x: g * 2, lambda ctx, t: t * 2 + 0j)


def random_backward(T):
    noise = itertools.count()
    return function(T, lambda x: x * 2, lambda g, x: g * (2 + 1e-9 * next(noise)))


def not_multiplied(T):
    """Right for gradients of ones, and only for these."""
    return function(T, lambda x: x * 2, lambda g, x: T.ones_like(g) * 2)


def undefined_is_none(T):
    return function(T, lambda x: x * 2, lambda g, x: g.mul(2), materialize=False)


def undefined_is_one(T):
    return function(T, lambda x: x * 2, lambda g, x: T.ones_like(x) if g is None else g * 2, materialize=False)


def undefined_is_refused(T):
    def backward(g, x):
        if g is None:
            raise RuntimeError("no gradient, no backward")
        return g * 2

    return function(T, lambda x: x * 2, backward, materialize=False)


def reads_its_gradient(T):
    return function(T, lambda x: x * 2, lambda g, x: g * 2 + 0 * g.sum().item())


def reads_its_tangent(T):
    return function(T, lambda x: x * 2, lambda g, x: g * 2, lambda ctx, t: t * 2 + 0 * t.sum().item())


def wrong_second_derivative(T):
    return function(T, lambda x: x**3, lambda g, x: g * 3 * x.detach() ** 2)


def undefined_tangent_is_one(T):
    """A product, whose jvp takes an undefined tangent for a one."""

    class Product(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x, y)
            ctx.save_for_forward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            if g is None:
                return None, None
            x, y = ctx.saved_tensors
            return g * y, g * x

        @staticmethod
        def jvp(ctx, dx, dy):
            x, y = ctx.saved_tensors
            dx, dy = (T.ones_like(x) if t is None else t for t in (dx, dy))
            return dx * y + x * dy

    return Product.apply
