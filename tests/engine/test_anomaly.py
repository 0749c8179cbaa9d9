"""Anomaly mode: NaN, the forward stack of a failing node and of those that led to it, metadata; the log of nodes."""

import logging
import re
import threading
import warnings

import jax
import pytest
import torch

import xgrad

from ..oracle import same

pytestmark = pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")

LIBRARIES = pytest.mark.parametrize("T", [xgrad, torch], ids=["xgrad", "torch"])
FIRST = re.compile(r"Error detected in ([\w:]+)\. (Traceback of forward call that caused the error:\n|No forward pass)")
LED_TO = re.compile(r"\n\nPrevious calculation was induced by ([\w:]+)\. Traceback of forward call that induced")
CALL = re.compile(r"line \d+, in (\w+)\n    ([^\n]*)\n")


def plain(name):
    """A node's name without the namespace that PyTorch gives to some."""
    return name.rpartition("::")[2]


def told(program, T):
    """What is seen of a program: the error, and for each warning its kind and the line of this file it blames."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            program(T)
            error = None
        except Exception as raised:
            error = raised
    kinds = []
    for warning in seen:
        text = str(warning.message)
        if text.startswith("Anomaly Detection"):
            continue
        assert warning.category is UserWarning
        name = re.sub("(Backward)+", "Backward", plain((FIRST.match(text) or LED_TO.match(text)).group(1)))
        lines = [line for where, line in CALL.findall(text) if "anomaly_here" in line]
        kinds.append((FIRST.match(text) is not None, name, lines[-1] if lines else None))
        if T is xgrad:
            assert "/xgrad/engine/" not in text
            assert "<operator>" not in text
            assert warning.filename == __file__
    return error, kinds


def same_story(program, what=None):
    """Both libraries raise the same kind of error and blame the same lines."""
    (ours, kinds), (theirs, expected) = told(program, xgrad), told(program, torch)
    assert kinds == expected
    for error, T in ((ours, "xgrad"), (theirs, "torch")):
        assert (error is None) == (what is None), f"{T}: {error!r}"
        assert what is None or re.search(what, str(error)), f"{T}: {error!r}"
    if theirs is not None:
        assert isinstance(ours, RuntimeError if isinstance(theirs, RuntimeError) else type(theirs))
    return kinds


def function(T, on_grad, forward=lambda x: x.clone()):
    class Custom(T.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            return forward(*args)

        @staticmethod
        def backward(ctx, *grads):
            return on_grad(T, *grads)

    return Custom.apply


def ones(T, *shape, **options):
    return T.ones(*shape, requires_grad=True, **options)


def nans(like):
    return like * float("nan")


def test_nan_names_node_output_and_forward_line():
    def program(T):
        x = T.zeros(2, requires_grad=True)
        with T.autograd.detect_anomaly():
            y = T.sqrt(x)  # anomaly_here
            (y * 0).sum().backward()

    kinds = same_story(program, r"^Function 'SqrtBackward0' returned nan values in its 0th output\.$")
    assert kinds == [(True, "SqrtBackward0", "y = T.sqrt(x)  # anomaly_here")]


def test_second_output_is_counted_also_where_nobody_wants_it():
    for wanted in (True, False):

        def program(T, wanted=wanted):
            x, w = ones(T, 2), T.ones(2, requires_grad=wanted)
            with T.autograd.detect_anomaly():
                y = function(T, lambda T, g: (g, nans(g)), lambda x, w: x.clone())(x, w)  # anomaly_here
                y.sum().backward()

        same_story(program, "Function 'CustomBackward' returned nan values in its 1th output")


def test_imaginary_nan_is_found():
    def program(T):
        x = ones(T, 2, dtype=T.complex64)
        with T.autograd.detect_anomaly():
            y = function(T, lambda T, g: T.complex(T.zeros(2), nans(T.ones(2))))(x * 2)  # anomaly_here
            T.autograd.backward(y, T.ones_like(y))

    same_story(program, "'CustomBackward' returned nan")


@pytest.mark.parametrize("which", ["tensor hook", "pre-hook", "post-hook"])
def test_nan_of_a_hook_is_blamed_on_the_node_that_passes_it_on(which):
    def program(T):
        x = ones(T, 2)
        with T.autograd.detect_anomaly():
            y = x * 2  # anomaly_here
            if which == "tensor hook":
                y.register_hook(nans)
            elif which == "pre-hook":
                y.grad_fn.register_prehook(lambda grads: (nans(grads[0]),))
            else:
                y.grad_fn.register_hook(lambda given, grads: (nans(given[0]), *given[1:]))
            y.sum().backward()

    same_story(program, "'MulBackward0' returned nan values in its 0th")


def test_nan_that_only_a_leaf_sees_is_no_anomaly():
    def program(T):
        x = ones(T, 2)
        x.register_hook(nans)
        with T.autograd.detect_anomaly():
            (x * 2).sum().backward()

    assert same_story(program) == []


def test_check_nan_off_lets_nan_pass_and_still_shows_errors():
    def program(T):
        x = T.zeros(2, requires_grad=True)
        with T.autograd.detect_anomaly(check_nan=False):
            (T.sqrt(x) * 0).sum().backward()
            y = function(T, lambda T, g: {}["missing"])(x)  # anomaly_here
            y.sum().backward()

    assert len(same_story(program, "missing")) == 1


def test_without_forward_information():
    def program(T):
        x = T.zeros(2, requires_grad=True)
        y = (T.sqrt(x) * 0).sum()
        with T.autograd.detect_anomaly():
            y.backward()

    assert same_story(program, "returned nan") == [(True, "SqrtBackward0", None)]


def test_nodes_that_led_to_the_failing_one_are_shown_in_turn():
    def program(T):
        x = T.zeros(2, requires_grad=True)
        with T.autograd.detect_anomaly():
            y = (x**1.5).sum()  # anomaly_here, first
            (g,) = T.autograd.grad(y, x, create_graph=True)  # anomaly_here, second
            (g,) = T.autograd.grad(g.sum(), x, create_graph=True)  # anomaly_here, third
            (g * 0).sum().backward()

    kinds = same_story(program, r"Function 'Pow\w*' returned nan")
    assert [(first, line[-5:].strip(" ,")) for first, _, line in kinds] == [
        (True, "third"), (False, "econd"), (False, "first")
    ]  # fmt: skip


@pytest.mark.parametrize("raiser", ["backward", "tensor hook", "post-hook", "leaf hook", "unpack hook"])
def test_errors_of_users_keep_their_type_and_show_the_forward_line(raiser):
    def fail(*args):
        raise KeyError("mine")

    def program(T):
        x = ones(T, 2)
        with T.autograd.detect_anomaly():
            if raiser == "backward":
                y = function(T, fail)(x)  # anomaly_here
            elif raiser == "unpack hook":
                with T.autograd.graph.saved_tensors_hooks(lambda t: t, fail):
                    y = x * x  # anomaly_here
            else:
                y = x * 2  # anomaly_here
            if raiser == "tensor hook":
                y.register_hook(fail)
            elif raiser == "post-hook":
                y.grad_fn.register_hook(fail)
            elif raiser == "leaf hook":
                x.register_hook(fail)
            y.sum().backward()

    kinds = same_story(program, "mine")
    assert len(kinds) == 1
    assert kinds[0][2]


def test_errors_of_the_engine_show_the_forward_line():
    def wrong_shape(T):
        x = ones(T, 2)
        with T.autograd.detect_anomaly():
            y = function(T, lambda T, g: T.ones(5))(x)  # anomaly_here
            y.sum().backward()

    def freed(T):
        x = ones(T, 2)
        with T.autograd.detect_anomaly():
            y = (x * x).sum()  # anomaly_here
            y.backward()
            y.backward()

    def written(T):
        x = ones(T, 2)
        with T.autograd.detect_anomaly():
            y = x.exp()  # anomaly_here
            y.add_(1)
            y.sum().backward()

    assert len(same_story(wrong_shape, "returned an invalid gradient at index 0")) == 1
    assert len(same_story(freed, "second time")) == 1
    assert len(same_story(written, "modified by an inplace operation.*backtrace further above")) == 1


def test_version_error_outside_of_the_mode_advises_it():
    for T in (xgrad, torch):
        y = ones(T, 2).exp()
        y.add_(1)
        with pytest.raises(RuntimeError, match=r"enable anomaly detection.*autograd\.set_detect_anomaly\(True, check"):
            y.sum().backward()


def test_write_through_a_view(path):
    def program(T):
        b = ones(T, 3)
        with T.autograd.detect_anomaly():
            y = b.clone()
            y[0].mul_(2)
            y[1] = function(T, lambda T, g: nans(g))(b[0])  # anomaly_here, the source
            y[2].mul_(3)
            y.sum().backward()

    same_story(program, "'CustomBackward' returned nan")

    def through(T):
        y = ones(T, 3).clone()
        with T.autograd.detect_anomaly():
            y[0].sub_(1)
            y[0].sqrt_()  # anomaly_here
            (y * 0).sum().backward()

    (error, kinds), (_, expected) = told(through, xgrad), told(through, torch)
    assert "CopySlices' returned nan values in its 0th output" in str(error)
    assert [line for *_, line in kinds] == [line for *_, line in expected] == ["y[0].sqrt_()  # anomaly_here"]


def test_reentrant_backward_reports_both_runs():
    def program(T):
        def inner(T, g):
            with T.enable_grad():
                a = T.zeros(2, requires_grad=True)
                b = a.sqrt() * 0  # anomaly_here, inside
                b.sum().backward()
            return g

        x = ones(T, 2)
        with T.autograd.detect_anomaly():
            y = function(T, inner)(x)  # anomaly_here
            y.sum().backward()

    kinds = same_story(program, "'SqrtBackward0' returned nan")
    assert [(first, name) for first, name, _ in kinds] == [
        (True, "SqrtBackward0"), (False, "CustomBackward"), (True, "CustomBackward")
    ]  # fmt: skip


def test_the_mode_follows_the_engine_to_its_threads():
    """Every 24 nested backwards go on on a fresh thread."""
    deepest = []

    def inner(T, g):
        depth.append(threading.get_ident())
        if len(depth) < 30:
            with T.enable_grad():
                function(T, inner)(ones(T, 2)).sum().backward()
        else:
            with T.enable_grad():
                deepest.extend(sorted(ones(T, 2).exp().grad_fn.metadata))
            return nans(g)
        return g

    depth = []
    x = ones(xgrad, 2)
    with xgrad.autograd.set_detect_anomaly(True), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="returned nan"):
            function(xgrad, inner)(x).sum().backward()
    assert len(set(depth)) == 2
    assert deepest == ["parent_", "traceback_"]
    assert len([w for w in seen if "Error detected in CustomBackward. Traceback" in str(w.message)]) == 30


def test_metadata_holds_stack_and_parent():
    def program(T):
        x = ones(T, 2)
        before = x * 2
        with T.autograd.set_detect_anomaly(True):
            y = x * x  # anomaly_here
            z = ones(T, 2).exp()
            (g,) = T.autograd.grad(y.sum(), x, create_graph=True)
            view = y[0]
        node = y.grad_fn
        node._set_sequence_nr(node._sequence_nr() + 100)
        node.metadata["mine"] = 1
        stack = node.metadata["traceback_"]
        assert isinstance(stack, list)
        assert all(isinstance(line, str) and line[-1] == "\n" for line in stack)
        assert "y = x * x  # anomaly_here" in stack[-1]
        return (
            before.grad_fn.metadata,
            list(node.metadata),
            [list(fn.metadata) for fn, _ in z.grad_fn.next_functions],
            list(view.grad_fn.metadata),
            sorted(g.grad_fn.metadata),
            g.grad_fn.metadata["parent_"] is node,
            list((x * 2).grad_fn.metadata),
        )

    same(program(xgrad), program(torch))


def test_custom_function_has_its_stack_in_forward_already():
    def program(T):
        class Noting(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                seen.append(sorted(ctx.metadata))
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                seen.append(sorted(ctx.metadata))
                return grad

        seen = []
        with T.autograd.set_detect_anomaly(True):
            Noting.apply(ones(T, 2)).sum().backward()
        return seen

    same(program(xgrad), program(torch))


def test_order_of_nodes_is_that_without_the_mode():
    x = ones(xgrad, 2)
    numbers = []
    for mode in (False, True, False):
        with xgrad.autograd.set_detect_anomaly(mode):
            numbers += [(x * 2).grad_fn._sequence_nr(), (x * 2).grad_fn._sequence_nr()]
    assert numbers == list(range(numbers[0], numbers[0] + 6))
    assert all(type(n + 0) is int for n in numbers)


@LIBRARIES
def test_modes_are_switched_and_restored(T):
    def modes():
        return T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled()

    assert modes() == (False, True)
    with T.autograd.detect_anomaly(check_nan=False):
        assert modes() == (True, False)
        with T.autograd.set_detect_anomaly(False):
            assert modes() == (False, True)
        assert modes() == (True, False)
        with pytest.raises(KeyError), T.autograd.set_detect_anomaly(True, check_nan=True):
            {}[modes()]
        assert modes() == (True, False)
    assert modes() == (False, True)
    T.autograd.set_detect_anomaly(True, False)
    assert modes() == (True, False)
    T.set_anomaly_enabled(False)
    assert modes() == (False, True)
    for bad in (1, None, "yes"):
        with pytest.raises(TypeError, match=r"set_anomaly_enabled\(\): argument 'enabled' \(position 1\) must be bool"):
            T.autograd.set_detect_anomaly(bad)
        with pytest.raises(TypeError, match=r"'check_nan' \(position 2\) must be bool"):
            T.autograd.set_detect_anomaly(True, bad)
        assert modes() == (False, True)


@pytest.mark.filterwarnings("default:Anomaly Detection has been enabled")
@LIBRARIES
def test_detect_anomaly_warns_when_it_is_made(T):
    with pytest.warns(
        UserWarning, match="Anomaly Detection has been enabled. This mode will increase the runtime"
    ) as w:
        T.autograd.detect_anomaly()
    assert w[0].filename == __file__
    assert not T.is_anomaly_enabled()


def test_the_mode_belongs_to_its_thread():
    def body():
        seen.extend((xgrad.is_anomaly_enabled(), (ones(xgrad, 2) * 2).grad_fn.metadata))

    seen = []
    with xgrad.autograd.set_detect_anomaly(True):
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
    assert seen == [False, {}]


def test_error_stays_the_error_where_warnings_are_errors():
    x = xgrad.zeros(2, requires_grad=True)
    with xgrad.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan") as raised:
            (xgrad.sqrt(x) * 0).sum().backward()
    assert "xgrad.sqrt(x) * 0" in raised.value.__notes__[0]


def test_failed_run_releases_and_leaves_the_thread_as_it_was():
    def program(T):
        x = T.zeros(2, requires_grad=True)
        y = T.sqrt(x)
        seen = []
        for keep in (True, False, False):
            with warnings.catch_warnings(), T.autograd.set_detect_anomaly(True):
                warnings.simplefilter("ignore")
                with pytest.raises(RuntimeError) as raised:
                    y.backward(T.zeros(2), retain_graph=keep)
            seen.append("second time" in str(raised.value))
        return seen, T.is_anomaly_enabled(), T.is_grad_enabled(), current(T)()

    same(program(xgrad), program(torch))


def test_nan_is_not_looked_for_under_a_trace():
    def gradient(array):
        x = xgrad.as_tensor(array).requires_grad_()
        with xgrad.autograd.set_detect_anomaly(True):
            (xgrad.sqrt(x) * 0).sum().backward()
        return x.grad._read()

    import jax.numpy as jnp

    assert jnp.isnan(jax.jit(gradient)(jnp.zeros(2))).all()


def current(T):
    return torch._C._current_autograd_node if T is torch else xgrad.autograd._current_autograd_node


def test_current_node_in_every_hook():
    def program(T):
        def note(what):
            node = current(T)()
            seen.append((what, None if node is None else plain(node.name())))

        def queue(grad):
            T.autograd.Variable._execution_engine.queue_callback(lambda: note("callback"))

        def custom(T, grad):
            note("backward")
            return grad

        seen = []
        x = ones(T, 2)
        y = x * 2
        y.register_hook(lambda grad: note("tensor hook"))
        y.register_hook(queue)
        y.grad_fn.register_prehook(lambda grads: note("pre-hook"))
        y.grad_fn.register_hook(lambda given, grads: note("post-hook"))
        x.register_hook(lambda grad: note("leaf hook"))
        x.register_post_accumulate_grad_hook(lambda leaf: note("accumulated"))
        function(T, custom)(y).sum().backward()
        T.autograd.grad((x.exp() * 2).sum(), x)
        note("outside")
        return seen

    same(program(xgrad), program(torch))


def test_executed_nodes_are_logged():
    def program(T):
        def log():
            x = ones(T, 2, 3, dtype=T.float32)
            (x * 2).sum().backward()
            c = ones(T, 2, dtype=T.complex64)
            u, _v = T.unbind(c * 1)
            (u * u).abs().backward()

        lines = []
        logger = logging.getLogger(f"{T.__name__}.autograd.graph")
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        try:
            log()
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)
        log()
        return [re.sub(" object at 0x[0-9a-f]+", "", line) for line in lines]

    ours = program(xgrad)
    same(ours, program(torch))
    assert ours[0] == "Executing: <SumBackward0> with grad_outputs: [f32[]]"
    assert "Executing: <UnbindBackward0> with grad_outputs: [c64[],None]" in ours


def test_log_keeps_no_graph():
    import gc
    import weakref

    logger = logging.getLogger("xgrad.autograd.graph")
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    gc.disable()
    try:
        y = (ones(xgrad, 2) * 2).sum()
        y.backward()
        node = weakref.ref(y.grad_fn)
        del y
        assert records
        assert node() is None
    finally:
        gc.enable()
        logger.setLevel(level)
        logger.removeHandler(handler)
