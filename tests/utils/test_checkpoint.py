"""Checkpoints: the gradients of the function itself, both variants, nested, random, checked, and refused."""

import contextlib
import threading
import warnings

import numpy as np
import pytest
import torch
import torch.utils.checkpoint

import xgrad
from xgrad.config import state

from ..oracle import as_torch, data, leaf, outcome, same, same_error

VARIANTS = (False, True)


def checkpointed(T, *args, **options):
    options.setdefault("use_reentrant", False)
    return T.utils.checkpoint.checkpoint(*args, **options)


def gradients(T, y, *leaves):
    y.sum().backward()
    return y, [x.grad for x in leaves]


def block(x, w):
    return (x * w).exp().sin() * x


# -- the same gradients ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", VARIANTS)
def test_gradients_are_those_of_the_function(reentrant):
    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)
        return gradients(T, checkpointed(T, block, x, w, use_reentrant=reentrant), x, w)

    as_torch(program)
    x, w = leaf(xgrad, 2, 3), leaf(xgrad, 3, seed=1)
    same(program(xgrad), gradients(xgrad, block(x, w), x, w))


@pytest.mark.parametrize("reentrant", VARIANTS)
def test_several_outputs_and_arguments_that_are_no_tensors(reentrant):
    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)

        def function(x, power, w, name):
            return x**power, name, (x * w).cos(), x.detach()

        a, name, b, c = checkpointed(T, function, x, 3, w, "name", use_reentrant=reentrant)
        return name, c.requires_grad and not reentrant, gradients(T, a * 2 + b, x, w)

    as_torch(program)


def test_tensors_in_containers_keywords_and_closures():
    def program(T):
        x, w, v, u = (leaf(T, 3, seed=i) for i in range(4))

        def function(pair, *, scale, more):
            return {"out": (pair[0] * pair[1] * scale).exp() * more["v"] * u}

        y = checkpointed(T, function, (x, w), scale=v, more={"v": v * 2})["out"]
        return gradients(T, y, x, w, v, u)

    as_torch(program)


@pytest.mark.parametrize("variants", [(a, b) for a in VARIANTS for b in VARIANTS])
def test_nested(variants):
    outer, inner = variants

    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)

        def two(x, w):
            y = checkpointed(T, block, x.tanh(), w, use_reentrant=inner)
            return checkpointed(T, block, y, w, use_reentrant=inner) + x

        return gradients(T, checkpointed(T, two, x, w, use_reentrant=outer).cos(), x, w)

    as_torch(program)


def test_recomputations_of_nested_checkpoints_are_as_many_as_in_torch():
    def program(T):
        counts = [0, 0, 0]

        def counted(level, function):
            def run(x):
                counts[level] += 1
                return function(x)

            return run

        inner = counted(0, lambda x: x.sin().exp().sin())
        middle = counted(1, lambda x: checkpointed(T, inner, x.cos()).cos())
        outer = counted(2, lambda x: checkpointed(T, middle, checkpointed(T, middle, x * x)))
        x = leaf(T, 3)
        y = checkpointed(T, outer, x)
        return gradients(T, y, x), counts

    as_torch(program)


@pytest.mark.parametrize("early_stop", VARIANTS)
def test_recomputation_stops_when_it_has_what_is_needed(early_stop):
    def program(T):
        seen = []

        def function(x):
            y = x.exp()
            seen.append("exp")
            y = y + 1  # saves nothing
            seen.append("add")
            return y

        x = leaf(T, 3)
        gradients(T, checkpointed(T, function, x, early_stop=early_stop), x)
        with T.utils.checkpoint.set_checkpoint_early_stop(not early_stop):  # it overrides the argument
            y = checkpointed(T, function, x, early_stop=early_stop)
        return gradients(T, y, x), seen

    as_torch(program)


def test_stopping_early_passes_the_functions_own_except_clauses():
    def function(x):
        try:
            return x.exp() * 1
        except Exception:
            return x.sin().sin().sin()

    x = leaf(xgrad, 3)
    y = checkpointed(xgrad, function, x)
    y.sum().backward()
    same(x.grad, x.detach().exp())


def test_without_grad_mode_it_is_a_call():
    def program(T):
        x = leaf(T, 3)
        with T.no_grad():
            return [checkpointed(T, lambda x: x.exp(), x, use_reentrant=v).requires_grad for v in VARIANTS]

    as_torch(program)


def test_backward_twice_recomputes_twice():
    def program(T):
        calls = []

        def function(x):
            calls.append(1)
            return x.sin().exp()

        x = leaf(T, 3)
        y = checkpointed(T, function, x).sum()
        y.backward(retain_graph=True)
        first = x.grad.clone()
        y.backward()
        return first, x.grad, len(calls)

    as_torch(program)


@pytest.mark.exhaustive
def test_second_derivatives():
    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)
        y = checkpointed(T, lambda x, w: checkpointed(T, block, x, w).exp(), x, w)
        first = T.autograd.grad(y.sum(), (x, w), create_graph=True)
        second = T.autograd.grad(sum((g * g).sum() for g in first), (x, w), create_graph=True)
        return first, second, T.autograd.grad(second[0].sum(), w)

    as_torch(program)


def test_grad_and_inputs_work_without_reentrance():
    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        y = checkpointed(T, block, x, w).sum()
        (g,) = T.autograd.grad(y, x, retain_graph=True)
        y.backward(inputs=[w])
        return g, x.grad, w.grad

    as_torch(program)


def test_backward_inside_the_function():
    def program(T):
        def function(x):
            y = x.sin()
            z = y.cos()
            (g,) = T.autograd.grad(z.sum(), x, retain_graph=True)
            return g * x + z

        results = []
        for early_stop in VARIANTS:
            x = leaf(T, 3)
            results.append(gradients(T, checkpointed(T, function, x, early_stop=early_stop), x))
        return results

    as_torch(program)


def test_backward_inside_the_function_that_frees_its_graph():
    def program(T):
        def function(x):
            (g,) = T.autograd.grad(x.sin().cos().sum(), x)
            return x.cos() * g

        x = leaf(T, 3)
        return gradients(T, checkpointed(T, function, x), x)

    as_torch(program)


def test_views_and_writes_inside_the_function(path):
    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)

        def function(x, w):
            y = x * 1
            y[0].mul_(w)
            y.t()[1].exp_()
            return y * y

        return gradients(T, checkpointed(T, function, x, w), x, w)

    as_torch(program)


def test_write_over_what_was_saved_before_gives_the_right_gradient():
    """PyTorch recomputes into memory that the write changes, and gives another gradient without a word."""

    def function(x):
        x = x * 1
        y = x.sin()
        x.add_(1)
        return y * x

    x = leaf(xgrad, 3)
    _, (ours,) = gradients(xgrad, checkpointed(xgrad, function, x), x)
    v = x.detach()
    same(ours, v.cos() * (v + 1) + v.sin())


def test_hooks_in_the_function_and_on_its_result_run_once():
    def program(T):
        log = []
        x = leaf(T, 3)

        def function(x):
            y = x.sin()
            y.register_hook(lambda g: log.append("inner"))
            return y.exp()

        y = checkpointed(T, function, x)
        y.register_hook(lambda g: log.append("outer"))
        return gradients(T, y, x), log

    as_torch(program)


def test_custom_function_inside():
    def program(T):
        class Cube(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x, x * x)
                return x * x * x

            @staticmethod
            def backward(ctx, grad):
                _, square = ctx.saved_tensors
                return grad * 3 * square

        x = leaf(T, 3)
        return gradients(T, checkpointed(T, lambda x: Cube.apply(x.sin()).exp(), x), x)

    as_torch(program)


def test_under_other_hooks_the_inputs_are_packed_by_them():
    def program(T):
        packed = []
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        with T.autograd.graph.saved_tensors_hooks(lambda t: packed.append(tuple(t.shape)) or t, lambda t: t):
            y = checkpointed(T, block, x, w)
        return gradients(T, y, x, w), packed

    as_torch(program)


def test_saved_value_is_recomputed_when_it_is_asked_for():
    def program(T):
        calls = []
        y = checkpointed(T, lambda x: calls.append(1) or x.sin().exp(), leaf(T, 3))
        return y.grad_fn._saved_result, y.grad_fn._saved_result, len(calls)

    as_torch(program)


def test_sequential():
    def program(T):
        results = []
        for variant in VARIANTS:
            calls = []
            x = leaf(T, 3)
            functions = [
                lambda x, i=i, calls=calls: calls.append(i) or (x.sin() if i % 2 else x.exp()) for i in range(5)
            ]
            y = T.utils.checkpoint.checkpoint_sequential(functions, 2, x, use_reentrant=variant)
            results.append((gradients(T, y, x), calls))
        return results

    as_torch(program)


def test_exec_group_shares_a_recomputation():
    def program(T):
        calls = []

        def function(x):
            calls.append(1)
            return x.sin().exp(), x.cos().exp()

        x = leaf(T, 3)
        a, b = checkpointed(T, function, x, early_stop=False)
        with T.utils.checkpoint.GraphExecGroup():
            a.sum().backward(retain_graph=True)
            b.sum().backward()
        return x.grad, len(calls)

    as_torch(program)


# -- random numbers ----------------------------------------------------------------------------------------------------


def noisy(x, generator=None):
    return (x * xgrad.rand(3, generator=generator, dtype=xgrad.float64)).exp() * xgrad.rand(3, dtype=xgrad.float64)


@pytest.mark.parametrize("reentrant", VARIANTS)
def test_the_same_random_numbers_are_drawn_again(reentrant):
    def run(wrap):
        xgrad.manual_seed(5)
        x = leaf(xgrad, 3)
        y = wrap(x)
        between = xgrad.rand(2)
        y.sum().backward()
        return y, x.grad, between, xgrad.rand(2)  # backward draws nothing of its own

    same(run(lambda x: checkpointed(xgrad, noisy, x, use_reentrant=reentrant)), run(noisy))


@pytest.mark.parametrize("reentrant", VARIANTS)
def test_other_generators_are_replayed_too(reentrant):
    def run(wrap):
        xgrad.manual_seed(5)
        generator = xgrad.Generator().manual_seed(6)
        x = leaf(xgrad, 3)
        y = wrap(lambda x: noisy(x, generator), x)
        y.sum().backward()
        return x.grad, xgrad.rand(2, generator=generator)

    same(run(lambda f, x: checkpointed(xgrad, f, x, use_reentrant=reentrant)), run(lambda f, x: f(x)))


def test_seeding_inside_the_function_stays_inside_when_it_is_recomputed():
    def function(x):
        first = x * xgrad.rand(3, dtype=xgrad.float64)
        xgrad.manual_seed(1)
        return first.exp() * xgrad.rand(3, dtype=xgrad.float64)

    def run(wrap):
        xgrad.manual_seed(5)
        x = leaf(xgrad, 3)
        y = wrap(x)
        state = xgrad.get_rng_state()
        y.sum().backward()
        return x.grad, bool((xgrad.get_rng_state() == state).all())

    same(run(lambda x: checkpointed(xgrad, function, x)), run(function))


def test_random_numbers_in_nested_checkpoints():
    def run(inner, outer):
        xgrad.manual_seed(5)
        x = leaf(xgrad, 3)
        y = outer(lambda x: inner(noisy, x * xgrad.rand(3, dtype=xgrad.float64)) + noisy(x), x)
        y = y + outer(lambda x: inner(noisy, x).exp() * noisy(x), x)  # the inner one draws first
        y.sum().backward()
        return y, x.grad

    def wrap(f, x):
        return checkpointed(xgrad, f, x)

    same(run(wrap, wrap), run(lambda f, x: f(x), lambda f, x: f(x)))


def test_random_numbers_of_a_key_that_is_used():
    import jax

    def run(wrap):
        x = leaf(xgrad, 3)
        with xgrad.random.use_key(jax.random.key(3)):
            y = wrap(x)
        with xgrad.random.use_key(jax.random.key(4)):
            y.sum().backward()
        return x.grad

    same(run(lambda x: checkpointed(xgrad, noisy, x)), run(noisy))


def test_another_thread_may_draw_while_backward_recomputes():
    xgrad.manual_seed(5)
    x = leaf(xgrad, 3)
    drawn = []

    def function(x):
        thread = threading.Thread(target=lambda: drawn.append(xgrad.rand(1)))
        thread.start()
        thread.join()
        return noisy(x)

    y = checkpointed(xgrad, function, x, preserve_rng_state=True)
    y.sum().backward()
    xgrad.manual_seed(5)
    xgrad.rand(1)
    x.grad, ours = None, x.grad
    noisy(x).sum().backward()
    same(ours, x.grad)


def test_random_numbers_that_are_not_preserved():
    xgrad.manual_seed(5)
    x = leaf(xgrad, 3)
    y = checkpointed(xgrad, noisy, x, preserve_rng_state=False)
    y.sum().backward()
    assert not np.allclose((x.detach() * x.grad).numpy(), 0)
    xgrad.manual_seed(5)
    x.grad, ours = None, x.grad
    noisy(x).sum().backward()
    assert not np.allclose(ours.numpy(), x.grad.numpy())


# -- what is refused ---------------------------------------------------------------------------------------------------


def changing(first, second, **options):
    """A function that is another one when it is recomputed."""

    def program(T):
        functions = iter((first, second))
        x = leaf(T, 3)
        gradients(T, checkpointed(T, lambda x: next(functions)(T, x), x, **options), x)

    return program


CHANGES = [
    (changing(lambda T, x: x.sin().exp(), lambda T, x: x.sin()), "different number of tensors was saved"),
    (changing(lambda T, x: x.sin().exp(), lambda T, x: x.sin()), r"forward: 2\nNumber .* recomputation: 1"),
    (
        changing(lambda T, x: x.sin(), lambda T, x: x.sin().exp(), early_stop=False),
        "trying to save more tensors during recomputation than during the original forward pass",
    ),
    (
        changing(lambda T, x: x.sin().sin(), lambda T, x: (x * data(T, (2, 3))).sin()),
        r"Recomputed values for the following tensors have different metadata than during the forward pass"
        r"(.|\n)*tensor at position 1:\nsaved metadata: {.*shape(.|\n)*recomputed metadata",
    ),
]


@pytest.mark.parametrize(("program", "text"), CHANGES)
def test_recomputation_that_differs_is_an_error(program, text):
    error = same_error(program, text)
    assert isinstance(error, xgrad.utils.checkpoint.CheckpointError)


def test_without_the_determinism_check_shapes_may_differ():
    program = changing(
        lambda T, x: x.exp(), lambda T, x: (x * data(T, (2, 3)))[0].exp(), determinism_check="none", early_stop=False
    )
    assert isinstance(outcome(program, xgrad), Exception) == isinstance(outcome(program, torch), Exception)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (lambda T: checkpointed(T, block, 1, 2, determinism_check="no"), "determinism_check should be one of"),
        (lambda T: checkpointed(T, block, use_reentrant=True, a=1, b=2), "Unexpected keyword arguments: a,b"),
        (lambda T: checkpointed(T, block, use_reentrant=True, debug=True), "only supported when use_reentrant=False"),
        (
            lambda T: checkpointed(T, block, debug=True, context_fn=lambda: (1, 2)),
            "debug=True is incompatible with non-default context_fn",
        ),
        (
            lambda T: T.utils.checkpoint.checkpoint_sequential([T.sin], 1, 1, use_reentrant=False, a=1),
            "Unexpected keyword arguments: a",
        ),
        (lambda T: T.utils.checkpoint.detach_variable([]), "Only tuple of tensors is supported"),
        (
            lambda T: [
                T.autograd.grad(checkpointed(T, lambda x: x.sin(), x, use_reentrant=True).sum(), x)
                for x in [leaf(T, 3)]
            ],
            r"incompatible with .grad\(\) or passing an `inputs` parameter to .backward\(\)",
        ),
        (
            lambda T: checkpointed(T, lambda x: data(T, (3,)), leaf(T, 3), use_reentrant=True).sum().backward(),
            r"none of output has requires_grad=True",
        ),
    ],
)
def test_refused(program, text):
    same_error(program, text)


def test_input_changed_in_place_after_it_was_saved():
    def program(T):
        h = leaf(T, 3) * 1
        y = checkpointed(T, lambda h: h.sin().exp(), h)
        h.add_(1)
        y.sum().backward()

    same_error(program, "modified by an inplace operation")


def test_input_changed_in_place_by_the_function():
    def program(T):
        checkpointed(T, lambda h: h.mul_(2).sin(), leaf(T, 3) * 1).sum().backward()

    same_error(program, "modified by an inplace operation")


def test_graph_that_was_freed():
    def program(T):
        x = leaf(T, 3)
        y = checkpointed(T, lambda x: x.sin().exp(), x).sum()
        y.backward()
        y.backward()

    same_error(program, "backward through the graph a second time")


def test_saved_tensors_read_twice_in_one_backward():
    def program(T):
        class Twice(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                ctx.saved_tensors
                return grad * ctx.saved_tensors[0]

        checkpointed(T, lambda x: Twice.apply(x.sin()), leaf(T, 3)).sum().backward()

    same_error(program, "Unpack is being triggered for a tensor that was already unpacked once")


def test_exec_groups_do_not_nest():
    def program(T):
        with T.utils.checkpoint.GraphExecGroup(), T.utils.checkpoint.GraphExecGroup():
            pass

    same_error(program, "GraphExecGroup contexts cannot be nested")
    assert xgrad.utils.checkpoint.GraphExecGroup._get_current_group() is None


def test_forward_context_must_not_swallow_errors():
    def program(T):
        contexts = contextlib.suppress(ZeroDivisionError), contextlib.nullcontext()
        checkpointed(T, lambda x: 1 / 0, leaf(T, 3), context_fn=lambda: contexts)

    same_error(program, "suppressed an exception raised during the checkpointed forward")


def test_contexts_are_entered_around_the_run_and_the_recomputation():
    def program(T):
        log = []

        @contextlib.contextmanager
        def noted(name):
            log.append(name)
            yield
            log.append(f"end of {name}")

        x = leaf(T, 3)
        y = checkpointed(
            T, lambda x: log.append("f") or x.sin(), x, early_stop=False, context_fn=lambda: (noted("a"), noted("b"))
        )
        return gradients(T, y, x), log

    as_torch(program)


def test_without_use_reentrant_there_is_a_warning():
    def program(T):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x = leaf(T, 3)
            result = gradients(T, T.utils.checkpoint.checkpoint(lambda x: x.exp(), x), x)
            T.utils.checkpoint.checkpoint_sequential([T.exp, T.sin], 2, x)
        return result, [
            "use_reentrant parameter should be passed explicitly" in str(w.message)
            and (w.filename == __file__ or T is torch)
            for w in caught
        ]

    as_torch(program)


def test_inputs_that_require_no_grad_are_warned_about_where_they_get_none():
    x = data(xgrad, (3,))
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True. Gradients will be None"):
        y = checkpointed(xgrad, lambda x: x.sin(), x, use_reentrant=True)
    assert not y.requires_grad
    w = leaf(xgrad, 3)
    y = checkpointed(
        xgrad, lambda x: (x * w).exp(), x
    )  # the other variant has gradients of what the function closes over
    y.sum().backward()
    same(w.grad, x * (x * w.detach()).exp())


# -- after an error ----------------------------------------------------------------------------------------------------


def modes():
    names = ("grad_enabled", "saved_hooks", "tracking", "generator", "random_log", "random_again", "graph_task")
    return [getattr(state, name) for name in names]


@pytest.mark.parametrize("reentrant", VARIANTS)
@pytest.mark.parametrize("when", [0, 1])
def test_an_error_in_the_function_leaves_everything_as_it_was(reentrant, when):
    runs = iter(range(9))
    x = leaf(xgrad, 3)

    def function(x):
        y = noisy(x)
        if next(runs) == when:
            raise ZeroDivisionError
        return y * 2

    xgrad.manual_seed(1)
    before = modes()
    y = outcome(lambda T: checkpointed(T, function, x, use_reentrant=reentrant, early_stop=False), xgrad)
    if when:
        with pytest.raises(ZeroDivisionError):
            y.sum().backward(retain_graph=True)
    else:
        assert isinstance(y, ZeroDivisionError)
    assert modes() == before
    x.grad = None
    xgrad.manual_seed(1)
    if when:
        y.sum().backward()
    else:
        checkpointed(xgrad, function, x, use_reentrant=reentrant).sum().backward()
    ours, x.grad = x.grad, None
    xgrad.manual_seed(1)
    (noisy(x) * 2).sum().backward()
    same(ours, x.grad)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_batch_norm_at_the_end_updates_all_of_its_state_twice(momentum):
    def run(T, checkpoint):
        norm = T.nn.BatchNorm1d(1, momentum=momentum)
        for step in (1.0, 2.0):
            x = (T.tensor([[-1.0], [1.0]]) + step).requires_grad_()
            checkpoint(norm, x, use_reentrant=False).pow(3).sum().backward()
        return norm.running_mean.item(), norm.running_var.item(), norm.num_batches_tracked.item()

    found = run(xgrad, xgrad.utils.checkpoint.checkpoint)
    assert found == pytest.approx(run(torch, torch.utils.checkpoint.checkpoint))
