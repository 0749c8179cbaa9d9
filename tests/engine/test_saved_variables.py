"""What a node saves: version checks and their text, hooks, release, and the attributes that show it."""

import gc
import threading
import weakref
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import array, as_torch, data, leaf, same, same_error
from .test_graph import A

# -- versions ----------------------------------------------------------------------------------------------------------


def saved_input(T, leaf=leaf):
    x = leaf(T, 3)
    y = x * 1
    z = (y * y).sum()
    y.add_(1)
    return z


def saved_output(T, leaf=leaf):
    y = leaf(T, 3).tanh()
    z = y.sum()
    y.mul_(2)
    return z


def saved_view(T, leaf=leaf):
    base = leaf(T, 2, 3) * 1
    z = (base[0] * base[0]).sum()
    base[1].zero_()  # another part, but the same counter
    return z


def saved_base(T, leaf=leaf):
    base = leaf(T, 2, 3) * 1
    z = (base * base).sum()
    base[0].t_().mul_(2)
    return z


def saved_through_detach(T, leaf=leaf):
    y = leaf(T, 3) * 1
    z = (y * y).sum()
    y.detach().add_(1)
    return z


def saved_under_no_grad(T, leaf=leaf):
    y = leaf(T, 3) * 1
    z = (y * y).sum()
    with T.no_grad():
        y.add_(1)
    return z


def saved_leaf(T, leaf=leaf):
    x = leaf(T, 3)
    z = (x * x).sum()
    with T.no_grad():
        x.add_(1)
    return z


def saved_inplace_output(T, leaf=leaf):
    y = leaf(T, 3) * 1
    y.tanh_()
    z = y.sum()
    y.mul_(2)
    return z


def saved_by_an_inplace_view_operation(T, leaf=leaf):
    y = leaf(T, 2, 3) * 1
    z = (y * y).sum()
    y.t_()
    return z


CHANGED = [
    saved_input, saved_output, saved_view, saved_base, saved_through_detach, saved_under_no_grad, saved_leaf,
    saved_inplace_output, saved_by_an_inplace_view_operation,
]  # fmt: skip


@pytest.mark.parametrize("make", CHANGED)
def test_a_changed_saved_tensor_is_an_error(make, path):
    error = same_error(lambda T: make(T).backward(), "modified by an inplace operation")
    assert isinstance(error, xgrad.errors.VersionError)


@pytest.mark.parametrize(
    "make",
    [
        lambda T, x: (lambda y: ((y * 2).sum(), y.add_(1))[0])(x * 1),  # a scalar's product saves no tensor
        lambda T, x: (lambda y: ((y + y).sum(), y.mul_(2))[0])(x * 1),
        lambda T, x: (lambda y: ((y * y).sum(), y.data.mul_(1))[0])(x * 1),  # another counter
        lambda T, x: (lambda y: (y.detach().add_(1), (y * y).sum())[1])(x * 1),  # before it was saved
    ],
)
def test_a_change_that_harms_nothing_is_none(make):
    def program(T):
        x = leaf(T, 3)
        make(T, x).backward()
        return x.grad

    as_torch(program)


def test_the_error_names_what_happened():
    y = leaf(xgrad, 2, 3) * 1
    z = (y * y).sum()
    y.add_(1)
    y.add_(1)
    with pytest.raises(RuntimeError) as caught:
        z.backward()
    text = str(caught.value)
    for words in ("[2, 3]", "float64", "output 0 of AddBackward0", "version 2", "expected version 0", "Hint"):
        assert words in text


def test_the_error_of_an_output_names_its_own_node():
    y = leaf(xgrad, 3).tanh()
    z = y.sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="TanhBackward0"):
        z.backward()


def test_an_error_leaves_the_graph_as_it_was():
    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        y = x * 1
        a, b = (y * w).sum(), (x * w).sum()
        y.add_(1)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="inplace"):
                a.backward()
        b.backward()
        return x.grad, w.grad

    as_torch(program)


def test_mul_in_place_saves_its_old_value():
    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        y = x * 1
        y.mul_(w)
        y.mul_(w)
        y.add_(1)
        y.sum().backward()
        return x.grad, w.grad

    as_torch(program)


# -- release -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [lambda y: y * y, lambda y: y.tanh(), lambda y: y.exp() * y, lambda y: y @ y])
def test_second_time(function):
    def program(T):
        z = function(leaf(T, 3) * 1).sum()
        z.backward()
        z.backward()

    error = same_error(program, "a second time")
    assert isinstance(error, xgrad.errors.FreedGraphError)
    assert "retain_graph=True" in str(error)


def test_second_time_through_an_inplace_write_on_a_view(path):
    def program(T):
        x = leaf(T, 2, 3)
        base = x + 0
        base[0].add_(1)
        z = base.sum()
        z.backward()
        z.backward()

    same_error(program, "a second time")


def test_saved_attributes_after_release():
    def program(T):
        y = leaf(T, 3).tanh()
        y.sum().backward()
        y.grad_fn._saved_result

    same_error(program, "freed")

    def program(T):
        y = leaf(T, 3).tanh()
        raw = y.grad_fn._raw_saved_result
        y.sum().backward()
        raw.register_hooks(lambda t: t, lambda t: t)

    same_error(program, "freed")


# -- the attributes ----------------------------------------------------------------------------------------------------


def test_saved_attributes_show_inputs_and_results():
    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        a, b = x * w, x.tanh()
        fn = a.grad_fn
        return (
            fn._saved_self, fn._saved_self is x, fn._saved_other is w, b.grad_fn._saved_result,
            b.grad_fn._saved_result.grad_fn is b.grad_fn, b.grad_fn._saved_result is b,
        )  # fmt: skip

    as_torch(program)


def test_saved_attribute_that_is_not_needed_is_none():
    def program(T):
        x = leaf(T, 3)
        return (x * data(T, (3,))).grad_fn._saved_self

    as_torch(program)


def test_saved_attribute_is_version_checked():
    def program(T):
        y = leaf(T, 3) * 1
        z = y * y
        y.add_(1)
        z.grad_fn._saved_self

    same_error(program, "modified by an inplace operation")


def test_saved_statics_are_shown():
    node = leaf(xgrad, 2, 3).sum(1).grad_fn
    assert node._saved_dim in (1, (1,))
    assert node._saved_keepdim is False


def test_unknown_saved_attribute():
    same_error_type = pytest.raises(AttributeError, match="_saved_nothing")
    with same_error_type:
        (leaf(xgrad, 3) * 2).grad_fn._saved_nothing


def test_an_intermediate_that_is_saved_keeps_its_place_in_the_graph():
    def program(T):
        x = leaf(T, 3)
        y = x.tanh()
        z = y * y
        (g,) = T.autograd.grad(z.grad_fn._saved_self.sum(), x, retain_graph=True)
        return g, T.autograd.grad(z.sum(), x)

    as_torch(program)


# -- hooks -------------------------------------------------------------------------------------------------------------


def test_default_hooks_pack_inputs_and_outputs():
    def program(T):
        log, found = [], []

        def pack(t):
            log.append(("pack", tuple(t.shape)))
            found.append(t is y)
            return array(t).copy() * 2

        def unpack(a):
            log.append("unpack")
            return T.from_numpy(a)

        x = leaf(T, 3)
        y = x * 1
        with T.autograd.graph.saved_tensors_hooks(pack, unpack):
            z = (y * y).tanh().sum()
        z.backward()
        return log.count("unpack"), sorted(map(str, log)), sum(found), x.grad

    as_torch(program)


def test_the_innermost_pair_counts():
    def program(T):
        x = leaf(T, 3)
        hooks = T.autograd.graph.saved_tensors_hooks
        with hooks(lambda t: t * 2, lambda t: t), hooks(lambda t: t * 3, lambda t: t):
            inner = (x * x).sum()
        with hooks(lambda t: t * 2, lambda t: t):
            with hooks(lambda t: t * 3, lambda t: t):
                pass
            outer = (x * x).sum()
        none = (x * x).sum()
        return [T.autograd.grad(z, x) for z in (inner, outer, none)]

    as_torch(program)


def test_hooks_turn_the_version_check_off():
    def program(T):
        x = leaf(T, 3)
        y = x * 1
        with T.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            z = (y * y).sum()
        y.zero_()
        z.backward()
        return x.grad

    as_torch(program)


def test_hooks_and_double_backward():
    def program(T):
        x = leaf(T, 3)
        with T.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            y = (x.tanh() * x).sum()
        (g,) = T.autograd.grad(y, x, create_graph=True)
        return g, T.autograd.grad(g.sum(), x)

    as_torch(program)


def test_hooks_with_writes_through_views(path):
    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)
        with T.autograd.graph.saved_tensors_hooks(lambda t: array(t).copy(), lambda a: T.from_numpy(a)):
            base = x * 1
            base[0].mul_(w)
            base[1].tanh_()
            z = (base * base).sum()
        z.backward()
        return x.grad, w.grad

    as_torch(program)


def test_pack_hook_must_not_change_its_tensor():
    def program(T):
        x = leaf(T, 3)
        with T.autograd.graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t):
            x.exp().sum()

    same_error(program, "in place|inplace")


def test_unpack_hook_must_return_a_tensor():
    def program(T):
        x = leaf(T, 3)
        with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: "no tensor"):
            y = (x * x).sum()
        y.backward()

    same_error(program, "str|expected to be a Tensor")


def test_error_in_a_pack_hook_keeps_its_type_and_the_mode():
    class StopError(Exception):
        pass

    def stop(t):
        raise StopError

    x = leaf(xgrad, 3)
    with pytest.raises(StopError), xgrad.autograd.graph.saved_tensors_hooks(stop, lambda t: t):
        x * x
    assert xgrad.is_grad_enabled()
    (x * x).sum().backward()


def test_hooks_must_be_functions():
    with pytest.raises(TypeError, match="callable"):
        xgrad.autograd.graph.saved_tensors_hooks(1, 2)


def test_hooks_on_one_saved_tensor():
    def program(T):
        x = leaf(T, 3)
        y = x * x
        y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 2, lambda t: t)
        y.sum().backward()
        return x.grad

    as_torch(program)


def test_hooks_on_one_saved_output():
    def program(T):
        x = leaf(T, 3)
        y = x.tanh()
        y.grad_fn._raw_saved_result.register_hooks(lambda t: t * 2, lambda t: t)
        y.sum().backward()
        return x.grad

    as_torch(program)


def test_hooks_on_one_saved_tensor_work_once():
    def program(T):
        y = leaf(T, 3).tanh()
        raw = y.grad_fn._raw_saved_result
        raw.register_hooks(lambda t: t, lambda t: t)
        raw.register_hooks(lambda t: t, lambda t: t)

    same_error(program, "already been set")


def test_disabled_hooks():
    def program(T):
        graph, x = T.autograd.graph, leaf(T, 3)
        with graph.disable_saved_tensors_hooks("not here"), graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            x * x

    same_error(program, "not here")
    x = leaf(xgrad, 3)
    with xgrad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        (x * x).sum().backward()


def test_hooks_are_of_one_thread():
    packed = []
    x = leaf(xgrad, 3)

    def work():
        (x * x).sum().backward()

    with xgrad.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not packed


@pytest.mark.parametrize("pin", [False, True])
def test_save_on_cpu(pin):
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    with xgrad.autograd.graph.save_on_cpu(pin_memory=pin):
        y = (x * w).tanh().sum()
    y.backward()
    tx, tw = leaf(torch, 3), leaf(torch, 3, seed=1)
    (tx * tw).tanh().sum().backward()
    same((x.grad, w.grad), (tx.grad, tw.grad))


# -- arrays are immutable ---------------------------------------------------------------------------------------------


def test_a_saved_view_is_read_as_it_was():
    """The saved array of a view is that of the time when it was saved, whatever is written since through `.data`."""
    x = leaf(xgrad, 2, 3)
    base = x * 1
    y = base[0].tanh()
    before = array(y).copy()
    y.data.zero_()
    y.sum().backward()
    same(x.grad[0], 1 - np.square(before))


@pytest.mark.parametrize("held", [True, False])
def test_second_gradient_through_a_saved_result_of_a_view(held, path):
    """The view that was written may have died: what was saved of it belongs to the base's history then."""

    def program(T):
        x = leaf(T, 2, 3)
        base = x * 1
        view = base[0]
        view.tanh_()
        if not held:
            del view
        (g,) = T.autograd.grad((base * base).sum(), x, create_graph=True)
        return g, T.autograd.grad((g * g).sum(), x)

    as_torch(program)


def test_reading_one_saved_value_unpacks_it_alone():
    def program(T):
        seen = []
        x, y = leaf(T, 3), leaf(T, 3, seed=1)
        names = {id(x): "x", id(y): "y"}
        with T.autograd.graph.saved_tensors_hooks(lambda t: (names[id(t)], t), lambda p: seen.append(p[0]) or p[1]):
            z = x * y
        z.grad_fn._saved_self.sum()
        return seen

    as_torch(program)


def test_raw_saved_values_of_every_kind():
    """None, after a change in place, and after release."""

    def program(T):
        x, constant = leaf(T, 3), leaf(T, 3, seed=1).detach()
        product = x * constant
        errors = []

        def register(raw):
            try:
                raw.register_hooks(lambda t: t, lambda t: t)
            except RuntimeError as error:
                errors.append(str(error)[:60])

        register(product.grad_fn._raw_saved_self)
        y = x * 2
        square = y * y
        raw = square.grad_fn._raw_saved_self
        y.add_(1)
        square.grad_fn._raw_saved_other  # nothing is checked before it is unpacked
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            square.grad_fn._saved_self
        product.sum().backward()
        register(product.grad_fn._raw_saved_other)
        return errors, raw.unpack_hook

    as_torch(program)


def test_what_a_raw_saved_value_keeps():
    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        product, e = x * w, x.exp()
        raw, result = product.grad_fn._raw_saved_self, e.grad_fn._raw_saved_result
        before = raw.data is x, raw.unpack() is x, result.data, result.data.requires_grad
        raw.register_hooks(lambda t: (1, t.detach()), lambda packed: packed[1])
        kept = raw.data[0], raw.unpack(), raw.unpack().requires_grad, raw.unpack_hook is None
        product.sum().backward()
        return before, kept, raw.data, raw.unpack_hook

    as_torch(program)


def test_saved_tensors_that_are_cleared_on_access():
    def program(T):
        log = []

        class Square(T.autograd.Function):
            clear_saved_tensors_on_access = True

            @staticmethod
            def forward(ctx, x):
                kept = x * 2
                ctx.save_for_backward(kept)
                log.append(weakref.ref(kept))
                return x * x

            @staticmethod
            def backward(ctx, grad):
                (twice,) = ctx.saved_tensors
                with pytest.raises(RuntimeError, match="can only be accessed once when clear_saved"):
                    ctx.saved_tensors
                result = grad * twice
                del twice
                gc.collect()
                log.append(log.pop(0)() is None)
                return result

        x = leaf(T, 3)
        y = Square.apply(x)
        y.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="can only be accessed once when clear_saved"):
            y.sum().backward()
        assert not T.autograd.Function.clear_saved_tensors_on_access
        return log, x.grad

    as_torch(program)


def test_gradients_in_a_box():
    def program(T):
        log = []

        class Both(T.autograd.Function):
            boxed_grads_call = True

            @staticmethod
            def forward(ctx, x, w):
                return x * 2, w * 3

            @staticmethod
            def backward(ctx, grads):
                log.append((type(grads).__name__, list(grads)))
                second, first = grads.pop(), grads.pop()
                return first * 2, second * 3

        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        a, _ = Both.apply(x, w)
        a.sum().backward()
        assert not T.autograd.Function.boxed_grads_call
        return log, x.grad, w.grad

    as_torch(program)


def test_disabled_hooks_nest_and_decorate():
    def program(T):
        graph, log = T.autograd.graph, []
        message = A(T)._saved_tensors_hooks_get_disabled_error_message

        @graph.disable_saved_tensors_hooks("decorated")
        def decorated():
            log.append(message())
            with graph.saved_tensors_hooks(len, abs):
                pass

        with graph.disable_saved_tensors_hooks("outer"):
            for _ in range(2):
                with pytest.raises(RuntimeError, match="decorated"):
                    decorated()
            log.append((message(), A(T)._saved_tensors_hooks_is_enabled()))
        log.append((message(), A(T)._saved_tensors_hooks_is_enabled()))
        with graph.saved_tensors_hooks(len, abs) as _:
            log.append(A(T)._top_saved_tensors_default_hooks(False) == (len, abs))
            with pytest.raises(RuntimeError, match="too late"), graph.disable_saved_tensors_hooks("too late"):
                pass
        log.append((A(T)._top_saved_tensors_default_hooks(False), message()))
        return log

    as_torch(program)


def test_a_detached_saved_tensor_is_an_error_where_its_history_is_needed():
    """The first derivative needs its value alone, which is there; PyTorch refuses both."""

    def program(T):
        x = leaf(T, 3)
        y = x * 2
        z = (y * y).sum()
        y.detach_()
        T.autograd.grad(z, x, create_graph=True)

    same_error(program, "detached in-place")


# -- the very tensor ---------------------------------------------------------------------------------------------------


def saved_under(T, unpack, f):
    with T.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        return f()


@pytest.mark.parametrize("kind", ["constant", "leaf", "result"])
def test_what_an_unpack_hook_gives_is_what_is_seen(kind):
    """The same object where neither it nor what was saved has a place in the graph."""

    def program(T):
        given = T.ones(3) * 5 if kind == "constant" else leaf(T, 3) * (1 if kind == "leaf" else 2)
        given = given if kind != "leaf" else leaf(T, 3)
        seen = []

        class Mul(T.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                ctx.save_for_backward(x, y)
                return x * y

            @staticmethod
            def backward(ctx, grad):
                x, y = ctx.saved_tensors
                seen.extend([x is given, y is given, x.requires_grad, y.requires_grad, y.is_leaf])
                return grad * y, None

        x, y = T.ones(3, requires_grad=True), T.ones(3)
        saved_under(T, lambda t: given, lambda: Mul.apply(x, y)).sum().backward()
        z = saved_under(T, lambda t: given, lambda: x * y)
        (grad,) = T.autograd.grad(z.sum(), x, create_graph=True)
        maximum, _ = saved_under(T, lambda t: given if t.is_floating_point() else index, lambda: (x * x).max(0))
        return seen, z.grad_fn._saved_other is given, grad, grad.requires_grad, maximum.grad_fn._saved_indices is index

    index = None
    for T in (torch, xgrad):
        index = T.tensor(1)
        found = program(T)
        if T is torch:
            theirs = found
    same(found, theirs)


def test_an_unpack_hook_set_on_one_saved_value_gives_the_very_tensor():
    x, y, given = xgrad.ones(3, requires_grad=True), xgrad.ones(3), xgrad.zeros(3)
    given.tag = "mine"
    z = x * y
    z.grad_fn._raw_saved_other.register_hooks(lambda t: t, lambda t: given)
    assert z.grad_fn._saved_other is given
    assert z.grad_fn._saved_other.tag == "mine"


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_save_on_cpu_of_a_sparse_tensor():
    def program(T):
        seen = []

        class Keep(T.autograd.Function):
            @staticmethod
            def forward(ctx, x, sparse):
                ctx.save_for_backward(sparse)
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                (sparse,) = ctx.saved_tensors
                seen.extend([sparse.is_sparse, sparse.to_dense(), sparse.is_coalesced(), sparse.requires_grad])
                return grad, None

        for requires_grad in (False, True):
            sparse = T.sparse_coo_tensor(T.tensor([[0, 1], [1, 0]]), T.tensor([2.0, 3.0]), (2, 2))
            sparse.requires_grad_(requires_grad)
            with T.autograd.graph.save_on_cpu():
                y = Keep.apply(leaf(T, 2), sparse)
                product = (sparse * sparse).to_dense().sum() if requires_grad else y.sum()
            (y.sum() + product).backward()
        return seen, sparse.grad.to_dense()

    as_torch(program)


@pytest.mark.parametrize("how", ["eager", "recorded", "compiled"])
@pytest.mark.parametrize("line", ["x * x", "x @ x.t()", "x.exp()"])
def test_unpack_hook_that_gives_another_shape_is_an_error_that_names_both(line, how):
    for T in (torch, xgrad):
        x = T.ones(2, 3, requires_grad=True)
        with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t, T=T: T.ones(5)):
            y = eval(line)
        words = None if T is torch else r"unpack_hook returned, \[5\], must match the size .* packed, \[(2, 3|3, 2)\]"
        compiled = xgrad.autograd.compiled_backward() if how == "compiled" and T is xgrad else nullcontext()
        with compiled, pytest.raises(RuntimeError, match=words):
            T.autograd.grad(y.sum(), x, create_graph=how == "recorded")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", [{}, {"create_graph": True}, {"compiled": True}])
@pytest.mark.parametrize("line", ["x.prod()", "x.norm()", "x.dot(x)", "x.var()"])
def test_gradient_of_another_shape_than_its_input_names_node_and_place(line, how):
    def words(T):
        x = T.ones(2, requires_grad=True)
        with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: T.ones(3)):
            y = eval(line)
        with pytest.raises(RuntimeError, match="returned an invalid gradient") as raised:
            T.autograd.grad(y, x, **({} if T is torch and "compiled" in how else how))
        return str(raised.value)

    assert words(xgrad) == words(torch)
