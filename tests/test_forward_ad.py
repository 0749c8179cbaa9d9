"""Forward mode: what carries a tangent, and what does not."""

import gc
import weakref

import pytest
import torch
import torch.autograd.forward_ad as torch_fw

import xgrad
import xgrad.autograd.forward_ad as xgrad_fw

from .oracle import array, as_torch, data, leaf, same, same_error

# torch compiles its own forward-mode rules when the first level is entered.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

FW = {xgrad: xgrad_fw, torch: torch_fw}


def tangents(T, program):
    """The tangents of what `program(dual)` returns, -1 for one without."""
    fw = FW[T]
    with fw.dual_level():
        dual = fw.make_dual(data(T, (3,)), data(T, (3,), 1))
        found = [fw.unpack_dual(out).tangent for out in program(dual)]
    return [-1 if t is None else t for t in found]


def test_detach_drops_the_tangent():
    def program(dual):
        dropped = dual * 1
        dropped.detach_()
        return [dual.detach() * dual, dual.detach(), dropped, dropped * dual, dual * dual, dual[1:].detach()]

    as_torch(lambda T: tangents(T, program))


def test_outside_of_a_level_nothing_has_a_tangent():
    def program(T):
        fw = FW[T]
        x = leaf(T, 3)
        with fw.dual_level():
            dual = fw.make_dual(x, data(T, (3,), 1))
        primal, tangent = fw.unpack_dual(dual)
        return [tangent, primal.detach()]

    as_torch(program)
    same_error(lambda T: FW[T].make_dual(data(T, (3,)), data(T, (3,))), "dual level|level")


def test_names_of_duals():
    def program(T):
        fw = FW[T]
        x = leaf(T, 3)
        with fw.dual_level():
            dual = fw.make_dual(x, data(T, (3,)))
            return [dual.grad_fn.name(), dual._base is x, fw.unpack_dual(dual).primal._base is x]

    as_torch(program)


@pytest.mark.parametrize("enabled", [True, False])
def test_tangents_can_be_switched_off(enabled):
    def program(T):
        fw = FW[T]
        with fw.dual_level():
            dual = fw.make_dual(data(T, (3,)), data(T, (3,), 1))
            with fw._set_fwd_grad_enabled(enabled):
                out = dual * dual
            return [fw.unpack_dual(out).tangent, fw.unpack_dual(dual * 2).tangent]

    as_torch(program)


def test_tangent_of_as_strided_of_a_view():
    def program(T):
        fw = FW[T]
        with fw.dual_level():
            dual = fw.make_dual(data(T, (3, 4)), data(T, (3, 4), 1))
            views = [dual.as_strided((2,), (5,), 1), dual[1:].as_strided((2,), (5,), 1)]
            views.append(dual[1:].t().as_strided((2, 2), (1, 4), 5))
            views[1].mul_(2)  # shows in the tangents of all
            return [fw.unpack_dual(v).tangent for v in [*views, dual]]

    as_torch(program)


def test_as_strided_of_a_dual_reaches_beyond_it():
    def program(T):
        fw, base = FW[T], data(T, (3, 4))
        with fw.dual_level():
            dual = fw.make_dual(base[1:], data(T, (2, 4), 1))
            view = dual.as_strided((2,), (1,), 4)
            view.mul_(2)
            return [fw.unpack_dual(view).tangent, fw.unpack_dual(dual).tangent, base]

    as_torch(program)


# -- levels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (lambda fw, x, t: fw.make_dual(x, t), "no level exists, make sure to enter_dual_level"),
        (lambda fw, x, t: fw.exit_dual_level(), "Dual level must be a positive number"),
        (lambda fw, x, t: fw.exit_dual_level(level=1), "level"),
        (lambda fw, x, t: inside(fw, lambda: fw.enter_dual_level()), "Nested forward mode AD is not supported"),
        (lambda fw, x, t: inside(fw, lambda: fw.exit_dual_level(level=1)), "was not the last one that was created"),
        (lambda fw, x, t: inside(fw, lambda: fw.make_dual(x, t, level=-1)), "no level exists"),
        (lambda fw, x, t: inside(fw, lambda: fw.make_dual(x, t, level=1)), "Invalid level given to"),
        (lambda fw, x, t: inside(fw, lambda: fw.make_dual(x.long(), t)), "Expected primal to be floating point"),
        (lambda fw, x, t: inside(fw, lambda: fw.make_dual(x, t.long())), "Expected tangent to be floating point"),
        (
            lambda fw, x, t: inside(fw, lambda: fw.make_dual(x, t[:2])),
            r"a different size than that of the original Tensor.*\[3\].*\[2\]",
        ),
        (
            lambda fw, x, t: inside(fw, lambda: fw.make_dual(fw.make_dual(x, t), t)),
            "based on a Tensor that already has a forward gradient at the same level",
        ),
        (
            lambda fw, x, t: inside(fw, lambda: fw.make_dual(x, fw.make_dual(x, t))),
            "Setting a forward grad that itself has a forward gradient at the same level",
        ),
    ],
)
def test_what_levels_and_duals_refuse(program, match):
    same_error(lambda T: program(FW[T], data(T, (3,)), data(T, (3,), 1)), match)
    for fw in FW.values():  # and no level is left behind
        with fw.dual_level() as level:
            assert level == 0


def inside(fw, call):
    with fw.dual_level():
        return call()


def test_what_unpacking_gives():
    def program(T):
        fw, x, t = FW[T], leaf(T, 3), data(T, (3,), 1)
        found = [fw.unpack_dual(x)[0] is x, fw.unpack_dual(x, level=0).tangent]
        with fw.dual_level():
            plain, dual = fw.unpack_dual(x), fw.make_dual(x, t)
            result = dual * 2
            primal, tangent = fw.unpack_dual(result)
            found += [plain.primal is x, plain.primal._is_view(), plain.tangent, fw.unpack_dual(x, level=1).tangent]
            found += [fw.unpack_dual(dual).tangent is t, primal is result, primal._base is result]
            found += [primal.grad_fn.name().rsplit("::")[-1], tangent, fw.unpack_dual(primal).tangent]
            found += [fw.unpack_dual(primal[0]).tangent, fw.unpack_dual(primal * 1).tangent]
            primal.data.mul_(3)
            found += [result, T.autograd.grad(primal.sum(), x)]
        return found

    as_torch(program)


@pytest.mark.parametrize("how", ["same", "transposed", "row", "dtype"])
def test_tangent_is_taken_as_it_is_where_it_is_laid_out_like_its_primal(how):
    def program(T):
        fw, base = FW[T], data(T, (3, 3), 1)
        tangent = {"same": base, "transposed": base.t(), "row": data(T, (2, 3, 3), 1)[1], "dtype": base.float()}[how]
        with fw.dual_level():
            dual = fw.make_dual(data(T, (3, 3)), tangent)
            given = fw.unpack_dual(dual).tangent
            dual.mul_(2)
            return given is tangent, given, tangent, fw.unpack_dual(dual[0]).tangent

    as_torch(program, rtol=1e-6)


def test_end_of_a_level_ends_its_tangents():
    """They are gone, and not only unseen."""
    gc.disable()
    try:
        with xgrad_fw.dual_level():
            kept = [xgrad_fw.make_dual(data(xgrad, (3,)), data(xgrad, (3,), 1))]
            kept += [kept[0] * 2, kept[0][1:]]
            references = [weakref.ref(xgrad_fw.unpack_dual(k).tangent) for k in kept]
        assert [r() for r in references] == [None] * 3
        with xgrad_fw.dual_level():
            assert [xgrad_fw.unpack_dual(k).tangent for k in kept] == [None] * 3
    finally:
        gc.enable()


def test_switch_is_a_function_too():
    def program(T):
        fw, found = FW[T], []
        fw._set_fwd_grad_enabled(False)
        found.append(fw._is_fwd_grad_enabled())
        with fw.dual_level():
            dual = fw.make_dual(data(T, (3,)), data(T, (3,), 1))
            found += [fw.unpack_dual(dual).tangent, dual * 2]
            fw._set_fwd_grad_enabled(True)
            found += [fw._is_fwd_grad_enabled(), fw.unpack_dual(dual).tangent, fw.unpack_dual(dual * 2).tangent]
        return found

    as_torch(program)


# -- views and writes --------------------------------------------------------------------------------------------------


def dual(T, *shape, seed=0):
    return FW[T].make_dual(data(T, shape, seed), data(T, shape, seed + 1))


def view_gets(T, base):
    view, other, turned = base[0], base[1], base.t()
    view.copy_(dual(T, 3, seed=4))
    return view, other, turned, base


def base_gets(T, base):
    view, nested = base[0], base.t()[1:]
    base.mul_(dual(T, 2, 3, seed=4))
    return view, nested, nested[0], view * 2, base


def base_gets_and_the_view_is_written(T, base):
    view, other = base[0], base.view(3, 2)
    base.copy_(dual(T, 2, 3, seed=4))
    view.mul_(data(T, (3,), 7))
    return view, other, base


def base_moves_before_the_view_is_asked(T, base):
    view = base[0]
    base.mul_(dual(T, 2, 3, seed=4))
    base.t_()
    base.mul_(2)
    return view, base


def base_moves_before_the_view_gets(T, base):
    view = base[0]
    base.t_()
    view.copy_(dual(T, 3, seed=4))
    return view, base


def assignments(T, base):
    base[1] = dual(T, 3, seed=4)
    base[:, 0] = 2.0
    base[base > 0.5] = 1.0
    return base[0], base


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "program",
    [
        view_gets, base_gets, base_gets_and_the_view_is_written, base_moves_before_the_view_is_asked,
        base_moves_before_the_view_gets, assignments,
    ],
)  # fmt: skip
@pytest.mark.parametrize("recorded", [False, True])
def test_tangents_of_views_and_bases_follow_writes(program, recorded, path):
    def run(T):
        fw, x = FW[T], leaf(T, 2, 3)
        with fw.dual_level():
            outs = program(T, x * 1 if recorded else data(T, (2, 3)))
            tangents = [fw.unpack_dual(out).tangent for out in outs]
            if recorded:  # what does not require grad has the gradient zero
                total = tangents[-1].sum() + 0 * x.sum()
                tangents.append(T.autograd.grad(total, x))
            return [-1 if t is None else t for t in tangents]

    as_torch(run)


def test_tangent_of_a_view_that_was_first_read_without_recording():
    """torch refuses the write, for it made the tangent's view under no_grad."""
    x = leaf(xgrad, 2, 3)
    with xgrad_fw.dual_level():
        base = x * 1
        view = base[0]
        base.mul_(dual(xgrad, 2, 3, seed=4))
        with xgrad.no_grad():
            assert xgrad_fw.unpack_dual(view).tangent is not None
        view.mul_(3)
        tangent = xgrad_fw.unpack_dual(base).tangent
        expected = data(xgrad, (2, 3), 5) * xgrad.tensor([[3.0], [1.0]], dtype=xgrad.float64)  # of base * 3, 1
        (gradient,) = xgrad.autograd.grad(tangent.sum(), x)
        same(gradient, torch.tensor(array(expected)))


@pytest.mark.parametrize("which", ["argument", "out"])
def test_out_is_refused(which):
    def program(T):
        with FW[T].dual_level():
            a, b = dual(T, 3), data(T, (3,))
            T.mul(a if which == "argument" else b, 2, out=b if which == "argument" else a)

    same_error(program, "Trying to use forward AD with mul_out that does not support it because it is an out= function")


def test_saved_tensors_hooks_carry_no_tangents_and_lose_none():
    def program(T):
        fw = FW[T]
        with fw.dual_level():
            with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                x = fw.make_dual(leaf(T, 3), data(T, (3,), 1))
                y = (x * x).exp()
            (g,) = T.autograd.grad(y.sum(), x)
            return fw.unpack_dual(g)

    as_torch(program)


# -- autograd.Function -------------------------------------------------------------------------------------------------


def custom(T, forward, jvp):
    methods = {"forward": staticmethod(forward), "jvp": staticmethod(jvp)}
    return type("Mine", (T.autograd.Function,), methods)


def marked(ctx, x):
    ctx.mark_non_differentiable(y := x * 2)
    return x * 1, y


def dirty(ctx, x):
    ctx.mark_dirty(x)
    return x.mul_(3)


@pytest.mark.parametrize(
    ("forward", "jvp", "match"),
    [
        (lambda ctx, x: x * 1, lambda ctx, t: (t, t), r"invalid number of forward gradients \(expected 1 but got 2\)"),
        (lambda ctx, x: (x * 1, "text"), lambda ctx, t: t, r"invalid number of .* \(expected 2 but got 1\)"),
        (marked, lambda ctx, t: (t, t), "gradient at position 1, but +the corresponding forward output is not a diff"),
        (lambda ctx, x: (x * 1, x.argsort()), lambda ctx, t: (t, t), "gradient at position 1"),
        (lambda ctx, x: x * 1, lambda ctx, t: 1.0, r"expected Variable or None \(got float\)"),
        (lambda ctx, x: x * 1, lambda ctx, t: [t], r"expected Variable or None \(got list\)"),
        (lambda ctx, x: x * 1, lambda ctx, t: t[:2], "a different size than that of the original Tensor"),
        (lambda ctx, x: x * 1, lambda ctx, t: t.long(), "to be floating point or complex"),
        (lambda ctx, x: x, lambda ctx, t: t, "the jvp is not returning a view"),
        (lambda ctx, x: x[:2], lambda ctx, t: t[:2] * 1, "the jvp is not returning a view"),
        (lambda ctx, x: x[:2], lambda ctx, t: (t * 1)[:2], "not returning a view of the given grad input"),
        (dirty, lambda ctx, t: t * 3, "is not modifying the forward mode gradients inplace"),
        (dirty, lambda ctx, t: (t.mul_(3), t.clone().mul_(1))[1], "is not returning the forward mode gradients as-is"),
        (lambda ctx, x: x * 1, None, "You must implement the jvp function"),
    ],
)
def test_what_a_jvp_must_not_return(forward, jvp, match):
    def program(T):
        with FW[T].dual_level():
            custom(T, forward, T.autograd.Function.jvp if jvp is None else jvp).apply(dual(T, 3))

    same_error(program, match)


def test_view_of_another_base_is_refused():
    def program(T):
        other = data(T, (2, 3), 8)
        with FW[T].dual_level():
            custom(T, lambda ctx, x: x[:2], lambda ctx, t: other[0][:2]).apply(dual(T, 2, 3)[0])

    same_error(program, "not returning a view of the same base as the given grad input")


def test_what_a_jvp_is_given():
    def program(T, materialize):
        def forward(ctx, x, w, n, k):
            ctx.set_materialize_grads(materialize)
            seen.append((fw._is_fwd_grad_enabled(), fw.unpack_dual(x).tangent, T.is_grad_enabled()))
            return x * w, "text"

        def jvp(ctx, *tangents):
            seen.append((fw._is_fwd_grad_enabled(), T.is_grad_enabled(), *tangents))
            return tangents[0], None

        fw, seen = FW[T], []
        with fw.dual_level():
            out, _ = custom(T, forward, jvp).apply(dual(T, 3), data(T, (3,)), T.tensor([1]), 2)
            return seen, fw.unpack_dual(out).tangent

    as_torch(lambda T: program(T, True))
    as_torch(lambda T: program(T, False))


def test_tangents_through_views_and_writes_of_a_function():
    def program(T):
        fw, found = FW[T], []

        def scaled(ctx, x, w):
            ctx.mark_dirty(x)
            return x.mul_(w)

        with fw.dual_level():
            x, base, plain = dual(T, 2, 3), data(T, (2, 3), 3), data(T, (2, 3), 5)
            view = custom(T, lambda ctx, x: x[0], lambda ctx, t: t[0]).apply(x)
            view_tangent = fw.unpack_dual(view).tangent
            same_view = custom(T, lambda ctx, x: x, lambda ctx, t: t.view_as(t)).apply(x)
            custom(T, dirty, lambda ctx, t: t.mul_(3)).apply(x)
            custom(T, scaled, lambda ctx, a, b: b * 2).apply(base[0], dual(T, 3, seed=6))
            part = custom(T, lambda ctx, x, w: x[1], lambda ctx, a, b: b * 2).apply(plain, dual(T, 3, seed=6))
            outs = [view, same_view, x, base, part, plain]
            return view_tangent, found, [fw.unpack_dual(out).tangent for out in outs]

    as_torch(program)


def test_forward_over_reverse_and_reverse_over_forward_through_a_function():
    def program(T):
        fw = FW[T]

        class Exp(T.autograd.Function):
            @staticmethod
            def forward(x):
                return x.exp()

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(output)
                ctx.save_for_forward(output)

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.saved_tensors[0]

            @staticmethod
            def jvp(ctx, t):
                return t * ctx.saved_tensors[0]

        x, t = leaf(T, 3), data(T, (3,), 1)
        with fw.dual_level():
            y = Exp.apply(fw.make_dual(x, t))
            (g,) = T.autograd.grad((y * y).sum(), x, retain_graph=True)
            tangent = fw.unpack_dual(y).tangent
            return fw.unpack_dual(g), T.autograd.grad((tangent * tangent).sum(), x)

    as_torch(program)


def test_the_tangent_depends_on_a_leaf_that_was_not_used_before():
    """What the rule keeps of a leaf leads to that leaf, though nobody else holds its accumulator yet."""

    def program(T):
        fw = FW[T]
        x, w = leaf(T, 3), leaf(T, 3, seed=5)
        with fw.dual_level():
            tangent = fw.unpack_dual(w * fw.make_dual(x, data(T, (3,), 1)) ** 3).tangent
            return T.autograd.grad(tangent.sum(), [x, w])

    as_torch(program)


# -- when the caller's tangent is taken as it is -----------------------------------------------------------------------


def _complex(T):
    return T.arange(1.0, 4.0) * (1 + 2j)


LAYOUTS = {
    "rows": lambda T: T.arange(9.0).reshape(3, 3),
    "columns": lambda T: T.arange(9.0).reshape(3, 3).t(),
    "larger storage": lambda T: T.arange(12.0).reshape(4, 3)[:3],
    "offset": lambda T: T.arange(12.0).reshape(4, 3)[1:],
    "steps": lambda T: T.arange(18.0).reshape(3, 6)[:, ::2],
    "vector": lambda T: T.arange(3.0),
    "every second": lambda T: T.arange(6.0)[::2],
    "one row": lambda T: T.arange(6.0).reshape(2, 3)[:1],
    "one row, odd stride": lambda T: T.arange(6.0).as_strided((1, 3), (5, 1)),
    "one row, own storage": lambda T: T.arange(3.0).unsqueeze(0),
    "scalar": lambda T: T.tensor(2.0),
    "an element": lambda T: T.arange(3.0)[1],
    "complex": _complex,
    "conjugate": lambda T: _complex(T).conj(),
    "imaginary": lambda T: _complex(T).imag,
    "negative": lambda T: _complex(T).conj().imag,
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("primal", LAYOUTS)
def test_make_dual_shares_the_tangent_that_is_laid_out_as_the_primal_and_copies_any_other(primal):
    def program(T):
        fw, found = T.autograd.forward_ad, []
        for tangent in LAYOUTS:
            p, t = LAYOUTS[primal](T), LAYOUTS[tangent](T)
            if p.shape != t.shape or p.is_complex() != t.is_complex():
                continue
            with fw.dual_level():
                dual = fw.make_dual(p, t)
                its = fw.unpack_dual(dual).tangent
                found.append(
                    (tangent, its is t, its.is_conj(), its.is_neg(), tuple(its.stride()), its.storage_offset())
                )
                t.mul_(3)
                found.append(its.clone())
                its.add_(1)
                dual.mul_(2)
                found += [t, fw.unpack_dual(dual).tangent, p]
        return found

    as_torch(program)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("primal", ["float32", "float16", "complex64"])
@pytest.mark.parametrize("tangent", ["float32", "float16", "complex64"])
def test_dtype_of_a_tangent_that_is_copied(primal, tangent):
    def program(T):
        fw = T.autograd.forward_ad
        p, t = T.ones(4, dtype=getattr(T, primal)), T.ones(4, dtype=getattr(T, tangent))
        with fw.dual_level():
            return [fw.unpack_dual(fw.make_dual(a, b)).tangent for a, b in [(p, t), (p[::2], t[:2]), (p[:2], t[::2])]]

    if primal != "complex64" and tangent == "complex64":
        ours = program(xgrad)  # torch drops the imaginary part of a copy
        assert [t.dtype for t in ours] == [xgrad.complex64] * 3
    else:
        as_torch(program)


def test_a_tangent_that_is_copied_keeps_its_history_where_it_is_recorded():
    def program(T):
        fw, found = T.autograd.forward_ad, []
        for mode in (T.enable_grad, T.no_grad):
            p, t = leaf(T, 3, 3), leaf(T, 3, 3, seed=1)
            with fw.dual_level(), mode():
                tangent = fw.unpack_dual(fw.make_dual(p, t.t())).tangent
            found.append(tangent.requires_grad)
        fw_grad = T.autograd.grad
        with fw.dual_level():
            tangent = fw.unpack_dual(fw.make_dual(p, t.t()) ** 2).tangent
            return found, fw_grad((tangent * tangent).sum(), [p, t])

    as_torch(program)


@pytest.mark.parametrize("dims", [(0, None), (None, 0)])
def test_a_tangent_of_another_batch_than_its_primal_is_copied(dims):
    import xgrad.autograd.forward_ad as fw

    def derivative(p, t):
        with fw.dual_level():
            dual = fw.make_dual(p, t)
            if dims[0] is None:
                t.mul_(0)
            else:
                dual.mul_(p)
            return fw.unpack_dual(dual).tangent.clone()

    p = xgrad.arange(1.0, 7.0).reshape(2, 3)
    t = xgrad.ones(2, 3) * 2
    found = xgrad.func.vmap(derivative, dims)(p if dims[0] == 0 else p[0], t if dims[1] == 0 else t[0])
    same(found, xgrad.arange(1.0, 7.0).reshape(2, 3) * 2 if dims[0] == 0 else xgrad.ones(2, 3) * 2)


def test_a_tangent_of_jvp_that_is_laid_out_as_the_output_is_shared_and_any_other_copied():
    def program(T):
        fw, found = FW[T], []
        for made in (lambda t: t, lambda t: T.ones(1).expand(2, 3), lambda t: T.arange(12.0)[::2].view(2, 3)):

            class Clone(T.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x.clone()

                @staticmethod
                def jvp(ctx, t, made=made):
                    return made(t)

            with fw.dual_level():
                dual = fw.make_dual(T.zeros(2, 3), T.arange(6.0).reshape(2, 3))
                out = Clone.apply(dual)
                out.mul_(2)
                out[0].mul_(3)
                found += [fw.unpack_dual(x).tangent for x in (out, dual, out.as_strided((3,), (2,), 1))]
        return found

    as_torch(program)
