"""grad, vjp, jvp, Jacobians and their compositions, against torch.func."""

import numpy as np
import pytest
import torch

import xgrad
from xgrad.func import grad, grad_and_value, jvp, linearize, vjp

from ..oracle import array, as_torch, data, leaf, same_error, values

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
]


def wave(T, x):
    return x.sin() * x[0] * x.exp().tanh()


def written(T, x):
    y = x.clone()
    y[1:].mul_(x[0])
    y[0].copy_(x.prod())
    return y * y


FUNCTIONS = [wave, written]

COMPOSED = {
    "grad": lambda F, f: F.grad(lambda x: f(x).sum()),
    "grad of grad": lambda F, f: F.grad(lambda x: F.grad(lambda y: f(y).sum())(x).pow(2).sum()),
    "jacrev": lambda F, f: F.jacrev(f),
    "jacfwd": lambda F, f: F.jacfwd(f),
    "hessian": lambda F, f: F.hessian(lambda x: f(x).sum()),
    "reverse over reverse": lambda F, f: F.jacrev(F.jacrev(f)),
    "forward over forward": lambda F, f: F.jacfwd(F.jacfwd(f)),
    "reverse over forward": lambda F, f: F.jacrev(F.jacfwd(f)),
    "forward over reverse": lambda F, f: F.jacfwd(F.jacrev(f)),
    "vjp": lambda F, f: lambda x: F.vjp(f, x)[1](x * 2),
    "jvp": lambda F, f: lambda x: F.jvp(f, (x,), (x * 2,)),
    "jvp of jvp": lambda F, f: lambda x: F.jvp(lambda y: F.jvp(f, (y,), (x,))[1], (x,), (x * 2,)),
    "jvp of grad": lambda F, f: lambda x: F.jvp(F.grad(lambda y: f(y).sum()), (x,), (x,)),
    "third derivative": lambda F, f: F.grad(lambda x: F.hessian(lambda y: f(y).sum())(x).sum()),
}


@pytest.mark.exhaustive
@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_transforms_compose(function, name):
    def program(T):
        return COMPOSED[name](T.func, lambda x: function(T, x))(data(T, (3,)))

    as_torch(program, rtol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", ["grad", "jacrev", "jacfwd", "hessian", "vjp", "jvp", "jvp of grad"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_inside_of_vmap_a_derivative_is_one_for_each_entry(function, name):
    def program(T):
        return T.vmap(COMPOSED[name](T.func, lambda x: function(T, x)))(data(T, (2, 3)))

    as_torch(program, rtol=1e-9)


def test_gradients_for_each_example_of_what_is_shared():
    def program(T):
        def loss(w, x):
            return (w * w * x).exp().sum()

        return T.vmap(T.func.grad(loss), in_dims=(None, 0))(data(T, (3,)), data(T, (2, 3), 1))

    as_torch(program)


@pytest.mark.exhaustive
def test_outer_gradients_reach_what_an_inner_one_used():
    """Through grad, through vmap(grad), and through a tensor that the function closes over."""

    def program(T):
        w, x = leaf(T, 3), leaf(T, 2, 3, seed=1)
        F = T.func
        one = F.grad(lambda r: (r.sin() * r[0] * w * w).sum())(x[0])
        each = T.vmap(F.grad(lambda r: (r.sin() * r[0] * w).sum()))(x)
        pulled = F.vjp(lambda r: r * w, x[1])[1](w)[0]
        pushed = F.jvp(lambda r: r * w, (x[1],), (w,))[1]
        return T.autograd.grad(one.sum() + each.sum() + pulled.sum() + pushed.sum(), (w, x))

    as_torch(program)


@pytest.mark.exhaustive
def test_the_derivative_of_a_mapped_function():
    def program(T):
        F, x = T.func, data(T, (2, 3))

        def function(w):
            return T.vmap(lambda row: (row * w.sin()).sum())(x).pow(2).sum()

        return F.grad(function)(x[0]), F.hessian(function)(x[0])

    as_torch(program)


def test_what_requires_grad_outside():
    def program(T):
        F = T.func
        x, plain = leaf(T, 3), data(T, (3,))
        g, value = F.grad_and_value(lambda t: (t * t).sum())(x)
        h, constant = F.grad_and_value(lambda t: (t * t).sum())(plain)
        with T.no_grad():
            k = F.grad(lambda t: (t * t * x).sum())(x)
        out, pull = F.vjp(lambda t: t * t, plain)
        kept = [t.requires_grad for t in (g, value, h, constant, k, out, *pull(plain))]
        return kept, T.autograd.grad(g.sum() + value, x), k, plain.grad, x.grad

    as_torch(program)


def test_no_grad_inside_makes_constants():
    def program(T):
        def function(x):
            with T.no_grad():
                c = x * 2
            return (c * x).sum()

        return T.func.grad(function)(data(T, (3,)))

    as_torch(program)


@pytest.mark.exhaustive
def test_structures_and_argnums():
    def program(T):
        F, x, y = T.func, data(T, (3,)), data(T, (2,), 1)

        def many(a, d):
            return {"a": a * d["k"].sum(), "s": (a.sum(),)}

        cotangents = {"a": T.ones(3, dtype=T.float64), "s": (T.tensor(2.0, dtype=T.float64),)}
        return (
            F.grad(lambda a, b: a.sum() * b.sum(), argnums=(1, 0))(x, y),
            F.grad(lambda a, b: a.sum() * b.sum(), argnums=-1)(x, y),
            F.grad(lambda d: d["a"].sum() * d["b"][0].sum())({"a": x, "b": (y,)}),
            F.vjp(many, x, {"k": y})[1](cotangents),
            F.jacrev(lambda a, b: (a * b.sum(), b.prod()), argnums=(0, 1))(x, y),
            F.jacfwd(lambda a, b: (a * b.sum(), b.prod()), argnums=(0, 1))(x, y),
            F.jacrev(lambda a: (a * a, a.sum()), has_aux=True)(x),
            F.jacfwd(lambda a: (a * a, a.sum()), has_aux=True)(x),
            F.grad_and_value(lambda a: ((a * a).sum(), {"aux": a}), has_aux=True)(x),
            F.jvp(many, (x, {"k": y}), (x, {"k": y})),
            F.jacrev(lambda a: a * a, chunk_size=2)(x),
        )

    as_torch(program)


def test_linearize_runs_the_function_once_and_pushes_tangents():
    def program(T):
        out, push = T.func.linearize(lambda x: {"y": wave(T, x)}, data(T, (3,)))
        return out, push(data(T, (3,), 1)), push(data(T, (3,), 2))

    as_torch(program, rtol=1e-9)
    calls = []
    _, push = linearize(lambda x: calls.append(1) or wave(xgrad, x), data(xgrad, (3,)))
    push(data(xgrad, (3,)))
    assert len(calls) == 1
    same_error(lambda T: T.func.linearize(T.sin, T.zeros(3))[1](T.zeros(2)), "doesn't match the shape")


def test_writing_into_an_argument_leaves_the_callers_tensor_alone():
    x = data(xgrad, (3,))
    g = grad(lambda t: (t.mul_(2) * t).sum())(x)
    np.testing.assert_array_equal(array(x), values((3,)))
    np.testing.assert_allclose(array(g), 8 * values((3,)))


def test_hooks_and_retained_gradients_see_the_inner_backward():
    seen = []

    def function(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(g.tolist()) or g * 10)
        return y.sum()

    assert grad(function)(xgrad.ones(2)).tolist() == [20.0, 20.0]
    assert seen == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda T, x: T.func.grad(lambda t: t * t)(x), "to return a scalar Tensor, got tensor with 1 dims"),
        (lambda T, x: T.func.grad(lambda t: 3.0)(x), "to return a Tensor, got"),
        (lambda T, x: T.func.grad(lambda t: t.sum().backward())(x), "backward.. called inside a functorch transform"),
        (lambda T, x: T.func.grad(lambda t: t.sum(), has_aux=True)(x), "should be a tuple: .output, aux."),
        (lambda T, x: T.func.grad(lambda t: t.sum(), argnums=1)(x), "Got argnum=1, but only 1 positional inputs"),
        (lambda T, x: T.func.grad(lambda t: t.sum(), argnums=(0, 0))(x), "argnums elements must be unique"),
        (lambda T, x: T.func.grad(lambda t: t.sum(), argnums=())(x), "argnums must be non-empty"),
        (lambda T, x: T.func.grad(lambda t: t.sum())(2.0), "must be Tensor, got"),
        (lambda T, x: T.func.grad(lambda t: t.sum())(T.arange(3)), "can require gradients"),
        (lambda T, x: T.func.vjp(lambda t: 3.0, x), "to return only tensors"),
        (lambda T, x: T.func.vjp(lambda t: t > 0, x), "must be floating-point or complex"),
        (lambda T, x: T.func.vjp(lambda t: t, x)[1]((x, x)), "Expected pytree structure of cotangents"),
        (lambda T, x: T.func.jvp(lambda t: t, x, x), "Expected primals to be a tuple"),
        (lambda T, x: T.func.jvp(lambda t: t, (x,), (x, x)), "the same python structure"),
        (lambda T, x: T.func.jvp(lambda t: t, (x,), (x[0],)), "tangent to have the same shape|same shape"),
        (lambda T, x: T.func.jvp(lambda t: x, (x,), (x,), strict=True), "independent of the inputs"),
        (lambda T, x: T.func.jvp(lambda t: 3.0, (x,), (x,)), "to return only tensors"),
        (lambda T, x: T.func.jacrev(lambda t: t, chunk_size=0), "`chunk_size` should be greater than 0"),
        (lambda T, x: T.func.jacrev(lambda t: t)(T.complex(x, x)), "to be real"),
    ],
)
def test_wrong_calls(call, match):
    same_error(lambda T: call(T, data(T, (3,))), match)


def test_after_an_error_backward_works():
    with pytest.raises(KeyError):
        grad(lambda x: {}[0])(xgrad.ones(2))
    with pytest.raises(KeyError):
        jvp(lambda x: {}[0], (xgrad.ones(2),), (xgrad.ones(2),))
    state = xgrad.config.state
    assert (state.transforms, state.forward_level, state.outer_forward_levels) == (0, -1, ())
    with xgrad.no_grad():
        with pytest.raises(KeyError):
            vjp(lambda x: {}[0], xgrad.ones(2))
        assert not xgrad.is_grad_enabled()


def test_results_without_an_outer_graph_hold_no_graph():
    g, value = grad_and_value(lambda t: (t * t).sum())(xgrad.ones(2))
    assert g.grad_fn is None
    assert value.grad_fn is None
    assert torch.func.grad(lambda t: (t * t).sum())(torch.ones(2)).grad_fn is None


def test_forward_mode_sees_a_function_over_reverse_mode():
    """The tangent of a gradient: of saved inputs, of saved results, of what was written in place."""
    import torch.autograd.forward_ad as torch_fw

    import xgrad.autograd.forward_ad as xgrad_fw

    def program(T):
        fw = {torch: torch_fw, xgrad: xgrad_fw}[T]
        found = []
        for create_graph in (False, True):
            with fw.dual_level():
                x = leaf(T, 3)
                dual = fw.make_dual(x, data(T, (3,), 1))
                y = dual.exp() * dual.tanh() + dual.sigmoid() * dual
                y[1:].mul_(dual[0])
                (g,) = T.autograd.grad(y.sum(), x, create_graph=create_graph)
                found.append(fw.unpack_dual(g).tangent)
        return found

    as_torch(program)


def test_transforms_work_in_inference_mode():
    def program(T):
        F, x = T.func, data(T, (2,))
        with T.inference_mode():
            found = []
            for t in (x, data(T, (2,), 1)):
                g = F.grad(lambda a: (a * a).sum())(t)
                out, pull = F.vjp(lambda a: a * a, t)
                pushed = F.jvp(lambda a: a * a, (t,), (t,))
                found += [g, g.is_inference(), T.vmap(F.grad(lambda a: a.sin()))(t), out, pull(t), pushed]
            return found, T.is_inference_mode_enabled(), T.is_grad_enabled()

    as_torch(program)


def test_dictionaries_keep_their_order():
    """Gradients are zipped with parameters; JAX would sort them by name."""
    from collections import OrderedDict, namedtuple

    Pair = namedtuple("Pair", ["b", "a"])

    def program(T):
        F, x, y = T.func, data(T, (3,)), data(T, (2,), 1)
        tree = OrderedDict(z=x, a=[y, Pair(x, y)])
        g = F.grad(lambda t: t["z"].sum() * t["a"][0].prod() + t["a"][1].b.prod() * t["a"][1].a.sum())(tree)
        out, pull = F.vjp(lambda t: {"z": t * 2, "a": t.sum()}, x)
        swapped = {"z": x, "a": y[0]}
        doubled = T.vmap(lambda d: {"z": d["z"] * 2, "a": d["a"]}, in_dims=({"z": 0, "a": None},))({"z": x, "a": y})
        assert isinstance(g, OrderedDict)
        assert type(g["a"][1]) is Pair
        return g, out, pull(swapped), doubled

    as_torch(program)
    x = xgrad.ones(2)
    pull = vjp(lambda t: {"z": t * 2, "a": t.sum()}, x)[1]
    np.testing.assert_array_equal(array(pull({"a": xgrad.tensor(1.0), "z": x * 3})[0]), [7.0, 7.0])


@pytest.mark.exhaustive
def test_forward_over_reverse_leaves_no_history_behind():
    w = leaf(xgrad, 3)
    for f in (lambda x: (x**4).sum(), lambda x: written(xgrad, x).sum()):
        value, tangent = jvp(grad(f), (w.detach(),), (xgrad.ones(3, dtype=xgrad.float64),))
        assert value.grad_fn is None
        assert tangent.grad_fn is None
        tangent = jvp(grad(f), (w,), (xgrad.ones(3, dtype=xgrad.float64),))[1]
        assert xgrad.autograd.grad(tangent.sum(), w)[0].abs().sum() > 0


@pytest.mark.exhaustive
def test_forward_over_forward_of_writes_inside_of_vmap():
    def program(T):
        def f(x):
            y = T.zeros_like(x)
            y[0].copy_(x[0])
            y[1:].add_(x[1:])
            return (y**4).sum()

        x = leaf(T, 3)
        twice = lambda t: T.func.jvp(lambda x: T.func.jvp(f, (x,), (t,))[1], (x,), (t,))[1]  # noqa: E731
        out = T.func.vmap(twice)(T.eye(3, dtype=T.float64))
        return out, T.autograd.grad(out.sum(), x)

    as_torch(program)


@pytest.mark.exhaustive
def test_a_write_that_would_lose_one_of_two_histories_is_refused():
    def f(make, x):
        y = make(x)
        y.add_(x)
        return (y**4).sum()

    w, t = leaf(xgrad, 3), xgrad.eye(3, dtype=xgrad.float64)
    hessian = xgrad.func.hessian(lambda x: f(xgrad.zeros_like, x))(w)
    wanted = 24 * w.detach()
    assert xgrad.allclose(xgrad.autograd.grad(hessian.sum(), w)[0], wanted)
    with pytest.raises(RuntimeError, match="requires grad both inside of vmap and outside: one of the two"):
        xgrad.func.vmap(lambda t: grad(lambda x: f(lambda x: xgrad.zeros(3, dtype=x.dtype), x))(w * t))(t)
