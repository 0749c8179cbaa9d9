"""autograd.Function to the letter: what `ctx` has and when, what is refused, views and dirty inputs, names."""

import gc
import weakref

import pytest

import xgrad
import xgrad.autograd.function

from ..oracle import as_torch, data, leaf, same_error
from .test_function import function

# -- ctx ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        ("save_for_backward", "to_save"),
        ("save_for_forward", "saved_for_forward"),
        ("mark_dirty", "dirty_tensors"),
        ("mark_non_differentiable", "non_differentiable"),
    ],
)
def test_what_was_asked_of_ctx_is_an_attribute_until_apply_ends(mark, name):
    def program(T):
        def forward(ctx, x):
            seen.append(getattr(ctx, name))
            getattr(ctx, mark)(x)
            seen.append(len(getattr(ctx, name)))
            return x, x * 2

        def backward(ctx, *grads):
            seen.append(getattr(ctx, name))
            return grads[1]

        seen = []
        function(T, forward, backward).apply(leaf(T, 3) * 1)[1].sum().backward()
        return seen

    as_torch(program)


def test_attributes_may_be_set_directly():
    def program(T):
        def forward(ctx, x):
            ctx.to_save, ctx.materialize_grads = (x,), False
            return x * x, x * 1

        def backward(ctx, a, b):
            seen.append(b)
            return a * 2 * ctx.saved_tensors[0]

        seen, x = [], leaf(T, 3)
        function(T, forward, backward).apply(x)[0].sum().backward()
        return x.grad, seen

    as_torch(program)


@pytest.mark.parametrize("name", ["to_save", "dirty_tensors", "non_differentiable"])
def test_attributes_must_be_tuples(name):
    def forward(ctx, x):
        setattr(ctx, name, [x])
        return x

    same_error(lambda T: function(T, forward, lambda ctx, g: g).apply(leaf(T, 3) * 1), f"{name} attribute is expected")


@pytest.mark.parametrize(
    ("mark", "value", "match"),
    [
        ("mark_dirty", 3, "mark_dirty can only accept variables"),
        ("mark_non_differentiable", 3, "mark_non_differentiable only accepts variable arguments"),
        ("set_materialize_grads", 1, "set_materialize_grads received an invalid combination of arguments"),
        ("save_for_forward", 3, "save_for_forward expects all arguments to be tensors"),
        ("save_for_backward", 3, "save_for_backward can only save variables, but argument 0 is of type int"),
    ],
)
def test_arguments_of_ctx_methods(mark, value, match):
    def program(T):
        def forward(ctx, x):
            getattr(ctx, mark)(value)
            return x * 1

        function(T, forward, lambda ctx, g: g).apply(leaf(T, 3))

    same_error(program, match)


def test_what_is_not_recorded_may_save_anything():
    def program(T):
        def forward(ctx, x):
            ctx.save_for_backward("text")
            return x * 1

        with T.no_grad():
            out = function(T, forward, lambda ctx, g: g).apply(leaf(T, 3))
        return out, function(T, forward, lambda ctx, g: g).apply(data(T, (3,)))

    as_torch(program)


def test_saved_tensors_are_there_after_forward_and_until_release():
    def program(T):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            seen.append(ctx.saved_tensors)
            return x * x

        def backward(ctx, grad):
            (a,), (b,) = ctx.saved_tensors, ctx.saved_tensors
            seen.append((a is b, a is x))
            return grad * 2 * a

        seen, x = [], leaf(T, 3)
        function(T, forward, backward).apply(x).sum().backward()
        return seen

    as_torch(program)


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("name", ["saved_tensors", "_raw_saved_tensors"])
def test_saved_tensors_are_refused_after_release_even_if_there_were_none(saves, name):
    def program(T):
        def forward(ctx, x):
            if saves:
                ctx.save_for_backward(x)
            return x * 1

        y = function(T, forward, lambda ctx, g: g).apply(leaf(T, 3))
        y.sum().backward()
        getattr(y.grad_fn, name)

    same_error(program, "already been freed")


def test_graph_that_saved_nothing_runs_twice():
    def program(T):
        x = leaf(T, 3)
        y = function(T, lambda ctx, x: x * 2, lambda ctx, g: g * 2).apply(x)
        for _ in range(2):
            y.backward(T.ones_like(y))
        return x.grad

    as_torch(program)


def test_maybe_clear_saved_tensors():
    def program(T, keep):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1

        def backward(ctx, grad):
            ctx.maybe_clear_saved_tensors()
            return grad * ctx.saved_tensors[0]

        x = leaf(T, 3)
        function(T, forward, backward).apply(x).sum().backward(retain_graph=keep)
        return x.grad

    as_torch(lambda T: program(T, True))
    same_error(lambda T: program(T, False), "a second time")


def test_deprecated_names_warn():
    def program(T):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            with pytest.warns(FutureWarning, match="`mark_shared_storage` is deprecated"):
                ctx.mark_shared_storage((x, x))
            return x * x

        def backward(ctx, grad):
            with pytest.warns(DeprecationWarning, match="'saved_variables' is deprecated"):
                return grad * 2 * ctx.saved_variables[0]

        x = leaf(T, 3)
        function(T, forward, backward).apply(x).sum().backward()
        return x.grad

    as_torch(program)


def test_ctx_is_the_node_and_may_outlive_its_outputs():
    def program(T):
        def forward(ctx, x):
            kept.append(ctx)
            ctx.note, y = 5, x * 2
            ctx.save_for_backward(x, y)
            return y

        kept, x = [], leaf(T, 3)
        y = function(T, forward, lambda ctx, g: g).apply(x)
        is_node, note = y.grad_fn is kept[0], y.grad_fn.note
        del y
        saved = kept[0].saved_tensors
        return is_node, note, saved[0] is x, saved[1], saved[1].grad_fn is kept[0]

    as_torch(program)


@pytest.mark.parametrize("saved", ["output", "dirty", "dirty view"])
def test_what_is_saved_makes_no_cycle(saved):
    def forward(ctx, x):
        y = x.mul_(2) if saved.startswith("dirty") else x * 2
        if y is x:
            ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        return y

    x = leaf(xgrad, 2, 3) * 1
    gc.disable()
    try:
        out = function(xgrad, forward, lambda ctx, g: g).apply(x[0] if saved == "dirty view" else x)
        node = weakref.ref(out.grad_fn)
        del x, out
        assert node() is None
    finally:
        gc.enable()


# -- dirty inputs ------------------------------------------------------------------------------------------------------


def write(ctx, *tensors):
    for i, x in enumerate(tensors):
        x.mul_(i + 2)
    ctx.mark_dirty(*tensors)
    return tensors if len(tensors) > 1 else tensors[0]


def dirty_plain_input(T):
    def forward(ctx, x, w):
        x.mul_(w)
        ctx.mark_dirty(x)
        return x

    x, w = data(T, (3,)), leaf(T, 3, seed=1)
    x.grad = data(T, (3,), 4)
    y = function(T, forward, lambda ctx, g: (g, g * 2)).apply(x, w)
    y.sum().backward()
    return y is x, x.is_leaf, x._version, w.grad


def dirty_view_of_a_plain_base(T):
    def forward(ctx, x, w):
        x.mul_(w)
        ctx.mark_dirty(x)
        return x

    base, w = data(T, (2, 3)), leaf(T, 3, seed=1)
    view = base[0]
    y = function(T, forward, lambda ctx, g: (g, g * 2)).apply(view, w)
    base.sum().backward()
    return y is view, base.requires_grad, base, w.grad


def dirty_base_of_a_view(T):
    x = leaf(T, 2, 3)
    base = x * 1
    view = base[0]
    y = function(T, write, lambda ctx, g: g * 10).apply(base)
    view.sum().backward()
    return y is base, view, x.grad


def dirty_in_another_order(T):
    def forward(ctx, a, b):
        write(ctx, a, b)
        return b, a

    x, w = leaf(T, 3), leaf(T, 3, seed=1)
    a, b = x * 1, w * 1
    p, q = function(T, forward, lambda ctx, g, h: (h * 2, g * 3)).apply(a, b)
    (p * q * q).sum().backward()
    return p is b, q is a, p.output_nr, q.output_nr, x.grad, w.grad


def dirty_and_returned_twice(T):
    def forward(ctx, a):
        a.mul_(2)
        ctx.mark_dirty(a)
        return a, a

    x = leaf(T, 3)
    a = x * 1
    p, q = function(T, forward, lambda ctx, g, h: g + h * 10).apply(a)
    (p.sum() + 2 * q.sum()).backward()
    return p is a, q is a, p.output_nr, a._version, x.grad


def dirty_and_retained(T):
    seen, x = [], leaf(T, 3)
    a = x * 1
    a.retain_grad()
    a.register_hook(lambda g: seen.append(g))
    function(T, write, lambda ctx, g: g * 2).apply(a)
    (a * a).sum().backward()
    return a.grad, seen, x.grad


def dirty_and_saved(T, view=False):
    def forward(ctx, x):
        ctx.save_for_backward(write(ctx, x))
        return x

    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]

    x = leaf(T, 2, 3)
    a = x * 1
    function(T, forward, backward).apply(a[0] if view else a)
    a.sum().backward()
    return x.grad


@pytest.mark.parametrize(
    "program",
    [
        dirty_plain_input, dirty_view_of_a_plain_base, dirty_base_of_a_view, dirty_in_another_order,
        dirty_and_returned_twice, dirty_and_retained, dirty_and_saved, lambda T: dirty_and_saved(T, True),
    ],
)  # fmt: skip
def test_dirty(program, path):
    as_torch(program)


def test_dirty_input_loses_the_gradient_it_had():
    x = data(xgrad, (3,))
    x.grad = data(xgrad, (3,), 4)
    function(xgrad, lambda ctx, x, w: write(ctx, x), lambda ctx, g: (g, None)).apply(x, leaf(xgrad, 3, seed=1))
    with pytest.warns(UserWarning, match="not a leaf"):
        assert x.grad is None


def test_marking_what_is_no_input_warns():
    def program(T):
        def forward(ctx, x):
            y = x * 1
            ctx.mark_dirty(y)
            return y

        x = leaf(T, 3)
        with pytest.warns(UserWarning, match="received a tensor that was not an input"):
            y = function(T, forward, lambda ctx, g: g * 3).apply(x)
        y.sum().backward()
        return y._version, x.grad

    as_torch(program)


def test_dirty_view_beside_another_output_is_refused():
    def program(T):
        function(T, lambda ctx, v: (write(ctx, v), 3), lambda ctx, g, n: g).apply((leaf(T, 2, 3) * 1)[0])

    same_error(program, "cannot return more than one Tensor")


def test_dirty_view_in_another_place_than_the_first_is_refused():
    """torch accepts it, and gives the other arguments no gradient and the base a wrong one."""
    mine = function(xgrad, lambda ctx, w, v: write(ctx, v), lambda ctx, g: (g, g))
    with pytest.raises(RuntimeError, match="must be its first tensor argument"):
        mine.apply(leaf(xgrad, 3, seed=1), (leaf(xgrad, 2, 3) * 1)[0])


# -- views and inputs as outputs ---------------------------------------------------------------------------------------


def views(ctx, x):
    return x[:2], x[2:]


@pytest.mark.parametrize(
    ("forward", "match"),
    [
        (views, "returns multiple views"),
        (lambda ctx, x: (x[:2], x * 2), "returns multiple views"),
        (lambda ctx, x: (x[:2], x.argsort()), "custom Function"),
        (lambda ctx, x: (x[:2], "text"), "custom Function"),
        (lambda ctx, x: (x, None), "custom Function"),
    ],
)
@pytest.mark.parametrize("stale", [False, True])
def test_which_views_must_not_be_written_and_why(forward, match, stale):
    def program(T):
        base = leaf(T, 3) * 1
        y = function(T, forward, lambda ctx, *g: None).apply(base)[0]
        if stale:
            base.mul_(2)
            return y.grad_fn
        return y.mul_(2)

    same_error(program, match)


def test_view_of_an_intermediate_may_be_written():
    def program(T):
        x = leaf(T, 3)
        y = function(T, lambda ctx, x: (x * 2)[:2], lambda ctx, g: T.cat([g, g[:1]])).apply(x) * 1
        y.mul_(2)
        y.sum().backward()
        return x.grad

    as_torch(program)


@pytest.mark.parametrize("forward", [lambda ctx, x: x, lambda ctx, x: x[:2]])
def test_outputs_of_an_unrecorded_function_are_views_of_their_inputs(forward):
    def program(T):
        x = data(T, (3,))
        y = function(T, forward, lambda ctx, g: g).apply(x)
        y.mul_(2)
        return y is x, y._is_view(), y._base is x, x

    as_torch(program)

    def written(T):
        function(T, forward, lambda ctx, g: g).apply(data(T, (3,))).mul_(leaf(T))

    same_error(written, "custom Function|no_grad mode")


def test_tensors_returned_twice():
    def program(T):
        def twice(ctx, x):
            y = x * 1
            return y, y, x, x

        x = leaf(T, 3)
        outs = function(T, twice, lambda ctx, a, b, c, d: a + 10 * b + 100 * c + 1000 * d).apply(x)
        (outs[0].sum() + 2 * outs[1].sum() + 3 * outs[2].sum() + 4 * outs[3].sum()).backward()
        return outs[0] is outs[1], outs[0].output_nr, outs[2] is outs[3], [o.output_nr for o in outs], x.grad

    as_torch(program)


@pytest.mark.parametrize("what", ["input", "output", "for forward", "plain"])
def test_input_returned_as_it_is_must_not_be_saved_by_setup_context(what):
    def program(T):
        class Mine(T.autograd.Function):
            @staticmethod
            def forward(x):
                return x

            @staticmethod
            def setup_context(ctx, inputs, output):
                save = ctx.save_for_forward if what == "for forward" else ctx.save_for_backward
                save(output if what == "output" else inputs[0])

        Mine.apply(data(T, (3,)) if what == "plain" else leaf(T, 3))

    same_error(program, "input that has been returned as-is as output is being saved for backward")


def test_outputs_made_with_grad_mode_on_lose_their_inner_history():
    def program(T):
        def forward(ctx, x):
            with T.enable_grad():
                y, n = x * x, x * 3
            ctx.mark_non_differentiable(n)
            return y, n

        x = leaf(T, 3)
        y, n = function(T, forward, lambda ctx, g, none: g * 100).apply(x)
        y.sum().backward()
        return y.grad_fn.name(), n.requires_grad, n.grad_fn, x.grad

    as_torch(program)


def test_containers_that_are_no_tuples_are_one_output():
    def program(T):
        x = leaf(T, 3)
        seen = []
        for forward in (lambda ctx, x: [x * 2], lambda ctx, x: {"a": x * 2}, lambda ctx, x: None, lambda ctx, x: ()):
            out = function(T, forward, lambda ctx, *g: None).apply(x)
            inner = list(out.values() if isinstance(out, dict) else out or ())
            seen.append((type(out).__name__, [t.requires_grad for t in inner]))
        return seen

    as_torch(program)


# -- backward ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [[1], 2.0, ("x",)])
def test_gradient_must_be_a_tensor(given):
    def program(T):
        function(T, lambda ctx, x: x * 2, lambda ctx, g: given).apply(leaf(T, 3)).sum().backward()

    same_error(program, "expected Variable or None")


def test_complex_gradient_of_a_real_input_is_refused():
    def program(T):
        mine = function(T, lambda ctx, x: x * 2, lambda ctx, g: T.ones(3, dtype=T.complex128))
        mine.apply(leaf(T, 3)).sum().backward()

    assert isinstance(same_error(program, ""), RuntimeError)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_gradient_of_another_dtype_is_cast(dtype):
    def program(T):
        x = leaf(T, 3)
        mine = function(T, lambda ctx, x: x * 2, lambda ctx, g: T.ones(3, dtype=getattr(T, dtype)))
        mine.apply(x).sum().backward()
        return x.grad

    as_torch(program)


def test_undefined_gradient_reaches_the_next_function():
    def program(T, materialize):
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 1

        def backward(ctx, grad):
            seen.append(grad)
            return grad

        seen, x = [], leaf(T, 3)
        inner = function(T, forward, backward).apply(x)
        function(T, lambda ctx, x: x * 1, lambda ctx, g: None).apply(inner).sum().backward()
        return seen, x.grad

    as_torch(lambda T: program(T, True))
    as_torch(lambda T: program(T, False))


def test_vjp_is_another_name_of_backward():
    def program(T, both=False):
        class Mine(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def vjp(ctx, grad):
                return grad * 7

        if both:
            Mine.backward = staticmethod(lambda ctx, grad: grad)
        x = leaf(T, 3)
        Mine.apply(x).sum().backward()
        return x.grad

    as_torch(program)
    same_error(lambda T: program(T, True), "Implementing both 'backward' and 'vjp'")


def test_once_differentiable_refuses_by_a_node_of_its_own():
    def program(T):
        backward = T.autograd.function.once_differentiable(lambda ctx, g: (g * 2, None))
        x = leaf(T, 3)
        y = function(T, lambda ctx, x, k: x * 2, backward).apply(x, 3)
        (g,) = T.autograd.grad((y * y).sum(), x, create_graph=True)
        return g.requires_grad, g.grad_fn.name().rsplit("::")[-1]

    as_torch(program)


def test_backward_within_backward():
    def program(T):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        def backward(ctx, grad):
            with T.enable_grad():
                z = ctx.saved_tensors[0].detach().requires_grad_()
                (z**3).sum().backward()
            return grad * z.grad

        x = leaf(T, 3)
        function(T, forward, backward).apply(x).sum().backward()
        return x.grad

    as_torch(program)


# -- arguments and classes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda F, x: F.apply(x, k=3), r"missing required argument: 'w' \(position 1\)"),
        (lambda F, x: F.apply(x, x=3), "multiple values for argument 'x'"),
        (lambda F, x: F.apply(x, q=3), "unexpected keyword argument 'q'"),
        (lambda F, x: F.apply(x, 1, 2, 3), "takes from 2 to 4 positional arguments but 5 were given|forward"),
        (lambda F, x: F.apply(), "missing 1 required positional argument: 'x'"),
    ],
)
def test_arguments_of_apply(call, match):
    def forward(ctx, x, w=1, k=2):
        return x * 1

    same_error(lambda T: call(function(T, forward, lambda ctx, g: (g, None, None)), leaf(T, 3)), match)


def test_classes_and_their_names():
    def program(T):
        module = T.autograd.function
        Mine = function(T, lambda ctx, x: x * 1, lambda ctx, g: g)
        node = Mine.apply(leaf(T, 3)).grad_fn
        return {
            "exported": module.__all__,
            "metaclass": isinstance(Mine, module.FunctionMeta),
            "node": [type(node) is Mine._backward_cls, node._forward_cls is Mine, node.name()],
            "bases": [isinstance(node, c) for c in (module.BackwardCFunction, module.FunctionCtx)],
            "ctx": [issubclass(T.autograd.Function, module.FunctionCtx), module._ContextMethodMixin.__name__],
            "old": [issubclass(c, T.autograd.Function) for c in (module.InplaceFunction, T.autograd.NestedIOFunction)],
            "vmap": Mine.generate_vmap_rule,
        }

    as_torch(lambda T: {**program(T), "exported": sorted(program(T)["exported"])})
    same_error(lambda T: function(T, None, None).vmap(None, (0,), 1), "override the vmap staticmethod")
    same_error(lambda T: T.autograd.Function.apply(leaf(T, 3)), "You must implement the forward function")


def test_inherited_methods():
    def program(T):
        class A(T.autograd.Function):
            factor = 2

            @classmethod
            def forward(cls, ctx, x):
                return x * cls.factor

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx._forward_cls.factor

        class B(A):
            factor = 3

        x = leaf(T, 3)
        a, b = A.apply(x), B.apply(x)
        (a + b).sum().backward()
        return a.grad_fn.name(), b.grad_fn.name(), x.grad

    as_torch(program)


def test_old_style_with_methods_of_the_instance():
    def program(T):
        class Old(T.autograd.Function):
            def forward(self, x):
                return x * 2

            def backward(self, grad):
                return grad * 2

        x = leaf(T, 3)
        Old.apply(x).sum().backward()
        return x.grad

    as_torch(program)


@pytest.mark.parametrize("where", ["forward", "setup_context", "backward"])
def test_errors_leave_the_modes_as_they_were(where):
    class StopError(Exception):
        pass

    def stop(*args):
        raise StopError

    methods = {
        "forward": lambda x: x * 1,
        "setup_context": lambda ctx, inputs, output: None,
        "backward": lambda ctx, grad: grad,
        where: stop,
    }
    mine = type("Mine", (xgrad.autograd.Function,), {k: staticmethod(v) for k, v in methods.items()})
    fw = xgrad.autograd.forward_ad
    x = leaf(xgrad, 3)
    with fw.dual_level():
        with pytest.raises(StopError):
            mine.apply(x).sum().backward()
        assert xgrad.is_grad_enabled()
        assert fw.unpack_dual(fw.make_dual(data(xgrad, (3,)), data(xgrad, (3,))) * 2).tangent is not None
