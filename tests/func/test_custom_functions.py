"""Custom Functions inside of vmap: the generated rule, a rule of one's own, and their errors."""

import pytest

import xgrad

from ..oracle import as_torch, data, leaf, same_error

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def cube(T):
    class Cube(T.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3, 3 * x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0], output[1])
            ctx.save_for_forward(inputs[0], output[1])

        @staticmethod
        def backward(ctx, grad, grad_slope):
            x, slope = ctx.saved_tensors
            return grad * slope + grad_slope * 6 * x

        @staticmethod
        def jvp(ctx, tangent):
            x, slope = ctx.saved_tensors
            return tangent * slope, 6 * x * tangent

    return Cube.apply


def product(T):
    class Product(T.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return grad * y, grad * x

        @staticmethod
        def jvp(ctx, a, b):
            x, y = ctx.saved_tensors
            return (a * y if a is not None else 0) + (b * x if b is not None else 0)

    return Product.apply


def doubled_sine(T, **given):
    """Its backward is twice that of sin, so that one can see that it is the one that runs."""
    body = {
        "forward": lambda x: x.sin(),
        "setup_context": lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        "backward": lambda ctx, grad: grad * ctx.saved_tensors[0].cos() * 2,
    } | given
    members = {k: staticmethod(v) if callable(v) else v for k, v in body.items()}
    return type("DoubledSine", (T.autograd.Function,), members)


def ruled(T):
    told = []

    def rule(info, in_dims, x):
        told.append((info.batch_size, info.randomness))
        return function.apply(x.movedim(in_dims[0], 0)), 0

    function = doubled_sine(T, vmap=rule)
    return function.apply, told


def test_the_generated_rule_maps_forward_and_backward():
    def program(T):
        x = leaf(T, 2, 3)
        a, b = T.vmap(cube(T))(x)
        first = T.autograd.grad((a * a).sum() + b.sum(), x, create_graph=True)
        return a, b, first, T.autograd.grad(first[0].sum(), x)

    as_torch(program)


@pytest.mark.exhaustive
def test_derivatives_inside_of_vmap():
    def program(T):
        x, F = data(T, (2, 3)), T.func
        shared = F.grad(lambda w, row: (product(T)(row, w) ** 2).sum())
        return (
            T.vmap(F.grad(lambda row: cube(T)(row)[0].sum()))(x),
            T.vmap(F.jacrev(cube(T)))(x),
            T.vmap(F.jacfwd(cube(T)))(x),
            T.vmap(shared, in_dims=(None, 0))(x[0], x),
            T.vmap(T.vmap(F.grad(lambda v: product(T)(v, v))))(x),
        )

    as_torch(program)


def test_the_gradient_of_what_is_not_mapped_is_summed():
    def program(T):
        w = leaf(T, 3, seed=1)
        y = T.vmap(lambda row: product(T)(row, w))(data(T, (2, 3)))
        return y, T.autograd.grad((y * y).sum(), w)

    as_torch(program)


def test_jacobians_map_backward_and_jvp():
    def program(T):
        F, x, f = T.func, data(T, (3,)), product(T)
        return (
            F.jacrev(lambda t: f(t, t))(x),
            F.jacfwd(lambda t: f(t, t))(x),
            F.hessian(lambda t: f(f(t, t), t).sum())(x),
        )

    as_torch(program)


@pytest.mark.parametrize("own", [False, True], ids=["generated", "own"])
@pytest.mark.parametrize("saved", ["saved", "kept"])
def test_forward_mode_of_forward_mode_through_what_a_function_saves(own, saved):
    """torch gives zeros: it takes the tensors that `jvp` gets for constants (docs/differences.md)."""

    class Fourth(xgrad.autograd.Function):
        generate_vmap_rule = not own

        @staticmethod
        def forward(x):
            return x**4

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(inputs[0], output)
            ctx.kept = inputs[0], output

        @staticmethod
        def jvp(ctx, tangent):
            x, y = ctx.saved_tensors if saved == "saved" else ctx.kept
            return 4 * y / x * tangent

        if own:

            @staticmethod
            def vmap(info, in_dims, x):
                return Fourth.apply(x), in_dims[0]

    x, F = xgrad.tensor([3.0, 1.0, 2.0]), xgrad.func
    assert F.jacfwd(F.jacfwd(lambda x: Fourth.apply(x).sum()))(x).flatten().tolist() == pytest.approx(
        [108, 0, 0, 0, 12, 0, 0, 0, 48], rel=1e-5
    )


def test_a_rule_of_ones_own():
    def program(T):
        x = leaf(T, 2, 3)
        f, told = ruled(T)
        y = T.vmap(f, in_dims=1)(x)
        each = T.vmap(T.func.grad(lambda row: f(row).sum()))(x.detach())
        return y, each, T.autograd.grad(y.sum(), x), told

    as_torch(program)


def test_dirty_inputs_are_mapped():
    """PyTorch's own generated rule refuses these; here they must be what the out-of-place form gives."""
    import numpy as np

    import xgrad

    from ..oracle import array, values

    class Double(xgrad.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.mul_(2)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_dirty(inputs[0])

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = leaf(xgrad, 2, 3)
    y = xgrad.vmap(lambda row: Double.apply(row.clone()))(x)
    (y * y).sum().backward()
    np.testing.assert_allclose(array(x.grad), 8 * values((2, 3)))
    each = xgrad.vmap(xgrad.func.grad(lambda row: Double.apply(row.clone()).pow(2).sum()))(x.detach())
    np.testing.assert_allclose(array(each), 8 * values((2, 3)))


def test_forward_with_ctx_is_mapped_too():
    """PyTorch asks for setup_context; the generated rule needs none here."""
    import numpy as np

    import xgrad

    from ..oracle import array, values

    class Sine(xgrad.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0].cos()

    x = leaf(xgrad, 2, 3)
    xgrad.vmap(Sine.apply)(x).sum().backward()
    np.testing.assert_allclose(array(x.grad), np.cos(values((2, 3))))
    each = xgrad.vmap(xgrad.func.grad(lambda row: Sine.apply(row).sum()))(x.detach())
    np.testing.assert_allclose(array(each), np.cos(values((2, 3))))


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ({}, "does not have vmap support"),
        ({"generate_vmap_rule": True, "vmap": lambda info, dims, x: (x, 0)}, "has both generate_vmap_rule=True and an"),
        ({"vmap": lambda info, dims, x: x}, "vmap staticmethod to have two returns"),
        ({"vmap": lambda info, dims, x: (x * 1, (0, 0))}, r"incompatible \(output, out_dims\) tuple"),
    ],
)
def test_functions_without_a_rule(members, match):
    same_error(lambda T: T.vmap(doubled_sine(T, **members).apply)(data(T, (2, 3))), match)
