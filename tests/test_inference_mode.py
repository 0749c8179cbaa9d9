"""inference_mode: what is recorded, inference tensors, what they refuse outside, views, the modes within."""

import copy
import threading

import numpy as np
import pytest
import torch

import xgrad

from .oracle import data, leaf, outcome, same, same_error

LIBRARIES = pytest.mark.parametrize("T", [xgrad, torch], ids=["xgrad", "torch"])
PHRASES = (
    "Inference tensors do not track version counter.",
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation"
    " tracked by autograd. To work around this, you can make a clone",
    "Inplace update to inference tensor outside InferenceMode is not allowed.",
    "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.",
    "A view was created in inference mode and is being modified inplace in normal mode.",
    "A view was created in inference mode and its base or another view of its base has been modified inplace in normal",
    "is a view of a view which was created in inference mode and is being modified inplace in normal mode.",
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled.",
    "modified by an inplace operation",
    "a leaf Variable that requires grad",
    "does not require grad",
)


def said(action):
    """What a call gives, or the phrase that its error is known by."""
    try:
        return action()
    except RuntimeError as error:
        return next((phrase for phrase in PHRASES if phrase in str(error)), str(error))


def kind(t):
    return t.requires_grad, t.is_inference(), t.grad_fn is not None, t._is_view()


def made(T, *shape):
    """An inference tensor."""
    with T.inference_mode():
        return data(T, shape or (3,))


def agree(program):
    same(program(xgrad), program(torch))


def test_nothing_is_recorded_and_results_are_inference_tensors():
    def program(T):
        x = leaf(T, 3)
        with T.inference_mode():
            results = (x * x, x + 1, -x, x.sum(), (x * 2)[0], x.exp(), x > 0, T.stack([x, x]), x.sort()[1], x.clone())
            assert T.is_inference_mode_enabled()
            assert not T.is_grad_enabled()
        assert not T.is_inference_mode_enabled()
        return [kind(t) for t in results], results[3]

    agree(program)


@pytest.mark.exhaustive
def test_what_is_made_in_inference_mode_by_whatever_function():
    def program(T):
        x = data(T, (2, 3))
        i = T.tensor([0])
        with T.inference_mode():
            results = (
                T.ones(2), T.zeros(2), T.tensor([1.0]), T.arange(3), T.rand(2), T.randn(2), T.eye(2), T.full((2,), 1.0),
                T.empty(2), T.linspace(0, 1, 3), T.as_tensor([1.0]), T.from_numpy(np.ones(2)), T.randperm(3),
                T.ones_like(x), T.rand_like(x), x.new_zeros(2), T.ones(2, requires_grad=True), T.bernoulli(x.abs()),
                x.max(1)[0], x.max(1)[1], x.topk(2)[1], x.nonzero(), x.unique(), x[x > 0], x[[0, 1]], x[i], x @ x.t(),
                T.cat([x, x]), T.where(x > 0, x, 1), x.to(T.float32), x.int(), x.flip(0), x.t().contiguous(), x.norm(),
                x.t().reshape(6), T.linalg.inv(x @ x.t()), T.nn.functional.dropout(x), T.nn.functional.softmax(x, 1),
                x.median(), x.any(), x.tile(2), T.nn.functional.cross_entropy(x, i.repeat(2)), x.index_select(0, i),
            )  # fmt: skip
        return [kind(t) for t in results]

    agree(program)


def test_views_of_inference_and_of_normal_tensors():
    def views(x):
        return [
            x.t(), x[0], x[:, 1:], x.view(6), x.reshape(6), x.expand(2, 2, 3), x.unsqueeze(0), x.diagonal(),
            *x.split(1), *x.unbind(), x.as_strided((2,), (1,)), x.view_as(x), x.real, x.flatten(), x.unfold(0, 1, 1),
            x.detach(), x.data, x.contiguous(), x.to(x.dtype),
        ]  # fmt: skip

    def program(T):
        normal, recorded, inference = data(T, (2, 3)), leaf(T, 2, 3) * 1, made(T, 2, 3)
        with T.inference_mode():
            inside = [[kind(v) for v in views(x)] for x in (normal, inference)]
            view = recorded[0]
            inside.append([kind(view), view._base is recorded])
        return inside, [kind(v) for v in views(inference)], inference[0]._base, kind(view[:1])

    agree(program)


def test_version_counter():
    def program(T):
        a = made(T)
        seen = [said(lambda: a._version), said(lambda: a[0]._version), a.detach()._version, a.data._version]
        with T.inference_mode():
            a.add_(1)
            seen.append(said(lambda: a._version))
            copied = made(T, 2, 3).t().reshape(6)
        seen += [said(lambda: copied._version), said(lambda: a.t().reshape(3)._version)]
        alias = a.detach()
        alias.add_(1)
        return seen, (a * 2)._version, alias._version

    agree(program)


SAVING = {
    "mul": lambda T, x, a, i: x * a,
    "mul, reflected": lambda T, x, a, i: a * x,
    "div": lambda T, x, a, i: x / a,
    "matmul": lambda T, x, a, i: x @ a,
    "view": lambda T, x, a, i: x * a[:3],
    "detach": lambda T, x, a, i: x * a.detach(),
    "data": lambda T, x, a, i: x * a.data,
    "index": lambda T, x, a, i: x[i],
    "gather": lambda T, x, a, i: x.gather(0, i),
    "index_select": lambda T, x, a, i: x.index_select(0, i),
    "in place": lambda T, x, a, i: (x * 1).mul_(a),
    "gradient": lambda T, x, a, i: T.autograd.grad(x * x, x, a, create_graph=True),
    "nothing: add": lambda T, x, a, i: x + a,
    "nothing: cat": lambda T, x, a, i: T.cat([x, a]),
    "nothing: where": lambda T, x, a, i: T.where(x > 0, x, a),
    "nothing: in place": lambda T, x, a, i: (x * 1).add_(a),
    "nothing: clone": lambda T, x, a, i: x * a.clone(),
    "nothing: no gradient": lambda T, x, a, i: x.detach() * a,
}


@pytest.mark.parametrize("which", SAVING)
@pytest.mark.parametrize("hooks", [False, True], ids=["", "saved_tensors_hooks"])
def test_saving_for_backward(which, hooks):
    def program(T):
        x, a = leaf(T, 3), made(T)
        with T.inference_mode():
            i = T.tensor([0, 1])

        def result():
            out = SAVING[which](T, x, a, i)
            if isinstance(out, tuple) or not out.requires_grad:
                return out
            return out, T.autograd.grad(out.sum(), x)

        if hooks:
            with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                return said(result)
        return said(result)

    agree(program)
    assert isinstance(program(xgrad), str) == (not which.startswith("nothing"))


WRITES = {
    "add_": lambda T, a: a.add_(1),
    "setitem": lambda T, a: a.__setitem__(0, 5.0),
    "of a view": lambda T, a: a[0].mul_(2),
    "copy_": lambda T, a: a.copy_(T.zeros(3)),
    "zero_": lambda T, a: a.zero_(),
    "fill_": lambda T, a: a.fill_(2.0),
    "uniform_": lambda T, a: a.uniform_(1, 1.0000001),
    "out=": lambda T, a: T.add(data(T, (3,)), 1, out=a),
    "t_": lambda T, a: a.t_(),
    "unsqueeze_": lambda T, a: a.unsqueeze_(0),
    "masked_fill_": lambda T, a: a.masked_fill_(T.tensor([True, False, True]), 1.0),
    "index_put_": lambda T, a: a.index_put_((T.tensor([0]),), T.tensor(1.0, dtype=T.float64)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("which", WRITES)
def test_in_place_on_inference_tensors_only_in_the_mode(which):
    def program(T):
        refused = made(T), made(T)
        seen = [said(lambda: WRITES[which](T, refused[0]))]
        with T.no_grad():
            seen.append(said(lambda: WRITES[which](T, refused[1])))
        a = made(T)
        with T.inference_mode():
            WRITES[which](T, a)
        return seen, a, refused

    ours, theirs = program(xgrad), program(torch)
    assert ours[0] == theirs[0] == [PHRASES[2]] * 2
    same(ours[1], theirs[1], rtol=1e-6)
    for unchanged in ours[2]:  # PyTorch writes before it refuses
        same(unchanged, made(xgrad))


def test_writes_through_detach_and_data_are_open():
    def program(T):
        a = made(T)
        a.detach().add_(1)
        a.data.add_(1)
        return a, kind(a.detach()), kind(a.data)

    agree(program)


def test_normal_tensors_written_in_the_mode_count_versions_and_keep_their_history():
    def program(T):
        normal, x, h = data(T, (3,)), leaf(T, 3), leaf(T, 3, seed=1) * 1
        saved = h * h
        with T.inference_mode():
            normal.add_(1)
            normal[0] = 7.0
            x.mul_(2)
            view = h[:2]
            view.mul_(3)
            kinds = [kind(t) for t in (normal, x, h)]
        return (
            kinds, [kind(t) for t in (normal, x, h)], normal, x, h, [t._version for t in (normal, x, h, view)],
            h.grad_fn.name(), said(lambda: saved.sum().backward()),
        )  # fmt: skip

    agree(program)


@pytest.mark.parametrize(
    "write",
    [
        lambda T, v: v.mul_(2),
        lambda T, v: v[:1].mul_(2),
        lambda T, v: v.view(2).mul_(2),
        lambda T, v: v.mul_(leaf(T, 2)),
        lambda T, v: v.t_(),
    ],
)
@pytest.mark.parametrize("base", ["recorded", "leaf", "normal"])
def test_view_made_in_the_mode_is_not_written_where_that_is_recorded(write, base):
    def program(T):
        x = {"recorded": leaf(T, 3) * 1, "leaf": leaf(T, 3), "normal": data(T, (3,))}[base]
        with T.inference_mode():
            v = x[:2]
        result = said(lambda: write(T, v))
        with T.no_grad():
            v.mul_(2)
        return result, x, (x * 2).requires_grad

    agree(program)


def test_stale_view_made_in_the_mode_has_no_history():
    def program(T):
        h = leaf(T, 3) * 1
        with T.inference_mode():
            v = h[:2]
            a, _, _ = h.split(1)
        with T.no_grad():
            w = h[:2]
        with T.inference_mode():
            u = w[:1]
        seen = [said(lambda: a.mul_(2)), said(lambda: w.mul_(2)), said(lambda: u.mul_(2))]
        h.mul_(2)
        return seen, said(lambda: v.grad_fn)

    agree(program)


def test_view_made_before_is_written_in_the_mode(path):
    def program(T):
        x = leaf(T, 3)
        h = x * 1
        v = h[:2]
        with T.inference_mode():
            v.mul_(2)
        v.mul_(3)
        return h, h._version, kind(v), T.autograd.grad(h.sum(), x)

    agree(program)


def test_requires_grad_of_inference_tensors():
    def program(T):
        a, b = made(T), made(T)

        def assign():
            b.requires_grad = True

        with T.inference_mode():
            inside = data(T, (3,)).requires_grad_()
            kinds = [kind(inside), kind(inside * 2), inside.is_leaf]
        (inside * 2).sum().backward()
        return (
            said(a.requires_grad_), said(assign), kind(a.requires_grad_(False)), kinds, inside.grad, kind(inside.grad),
            said(lambda: inside.add_(1)),
        )  # fmt: skip

    agree(program)


def test_gradient_of_an_inference_leaf_is_never_lost_in_silence():
    """PyTorch does not record `leaf.exp()` there, without a word: no argument asks it to."""
    with xgrad.inference_mode():
        x = leaf(xgrad, 3)
    (g,) = xgrad.autograd.grad(x.exp().sum(), x)
    same(g, x.detach().exp())
    (g,) = xgrad.autograd.grad(x[:2].sum(), x)
    same(g, np.array([1.0, 1.0, 0.0]))
    with pytest.raises(xgrad.errors.InferenceTensorError, match="cannot be saved"):
        x.sin()


def test_modes_within_modes():
    def program(T):
        seen = []

        def note(*tensors):
            seen.append((T.is_inference_mode_enabled(), T.is_grad_enabled(), *(kind(t) for t in tensors)))

        x = leaf(T, 3)
        with T.inference_mode():
            note()
            with T.enable_grad():
                note(x * 2, x.clone(), x[0], x.exp())
            with T.no_grad():
                note()
            with T.inference_mode(False):
                note(x * x, T.ones(2))
                with T.no_grad():
                    note(x * x)
                    with T.inference_mode():
                        note(x * x)
                    note()
                note()
            note()
            T.set_grad_enabled(True)
            note(x * 2)
            with T.inference_mode():
                note()
            note()
            T.set_grad_enabled(False)
            note()
            with T.set_grad_enabled(True):
                note(x * 2)
            note()
        note(x * 2)
        with T.no_grad():
            with T.inference_mode(False):
                note(x * 2)
            note()
            with T.inference_mode():
                T.set_grad_enabled(True)
            note()
        note()
        return seen

    agree(program)


def test_normal_mode_within_the_mode_records():
    def program(T):
        with T.inference_mode():
            a = data(T, (3,))
            with T.inference_mode(False):
                x = leaf(T, 3)
                (x * x).sum().backward()
                return kind(x * x), x.grad, kind(x.grad), said(lambda: a.add_(1)), said(lambda: a * x), kind(a * 2)

    agree(program)


@LIBRARIES
def test_decorator_with_and_without_parentheses_and_of_generators(T):
    @T.inference_mode()
    def called(x):
        return T.is_inference_mode_enabled(), kind(x * 2)

    @T.inference_mode
    def bare(x):
        """Doc."""
        return T.is_inference_mode_enabled(), kind(x * 2)

    @T.inference_mode(mode=False)
    def off():
        return T.is_inference_mode_enabled()

    @T.inference_mode()
    def steps():
        got = yield T.is_inference_mode_enabled()
        try:
            yield got, T.is_inference_mode_enabled()
        finally:
            closed.append(T.is_inference_mode_enabled())

    closed = []
    x = leaf(T, 3)
    for function in (called, bare):
        assert function(x) == (True, (False, True, False, False))
    assert (bare.__name__, bare.__doc__) == ("bare", "Doc.")
    with T.inference_mode():
        assert not off()
    generator = steps()
    assert next(generator)
    assert not T.is_inference_mode_enabled()
    assert generator.send("sent") == ("sent", True)
    generator.close()
    assert closed == [True]


def test_wrong_argument_is_refused_at_once():
    for wrong in (1, None, "on"):
        with pytest.raises(TypeError, match="inference_mode expects a bool"):
            xgrad.inference_mode(wrong)


@LIBRARIES
def test_exceptions_leave_the_modes_as_they_were(T):
    def modes():
        return T.is_inference_mode_enabled(), T.is_grad_enabled()

    @T.inference_mode()
    def fails():
        T.set_grad_enabled(True)
        raise KeyError

    for outer, expected in ((T.enable_grad(), (False, True)), (T.no_grad(), (False, False))):
        with outer:
            with pytest.raises(KeyError):
                fails()
            assert modes() == expected
    mode = T.inference_mode()
    for _ in range(2):  # used again
        with mode:
            assert modes() == (True, False)
        assert modes() == (False, True)
    x = leaf(T, 3)
    with T.inference_mode():
        with pytest.raises(RuntimeError):
            x @ data(T, (4,))
        assert modes() == (True, False)
        assert (x * 2).is_inference()
    assert (x * x).requires_grad


@LIBRARIES
def test_the_mode_belongs_to_its_thread(T):
    def body():
        seen.append((T.is_inference_mode_enabled(), T.ones(1).is_inference()))

    seen = []
    with T.inference_mode():
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
    assert seen == [(False, False)]


def test_backward_in_the_mode_leaves_inference_gradients():
    def program(T):
        x = leaf(T, 3)
        y, z = (x * x).sum(), x.exp().sum()
        with T.inference_mode():
            y.backward(retain_graph=True)
            (g,) = T.autograd.grad(z, x, create_graph=True)
            refused = said(lambda: (x * x).sum().backward())
        kinds = kind(x.grad), kind(g), refused
        return x.grad.clone(), kinds, said(lambda: y.backward())

    agree(program)
    x = leaf(xgrad, 3)
    y = (x * x).sum()
    with xgrad.inference_mode():
        y.backward(retain_graph=True)
    before = x.grad.clone()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        y.backward()
    same(x.grad, before)  # PyTorch adds before it refuses
    view = x.grad[:1]
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        (x * x).sum().backward()
    same(x.grad, before)
    same(view, before[:1])


def test_backward_in_the_mode_goes_on_on_fresh_threads():
    class Nested(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            if ctx.depth:
                with xgrad.inference_mode(False):
                    y = Nested.apply(xgrad.ones(1, requires_grad=True), ctx.depth - 1).sum()
                y.backward()
            else:
                seen.append((xgrad.is_inference_mode_enabled(), (grad * 2).is_inference()))
            return grad, None

    seen = []
    y = Nested.apply(xgrad.ones(1, requires_grad=True), 30).sum()
    with xgrad.inference_mode():
        y.backward()
    assert seen == [(True, True)]


def test_inference_tensor_as_gradient():
    def program(T):
        x = leaf(T, 3)
        (x * 2).backward(made(T))
        first = x.grad.clone(), kind(x.grad)
        x.grad = made(T)
        assigned = kind(x.grad)
        return first, assigned, said(lambda: (x * 2).sum().backward()), T.autograd.grad(x * x, x, made(T))

    agree(program)


def test_hooks_that_use_the_mode():
    def program(T):
        def hook(grad):
            with T.inference_mode():
                return grad * 3

        def unpack(t):
            with T.inference_mode():
                return t * 2

        x = leaf(T, 3)
        y = x * 2
        y.register_hook(hook)
        x.register_hook(hook)
        y.sum().backward()
        z = leaf(T, 3)
        with T.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            w = z * z
        w.sum().backward()
        return x.grad, z.grad

    agree(program)


def function(T, seen=None):
    class Product(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            if seen is not None:
                seen.append((T.is_inference_mode_enabled(), T.is_grad_enabled(), ctx.needs_input_grad))
            return x * y

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return grad * y, grad * x

    return Product.apply


def test_custom_function():
    def program(T):
        seen = []
        x = leaf(T, 3)
        with T.inference_mode():
            seen.append(kind(function(T, seen)(x, x)))
        seen.append(said(lambda: function(T)(x, made(T))))
        seen.append(function(T)(x.detach(), made(T)))
        return seen

    agree(program)


def test_custom_function_that_returns_its_input_or_a_view():
    def program(T):
        def apply(forward):
            class Custom(T.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return forward(ctx, x)

                @staticmethod
                def backward(ctx, grad):
                    return grad

            return Custom.apply

        def dirty(ctx, x):
            ctx.mark_dirty(x)
            return x.add_(1)

        functions = [lambda ctx, x: x, lambda ctx, x: x.view(-1), dirty]
        a, x = made(T), leaf(T, 3)
        outside = [said(lambda f=f: kind(apply(f)(a))) for f in functions]
        with T.inference_mode():
            return outside, [[kind(apply(f)(t)) for f in functions] for t in (a, x)]

    agree(program)


def test_mode_within_a_custom_function_keeps_the_gradient():
    """PyTorch gives an output that requires grad, and of which nothing is recorded."""

    class Double(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with xgrad.inference_mode():
                return x * 2

        @staticmethod
        def backward(ctx, grad):
            with xgrad.inference_mode():
                return grad * 2

    x = leaf(xgrad, 3)
    Double.apply(x).sum().backward()
    same(x.grad, np.full(3, 2.0))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_is_off():
    def program(T):
        fw = T.autograd.forward_ad
        seen = []

        def note(t):
            seen.append((kind(t), fw.unpack_dual(t).tangent))

        with fw.dual_level():
            x = fw.make_dual(data(T, (3,)), data(T, (3,), 1))
            with T.inference_mode():
                for t in (x, x * x, x[0], function(T)(x, x)):
                    note(t)
                with T.inference_mode(False):
                    note(x * x)
                with fw._set_fwd_grad_enabled(True):
                    note(x * x)
            note(x * x)
        with T.inference_mode():
            with fw.dual_level():
                y = fw.make_dual(data(T, (3,)), data(T, (3,), 1))
                note(y)
                note(y * y)
            seen.append(kind(T.ones(2) * 2))
        with fw.dual_level():
            note(fw.make_dual(data(T, (3,)), made(T)))
        return seen

    agree(program)


def test_data_assigned_from_and_to_inference_tensors():
    def program(T):
        def assigned(x, y):
            x.data = y
            return kind(x), said(lambda: x._version)

        normal = data(T, (3,))
        seen = [
            assigned(normal, made(T)), assigned(leaf(T, 3), made(T)), assigned(made(T), data(T, (3,))),
            assigned(made(T), made(T)), normal.add_(1),
        ]  # fmt: skip
        with T.inference_mode():
            return seen, assigned(data(T, (3,)), data(T, (3,))), assigned(leaf(T, 3), data(T, (3,)))

    agree(program)


def test_deepcopy():
    def program(T):
        outside = copy.deepcopy(made(T))
        outside.add_(1)
        with T.inference_mode():
            inside = copy.deepcopy(data(T, (3,))), copy.deepcopy(leaf(T, 3))
        return outside, kind(outside), [kind(t) for t in inside], said(lambda: inside[1]._version)

    agree(program)


def test_out_in_the_mode_may_take_tensors_that_require_grad():
    def program(T):
        x, n = leaf(T, 3), data(T, (3,))
        with T.inference_mode():
            out = T.ones(3, dtype=T.float64)
            T.add(x, x, out=out)
            T.add(x, x, out=n)
        return out, kind(out), n, kind(n), n._version

    agree(program)


def test_clone_is_the_way_out():
    def program(T):
        a, x = made(T), leaf(T, 3)
        (a.clone() * x).sum().backward()
        return x.grad, kind(a.clone()), [kind(t) for t in made(T)], a.sum().item(), a.numpy().tolist()

    agree(program)


def test_backward_of_what_was_made_in_the_mode():
    def program(T):
        with T.inference_mode():
            x = leaf(T, 3)
            y = (x * x).sum()
            inside = said(y.backward)
        return inside, said(y.backward)

    agree(program)


def test_errors_name_the_way_out():
    error = same_error(lambda T: leaf(T, 3) * made(T), "make a clone")
    assert isinstance(error, xgrad.errors.InferenceTensorError)
    assert "no_grad() instead of inference_mode()" in str(error)
    assert isinstance(outcome(lambda T: made(T).add_(1), xgrad), xgrad.errors.InferenceTensorError)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_tensors():
    def program(T):
        def sparse():
            return T.sparse_coo_tensor(T.tensor([[0, 2]]), T.tensor([1.0, 2.0], dtype=T.float64), (3,))

        normal = sparse()
        with T.inference_mode():
            s = sparse()
            kinds = [kind(t) for t in (s, s + s, s.coalesce(), s.to_dense(), s.coalesce().values(), normal * 2)]
            s.mul_(3)
            normal.mul_(3)
        written = s.to_dense()
        seen = [said(lambda: s._version), said(lambda: s.mul_(2)), said(s.zero_), said(s.requires_grad_)]
        square = data(T, (3, 3))
        with T.inference_mode():
            a = square.to_sparse()
        x = leaf(T, 3, 1)
        seen += [said(lambda: T.sparse.mm(a, x)), kind(s * 2), kind(s.detach()), kind(normal), normal._version]
        return kinds, seen, written, normal.to_dense()

    agree(program)


def test_sparse_gradients():
    def program(T):
        def loss():
            return T.nn.functional.embedding(T.tensor([0, 2]), w, sparse=True).sum()

        w = leaf(T, 4, 2)
        y = loss()
        with T.inference_mode():
            y.backward()
        grad = w.grad.to_dense()
        return grad, kind(w.grad), w.grad.is_sparse, said(lambda: loss().backward())

    agree(program)
