"""autograd.Function in its old style: what forward may do, what backward may return, and what is refused."""

import gc
import weakref

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import array, as_torch, data, leaf, same, same_error


def function(T, forward, backward, name="Mine"):
    """A Function of a library from two functions of (ctx, ...)."""
    return type(name, (T.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def test_saved_tensors_and_second_gradient():
    def program(T):
        def forward(ctx, x, w):
            y = x * x * w
            ctx.save_for_backward(x, w, y, None)
            ctx.factor = 2
            return y

        def backward(ctx, grad):
            x, w, y, nothing = ctx.saved_tensors
            assert nothing is None
            return grad * ctx.factor * x * w, (grad * y / w)

        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        y = function(T, forward, backward).apply(x, w)
        first = T.autograd.grad((y * y).sum(), (x, w), create_graph=True)
        return y, y.grad_fn.name(), first, T.autograd.grad(first[0].sum() + first[1].sum(), (x, w))

    as_torch(program)


def test_arguments_that_are_no_tensors():
    def program(T):
        seen = []

        def forward(ctx, factor, x, other, flag):
            seen.append((ctx.needs_input_grad, T.is_grad_enabled()))
            return x * factor + other

        def backward(ctx, grad):
            seen.append(ctx.needs_input_grad)
            return None, grad * 3, None, None

        x = leaf(T, 3)
        y = function(T, forward, backward).apply(3, x, data(T, (3,)), True)
        return y, seen, T.autograd.grad(y.sum(), x), len(y.grad_fn.next_functions)

    as_torch(program)


def test_nothing_is_recorded_without_a_gradient():
    def program(T):
        make = function(T, lambda ctx, x: x * 2, lambda ctx, grad: grad * 2)
        with T.no_grad():
            a = make.apply(leaf(T, 3))
        b = make.apply(data(T, (3,)))
        return a.requires_grad, b.requires_grad, b.grad_fn

    as_torch(program)


def test_several_outputs_and_materialized_gradients():
    def program(T):
        seen = []

        def forward(ctx, x):
            return x * 2, x * 3

        def backward(ctx, a, b):
            seen.append((a.clone(), b.clone()))
            return a * 2 + b * 3

        x = leaf(T, 3)
        _, b = function(T, forward, backward).apply(x)
        return T.autograd.grad(b.sum(), x), seen

    as_torch(program)


def test_gradients_that_are_not_materialized():
    def program(T):
        seen = []

        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        def backward(ctx, a, b):
            seen.append((a is None, b is None))
            return None if b is None else b * 3

        x = leaf(T, 3)
        _, b = function(T, forward, backward).apply(x)
        return T.autograd.grad(b.sum(), x), seen

    as_torch(program)


def test_output_that_is_not_differentiable():
    def program(T):
        def forward(ctx, x):
            order = x * 10
            ctx.mark_non_differentiable(order)
            return x * 2, order

        x = leaf(T, 3)
        y, order = function(T, forward, lambda ctx, grad, none: grad * 2).apply(x)
        return order.requires_grad, order.grad_fn, y.requires_grad, T.autograd.grad(y.sum(), x)

    as_torch(program)


def test_integer_outputs_are_not_differentiable():
    def program(T):
        x = leaf(T, 3)
        make = function(T, lambda ctx, x: (x * 2, x.argsort()), lambda ctx, grad, none: grad * 2)
        y, order = make.apply(x)
        return order, order.requires_grad, T.autograd.grad(y.sum(), x)

    as_torch(program)


# -- returning and changing inputs -------------------------------------------------------------------------------------


def test_input_returned_as_it_is():
    def program(T):
        x = leaf(T, 3)
        y = function(T, lambda ctx, x: x, lambda ctx, grad: grad * 5).apply(x)
        return y is x, y.is_leaf, y._is_view(), x.is_leaf, T.autograd.grad(y.sum(), x)

    as_torch(program)


def test_input_returned_as_it_is_must_not_be_written():
    def program(T):
        y = function(T, lambda ctx, x: x, lambda ctx, grad: grad).apply(leaf(T, 3) * 1)
        y.mul_(2)

    same_error(program, "custom Function")


def test_view_of_an_input_must_not_be_written():
    def program(T):
        y = function(T, lambda ctx, x: x[0], lambda ctx, grad: T.stack([grad, grad])).apply(leaf(T, 2, 3) * 1)
        y.mul_(2)

    same_error(program, "custom Function")


def test_dirty_input():
    def program(T):
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        x = leaf(T, 3)
        y = x * 1
        z = function(T, forward, lambda ctx, grad: grad * 2).apply(y)
        return z is y, y, y._version, y.grad_fn.name(), T.autograd.grad((y * y).sum(), x)

    as_torch(program)


def test_dirty_leaf_is_refused():
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x

    same_error(lambda T: function(T, forward, lambda ctx, grad: grad).apply(leaf(T, 3)), "a leaf Variable")


def test_dirty_input_must_be_returned():
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x * 2

    same_error(
        lambda T: function(T, forward, lambda ctx, grad: grad).apply(leaf(T, 3) * 1), "must all be outputs|returned"
    )


def test_dirty_view(path):
    def program(T):
        def forward(ctx, v):
            v.mul_(2)
            ctx.mark_dirty(v)
            return v

        x = leaf(T, 2, 3)
        base = x * 1
        view = base[0]
        function(T, forward, lambda ctx, grad: grad * 2).apply(view)
        return base, T.autograd.grad((base * base).sum() + (view * view).sum(), x)

    as_torch(program)


def test_output_that_is_saved():
    def program(T):
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * y

        x = leaf(T, 3)
        y = function(T, forward, backward).apply(x)
        (g,) = T.autograd.grad(y.sum(), x, create_graph=True)
        return g, T.autograd.grad(g.sum(), x)

    as_torch(program)


def test_saved_tensors_are_version_checked():
    def program(T):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        y = leaf(T, 3) * 1
        z = function(T, forward, lambda ctx, grad: grad * 2 * ctx.saved_tensors[0]).apply(y)
        y.add_(1)
        z.sum().backward()

    same_error(program, "modified by an inplace operation")


def test_saved_tensors_after_release():
    def program(T):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        z = function(T, forward, lambda ctx, grad: grad * 2 * ctx.saved_tensors[0]).apply(leaf(T, 3)).sum()
        z.backward()
        z.backward()

    same_error(program, "a second time")


# -- what backward returns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [1, 3])
def test_wrong_number_of_gradients(given):
    def program(T):
        make = function(T, lambda ctx, x, y: x * y, lambda ctx, grad: (grad,) * given)
        make.apply(leaf(T, 3), leaf(T, 3, seed=1)).sum().backward()

    text = str(same_error(program, "incorrect number of gradients"))
    assert "expected 2" in text
    assert f"got {given}" in text


def test_extra_nones_are_accepted():
    def program(T):
        x = leaf(T, 3)
        y = function(T, lambda ctx, x: x * 2, lambda ctx, grad: (grad * 2, None, None)).apply(x)
        return T.autograd.grad(y.sum(), x)

    as_torch(program)


def test_none_for_a_tensor():
    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        y = function(T, lambda ctx, x, w: x * w, lambda ctx, grad: (grad, None)).apply(x, w)
        y.sum().backward()
        return x.grad, w.grad

    as_torch(program)


def test_gradient_of_a_wrong_shape():
    def program(T):
        function(T, lambda ctx, x: x * 2, lambda ctx, grad: data(T, (4,))).apply(leaf(T, 3)).sum().backward()

    text = str(same_error(program, "invalid gradient at index 0"))
    assert "[4]" in text
    assert "[3]" in text


def test_gradient_that_is_broadcast_is_summed():
    def program(T):
        x = leaf(T, 3)
        y = function(T, lambda ctx, x: x.expand(2, 3) * 1, lambda ctx, grad: grad).apply(x)
        return T.autograd.grad((y * data(T, (2, 3))).sum(), x)

    as_torch(program)


def test_gradient_that_is_no_tensor():
    def program(T):
        function(T, lambda ctx, x: x * 2, lambda ctx, grad: "gradient").apply(leaf(T, 3)).sum().backward()

    same_error(program, "str|expected")


def test_gradient_for_something_that_is_no_tensor():
    def program(T):
        make = function(T, lambda ctx, x, n: x * n, lambda ctx, grad: (grad, grad))
        make.apply(leaf(T, 3), 3).sum().backward()

    same_error(program, "not a Variable")


def test_error_in_backward_keeps_its_type():
    class StopError(Exception):
        pass

    def backward(ctx, grad):
        raise StopError("here")

    x = leaf(xgrad, 3)
    with pytest.raises(StopError, match="here"):
        function(xgrad, lambda ctx, x: x * 2, backward).apply(x).sum().backward()
    (x * 2).sum().backward()
    same(x.grad, torch.full((3,), 2.0, dtype=torch.float64))


def test_once_differentiable():
    def program(T):
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 2 * x

        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        x = leaf(T, 3)
        make = function(T, forward, T.autograd.function.once_differentiable(backward))
        y = make.apply(x)
        (g,) = T.autograd.grad((y * y).sum(), x, retain_graph=True)
        return g, T.autograd.grad((y * y).sum(), x, create_graph=True)[0].detach()

    as_torch(program)


def test_once_differentiable_is_refused_twice():
    def program(T):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        backward = T.autograd.function.once_differentiable(lambda ctx, grad: grad * 2 * ctx.saved_tensors[0])
        x = leaf(T, 3)
        (g,) = T.autograd.grad(function(T, forward, backward).apply(x).sum(), x, create_graph=True)
        g.sum().backward()

    same_error(program, "once_differentiable|does not require grad")


# -- misuse ------------------------------------------------------------------------------------------------------------


def test_instances_warn_and_are_not_called():
    def program(T):
        with pytest.warns(DeprecationWarning, match="should not be instantiated"):
            mine = function(T, lambda ctx, x: x * 2, lambda ctx, grad: grad * 2)()
        x = leaf(T, 3)
        mine.apply(x).sum().backward()
        return x.grad

    as_torch(program)

    def call(T):
        with pytest.warns(DeprecationWarning, match="should not be instantiated"):
            mine = function(T, lambda ctx, x: x * 2, lambda ctx, grad: grad * 2)()
        mine(leaf(T, 3))

    same_error(call, "Legacy autograd function with non-static forward method is deprecated")


def test_missing_methods():
    def no_forward(T):
        type("Mine", (T.autograd.Function,), {}).apply(leaf(T, 3))

    same_error(no_forward, "forward")

    def no_backward(T):
        type("Mine", (T.autograd.Function,), {"forward": staticmethod(lambda ctx, x: x * 2)}).apply(
            leaf(T, 3)
        ).sum().backward()

    same_error(no_backward, "backward")


def test_only_tensors_are_saved():
    def forward(ctx, x):
        ctx.save_for_backward(x, 3)
        return x * 2

    text = str(
        same_error(lambda T: function(T, forward, lambda ctx, grad: grad).apply(leaf(T, 3)), "save_for_backward")
    )
    assert "int" in text


def test_hooks_on_its_node():
    def program(T):
        log, x = [], leaf(T, 3)
        y = function(T, lambda ctx, x: x * 2, lambda ctx, grad: grad * 2).apply(x)
        y.grad_fn.register_hook(lambda inputs, outputs: log.append((len(inputs), len(outputs))))
        y.register_hook(lambda grad: grad * 10)
        y.sum().backward()
        return log, x.grad

    as_torch(program)


def test_setup_context():
    def program(T):
        class Square(T.autograd.Function):
            @staticmethod
            def forward(x, n):
                return x * x * n

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(inputs[0])
                ctx.n = inputs[1]

            @staticmethod
            def backward(ctx, grad):
                return grad * 2 * ctx.n * ctx.saved_tensors[0], None

        x = leaf(T, 3)
        return T.autograd.grad(Square.apply(x, 3).sum(), x)

    as_torch(program)


class Product(xgrad.autograd.Function):
    """With a `jvp` that reads what was saved for it, and tells what it saw."""

    seen: list = []  # noqa: RUF012 - emptied by the test

    @staticmethod
    def forward(ctx, x, y):
        out = x * y
        ctx.save_for_forward(x, y, out)
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def jvp(ctx, tx, ty):
        x, y, out = ctx.saved_tensors
        result = tx * y + x * ty
        Product.seen += [out.item(), xgrad.autograd.forward_ad.unpack_dual(result).tangent]
        return result


def test_jvp_reads_what_was_saved_for_it_and_its_tangents_carry_none():
    fw = xgrad.autograd.forward_ad
    Product.seen.clear()
    x, y = leaf(xgrad, 1), leaf(xgrad, 1, seed=1)
    with fw.dual_level():
        out = Product.apply(fw.make_dual(x, xgrad.ones_like(x)), fw.make_dual(y, xgrad.full_like(y, 2.0)))
        tangent = fw.unpack_dual(out).tangent
        np.testing.assert_allclose(tangent.detach().numpy(), (y + 2 * x).detach().numpy())
        assert tangent.requires_grad  # recorded in reverse mode
    assert Product.seen == [(x * y).item(), None]


def test_what_was_saved_for_forward_makes_no_cycle():
    x = leaf(xgrad, 1)
    gc.disable()
    try:
        reference = weakref.ref(Product.apply(x, x).grad_fn)
        assert reference() is None
    finally:
        gc.enable()


class Scaled(xgrad.autograd.Function):
    """x * w * k, to be called with keywords."""

    @staticmethod
    def forward(ctx, x, w=None, k=2.0):
        ctx.save_for_backward(x, w)
        ctx.k = k
        return x * w * k

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad * w * ctx.k, grad * x * ctx.k, None


def test_keyword_arguments_take_their_places():
    def program(T):
        mine = function(T, Scaled.forward, Scaled.backward)
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        out = []
        for call in (
            lambda: mine.apply(x, w=w),
            lambda: mine.apply(x, k=3.0, w=w),
            lambda: mine.apply(w=w, x=x),
            lambda: mine.apply(x, w, k=5.0),
        ):
            y = call()
            out += [len(y.grad_fn.next_functions), *y.grad_fn.needs_input_grad, *T.autograd.grad(y.sum(), (x, w))]
        return out

    as_torch(program)
    same_error(lambda T: function(T, Scaled.forward, Scaled.backward).apply(leaf(T, 3), other=1), "other")


def test_setup_context_sees_defaults():
    def program(T):
        seen = []

        class Mine(T.autograd.Function):
            @staticmethod
            def forward(x, w=None, k=2.0):
                return x * k if w is None else x * w * k

            @staticmethod
            def setup_context(ctx, inputs, output):
                seen.append((len(inputs), inputs[2], ctx.needs_input_grad))

            @staticmethod
            def backward(ctx, grad):
                return grad, None, None

        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        for y in (Mine.apply(x), Mine.apply(x, k=4.0), Mine.apply(x, w=w)):
            T.autograd.grad(y.sum(), x)
        return seen

    as_torch(program)


def test_tensor_that_is_keyword_only_and_requires_grad_is_refused():
    class Mine(xgrad.autograd.Function):
        @staticmethod
        def forward(x, *, w):
            return x * w

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

    x = leaf(xgrad, 3)
    with pytest.raises(TypeError, match="'w' requires grad"):
        Mine.apply(x, w=x)
    same(Mine.apply(x, w=x.detach()), torch.tensor(array(x.detach()) ** 2))


def test_outputs_that_are_no_tensors_have_places_in_backward():
    def program(T):
        def forward(ctx, x):
            return "a", x * 2, None, x * 3

        def backward(ctx, *grads):
            seen.append([g is None for g in grads])
            return grads[1] + 10 * grads[3]

        seen, x = [], leaf(T, 3)
        _, b, _, d = function(T, forward, backward).apply(x)
        (g,) = T.autograd.grad((b * d).sum(), x)
        return [b.output_nr, d.output_nr, seen, g]

    as_torch(program)


@pytest.mark.parametrize("dirty", [True, False])
def test_input_returned_under_no_grad_is_detached(dirty):
    def program(T):
        def forward(ctx, x):
            if dirty:
                ctx.mark_dirty(x)
            return x

        x = leaf(T, 3)
        mine = function(T, forward, lambda ctx, grad: grad)
        with T.no_grad():
            out = mine.apply(x)
            plain = mine.apply(data(T, (3,)))
        return [out is x, out.requires_grad, out.is_leaf, x.requires_grad, x._version, plain.requires_grad]

    as_torch(program)
