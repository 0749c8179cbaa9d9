"""Hooks of modules against torch's: order, arguments, what they may return, errors and warnings."""

import gc
import warnings
import weakref

import pytest
import torch

import xgrad

from ..oracle import data, outcome, same, same_error


def scaled(T, factor=3.0, outputs=1):
    """A module that multiplies its tensors by a parameter; `outputs` of them."""

    class Scaled(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = T.nn.Parameter(T.tensor(factor))

        def forward(self, *args, shift=0.0):
            total = sum(a for a in args if isinstance(a, T.Tensor)) * self.w + shift
            return total if outputs == 1 else tuple(total * (i + 1) for i in range(outputs))

    return Scaled()


def shown(value):
    """Numbers of the tensors in nested tuples."""
    if isinstance(value, (tuple, list)):
        return [shown(v) for v in value]
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def run(T, program):
    """(what the program returns, what it logged, the kinds and beginnings of its warnings)."""
    log = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = program(T, log)
    return shown(result), log, [(w.category.__name__, str(w.message)[:40]) for w in told]


def noting(log, name, answer=None):
    def hook(module, *args):
        log.append((name, *map(shown, args)))
        return answer(*args) if callable(answer) else answer

    return hook


def leaf(T, *values):
    return T.tensor(list(values), requires_grad=True)


PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def forward_hooks_in_order(T, log):
    m = scaled(T)
    m.register_forward_hook(noting(log, "one"))
    m.register_forward_hook(noting(log, "two"))
    m.register_forward_hook(noting(log, "first"), prepend=True)
    m.register_forward_pre_hook(noting(log, "before"))
    m.register_forward_pre_hook(noting(log, "before all"), prepend=True)
    return m(T.ones(2), shift=1.0)


@program
def forward_hooks_replace(T, log):
    m = scaled(T)
    m.register_forward_pre_hook(noting(log, "pre", lambda args: args[0] + 1))
    m.register_forward_pre_hook(noting(log, "pre", lambda args: (args[0] * 2,)))
    m.register_forward_hook(noting(log, "post", lambda args, out: out * 10))
    m.register_forward_hook(noting(log, "post", lambda args, out: (out, 5)))
    return m(T.ones(2))


@program
def forward_hooks_with_kwargs(T, log):
    m = scaled(T)
    m.register_forward_pre_hook(noting(log, "pre", lambda args, kwargs: (args, {"shift": 2.0})), with_kwargs=True)
    m.register_forward_hook(noting(log, "post"), with_kwargs=True)
    m.register_forward_hook(noting(log, "post without"))
    return m(T.ones(2), shift=1.0)


@program
def forward_hooks_removed(T, log):
    m = scaled(T)
    handle = m.register_forward_hook(noting(log, "gone"))
    with m.register_forward_pre_hook(noting(log, "within")):
        m(T.ones(1))
    handle.remove()
    handle.remove()
    return m(T.ones(1))


@program
def forward_hook_that_removes_itself(T, log):
    m = scaled(T)
    handles = []
    handles.append(m.register_forward_hook(lambda *a: (log.append("once"), handles[0].remove())[1]))
    m.register_forward_hook(noting(log, "always"))
    m(T.ones(1))
    return m(T.ones(1))


@program
def always_called(T, log):
    m = scaled(T)
    m.register_forward_hook(noting(log, "not called"))
    m.register_forward_hook(noting(log, "called"), always_call=True)
    try:
        m(T.ones(1), unknown=1)
    except TypeError:
        log.append("raised")


@program
def always_called_and_raising(T, log):
    m = scaled(T)
    m.register_forward_hook(lambda *a: 1 / 0, always_call=True)
    try:
        m(T.ones(1), unknown=1)
    except TypeError:
        log.append("raised")


@program
def always_called_once(T, log):
    m = scaled(T)
    m.register_forward_hook(noting(log, "called"), always_call=True)
    m.register_forward_hook(lambda *a: 1 / 0)
    try:
        m(T.ones(1))
    except ZeroDivisionError:
        log.append("raised")


@program
def full_backward_hook(T, log):
    m, x = scaled(T), leaf(T, 1.0, 2.0)
    m.register_full_backward_hook(noting(log, "back"))
    y = m(x)
    names = [y.grad_fn.name(), y.grad_fn.next_functions[0][0].name()]
    (y * y).sum().backward()
    return names, x.grad, m.w.grad


@program
def full_backward_hooks_in_order(T, log):
    m, x = scaled(T), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "one"))
    m.register_full_backward_hook(noting(log, "two"))
    m.register_full_backward_hook(noting(log, "first"), prepend=True)
    m.register_full_backward_pre_hook(noting(log, "pre"))
    m.register_full_backward_pre_hook(noting(log, "pre first"), prepend=True)
    x.register_hook(lambda g: log.append("leaf"))
    y = m(x)
    y.register_hook(lambda g: log.append("output"))
    m.w.register_hook(lambda g: log.append("weight"))
    y.sum().backward()


@program
def full_backward_hooks_replace(T, log):
    m, x = scaled(T), leaf(T, 1.0)
    m.register_full_backward_pre_hook(noting(log, "pre", lambda out: (out[0] * 2,)))
    m.register_full_backward_pre_hook(noting(log, "pre", lambda out: [out[0] * 5]))
    m.register_full_backward_hook(noting(log, "back", lambda given, out: (given[0] * 3,)))
    m.register_full_backward_hook(noting(log, "back", lambda given, out: [given[0] * 7]))
    m(x).sum().backward()
    return x.grad, m.w.grad


@program
def full_backward_hook_gives_none(T, log):
    m, x = scaled(T), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back", lambda given, out: (None,)))
    m(x).sum().backward()
    return x.grad, m.w.grad


@program
def several_inputs_and_outputs(T, log):
    m, x, y = scaled(T, outputs=3), leaf(T, 1.0), leaf(T, 2.0)
    m.register_full_backward_hook(noting(log, "back"))
    m.register_full_backward_pre_hook(noting(log, "pre"))
    a, b, c = m(x, 5, T.ones(1), y, "text")
    (a * c).sum().backward()
    return x.grad, y.grad, b.requires_grad


@program
def part_of_the_outputs(T, log):
    m, x = scaled(T, outputs=2), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back"))
    (m(x)[1] * 2).sum().backward()
    return x.grad


@program
def outputs_that_need_nothing(T, log):
    class Mixed(T.nn.Module):
        def forward(self, x):
            return x * 2, T.ones(1), 3, None

    m, x = Mixed(), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back"))
    out = m(x)
    out[0].sum().backward()
    return x.grad, [getattr(o, "requires_grad", o) for o in out]


@program
def no_input_needs_a_gradient(T, log):
    m = scaled(T)
    m.register_full_backward_hook(noting(log, "back"))
    m.register_full_backward_pre_hook(noting(log, "pre", lambda out: (out[0] * 2,)))
    m(T.ones(2), 5).sum().backward()
    return m.w.grad


@program
def no_tensor_among_the_inputs(T, log):
    class Constant(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = T.nn.Parameter(T.tensor(2.0))

        def forward(self, n=1):
            return self.w * n

    m = Constant()
    m.register_full_backward_hook(noting(log, "back"))
    m(n=3).backward()
    m(4).backward()
    return m.w.grad


@program
def nothing_needs_a_gradient(T, log):
    m = scaled(T).requires_grad_(False)
    m.register_full_backward_hook(noting(log, "back"))
    return m(T.ones(1)).requires_grad


@program
def without_grad_mode(T, log):
    m, x = scaled(T), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back"))
    with T.no_grad():
        return m(x).grad_fn is None


@program
def no_parameters(T, log):
    m, x = T.nn.Sequential(), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back", lambda given, out: (given[0] * 4,)))
    (m(x) * 2).sum().backward()
    return x.grad


@program
def frozen_module(T, log):
    m, x = scaled(T).requires_grad_(False), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back"))
    m(x).sum().backward()
    return x.grad, m.w.grad


@program
def called_twice(T, log):
    m, x = scaled(T), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back"))
    (m(m(x)) + m(x)).sum().backward()
    return x.grad, m.w.grad


@program
def nested_modules(T, log):
    m, x = T.nn.Sequential(scaled(T, 2.0), scaled(T, 3.0)), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "outer"))
    m[0].register_full_backward_hook(noting(log, "first"))
    m[1].register_full_backward_hook(noting(log, "second"))
    m[1].register_full_backward_pre_hook(noting(log, "before second"))
    m(x).sum().backward()
    return x.grad, m[0].w.grad, m[1].w.grad


@program
def backward_twice(T, log):
    m, x = scaled(T), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back"))
    y = m(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


@program
def double_backward(T, log):
    m, x = scaled(T), leaf(T, 2.0)
    m.register_full_backward_hook(noting(log, "back", lambda given, out: (given[0] * 2,)))
    (g,) = T.autograd.grad((m(x) ** 2).sum(), x, create_graph=True)
    g.sum().backward()
    return g.detach(), x.grad, m.w.grad


@program
def gradients_of_weights_alone(T, log):
    m, x = scaled(T), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back"))
    m.register_full_backward_pre_hook(noting(log, "pre"))
    return T.autograd.grad(m(x).sum(), m.w)


@program
def gradients_of_inputs_alone(T, log):
    m, x = scaled(T), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back", lambda given, out: (given[0] * 2,)))
    return T.autograd.grad(m(x).sum(), x)


@program
def hook_removed_before_backward(T, log):
    m, x = scaled(T), leaf(T, 1.0)
    handle = m.register_full_backward_hook(noting(log, "back"))
    y = m(x)
    handle.remove()
    y.sum().backward()
    return m(x).grad_fn.name()


@program
def output_of_another_kind(T, log):
    class Listing(T.nn.Module):
        def forward(self, x):
            return [x * 2]

    m, x = Listing(), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back"))
    m(x)[0].sum().backward()
    return x.grad


@program
def forward_hook_replaces_what_is_watched(T, log):
    m, x = scaled(T), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back"))
    m.register_forward_hook(lambda m, args, out: out * 10)
    m(x).sum().backward()
    return x.grad


@program
def hooks_with_keyword_tensors(T, log):
    m, x, s = scaled(T), leaf(T, 1.0), leaf(T, 1.0)
    m.register_full_backward_hook(noting(log, "back"))
    m(x, shift=s).sum().backward()
    return x.grad, s.grad


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", PROGRAMS)
def test_hooks_do_what_torch_does(name):
    ours, theirs = run(xgrad, PROGRAMS[name]), run(torch, PROGRAMS[name])
    same(ours[:2], theirs[:2])
    assert ours[2] == theirs[2]


def backward_of(hook, register="register_full_backward_hook", needs=True):
    def program(T):
        m, x = scaled(T), T.ones(2, requires_grad=needs)
        getattr(m, register)(hook)
        m(x).sum().backward()

    return program


ERRORS = {
    "count": (backward_of(lambda m, i, o: (i[0], i[0])), "returned an invalid number of grad_input, got 2"),
    "count of outputs": (
        backward_of(lambda m, o: (o[0], o[0]), "register_full_backward_pre_hook"),
        "Backward pre hook returned an invalid number of grad_output, got 2, but expected 1",
    ),
    "raising": (backward_of(lambda m, i, o: 1 / 0), "division by zero"),
    "shape": (backward_of(lambda m, i, o: (i[0][:1],)), "size"),
    "pre-hook": (
        lambda T: (lambda m: [m.register_forward_pre_hook(lambda *a: 1, with_kwargs=True), m(T.ones(1))])(scaled(T)),
        "forward pre-hook must return None or a tuple of .new_args, new_kwargs., but got",
    ),
    "in place on an output": (
        lambda T: (lambda m: [m.register_full_backward_hook(lambda *a: None), m(leaf(T, 1.0)).add_(1)])(scaled(T)),
        "Output 0 of BackwardHookFunction is a view and is being modified inplace",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("program", "match"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_torch_says(program, match):
    same_error(program, match)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_a_gradient_for_an_input_that_needs_none_is_an_error():
    same_error(backward_of(lambda m, i, o: (o[0],), needs=False), "where no input requires gradient should always")


def test_a_hook_that_cannot_be_called_is_refused():
    m = scaled(xgrad)
    for register in (m.register_forward_hook, m.register_forward_pre_hook, m.register_full_backward_hook):
        with pytest.raises(TypeError, match="must be callable"):
            register(3)


def test_a_watched_call_leaves_no_cycles():
    m, x = scaled(xgrad), leaf(xgrad, 1.0)
    m.register_full_backward_hook(lambda *a: None)
    gc.collect()
    gc.disable()
    try:
        y = m(x)
        y.sum().backward()
        gone = weakref.ref(y.grad_fn)
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_a_hook_on_batches_of_values():
    """The gradients that a hook sees are tensors like any other: of float64, of two dimensions."""
    seen = []
    m, x = scaled(xgrad), data(xgrad, (2, 3), requires_grad=True)
    m.register_full_backward_hook(lambda m, given, out: seen.append((given[0].shape, out[0].dtype)))
    m(x).sum().backward()
    assert seen == [((2, 3), xgrad.float64)]
    assert outcome(lambda T: m.w.grad.dtype, xgrad) == xgrad.float32
