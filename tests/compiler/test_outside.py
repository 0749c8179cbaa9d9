"""What a compiled function returns with requires_grad is differentiated outside as what the eager one returns."""

import io
import logging
import types

import pytest

import xgrad

from ..oracle import leaf, same


def world():
    """Leaves, and what is computed of them outside."""
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    return {"x": x, "w": w, "middle": x * w, "unused": leaf(xgrad, 3, seed=2), "plain": leaf(xgrad, 3, seed=3).detach()}


def both(function, finish, calls=3):
    """`finish(result, world)` gives what is compared, for eager and compiled calls, several with one program."""
    compiled = xgrad.compile(function)
    for call in range(calls):
        eager, mine = world(), world()
        same(finish(compiled(mine), mine), finish(function(eager), eager), f"call {call}", rtol=1e-9)
    assert compiled.metrics()[:2] == (calls, 1)


def gradients(o):
    return {name: t.grad for name, t in o.items() if t.is_leaf}


def backward(result, o):
    results = result if isinstance(result, (list, tuple)) else [result]
    sum((r * r).sum() for r in results if r.requires_grad).backward()
    return [r.detach() for r in results], gradients(o)


def through_a_view_of_the_input(o):
    return o["middle"][1:] * o["w"][:2]


def written_views(o):
    y = o["x"] * 1
    y[0].mul_(o["w"][1])
    y.view(-1)[1:].tanh_()
    return y


FUNCTIONS = {
    "of leaves": lambda o: (o["x"] * o["w"]).tanh(),
    "of what was computed outside": lambda o: (o["middle"] * o["w"]).exp(),
    "of views": through_a_view_of_the_input,
    "written in place": written_views,
    "several": lambda o: [o["x"] * 2, o["w"] * o["x"], o["middle"].sum(), o["plain"] * 3],
    "some undefined": lambda o: [o["x"].detach() * 2, o["w"] * 2],
    "the same twice": lambda o: (lambda y: [y, y, y * 2])(o["x"] * o["w"]),
    "one that leads to another": lambda o: (lambda y: [y, y.exp()])(o["x"] * o["w"]),
    "views of one result": lambda o: (lambda y: [y[1:], y, y[0]])(o["x"] * o["w"]),
    "split": lambda o: list((o["x"] * o["w"]).detach().requires_grad_().split(1)),
    "an argument itself": lambda o: [o["middle"], o["x"]],
    "a view of an argument": lambda o: [o["middle"][1:], o["x"][1:] * 2],
    "integers beside it": lambda o: [o["x"] * 2, xgrad.arange(3)],
    "a new leaf": lambda o: (lambda y: [y, y * o["x"]])(xgrad.ones(3, dtype=xgrad.float64, requires_grad=True)),
    "complex": lambda o: xgrad.view_as_real(xgrad.complex(o["x"], o["w"]) * 1j),
    "linear": lambda o: o["x"] + o["w"],
    "zero gradient": lambda o: o["x"].round() * o["w"],
}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_eager(name, path):
    both(FUNCTIONS[name], backward)


def test_grad_of_what_is_asked_for():
    def ask(y, o):
        a = xgrad.autograd.grad(y.sum(), [o["w"]], retain_graph=True)
        b = xgrad.autograd.grad(y, [o["x"], o["middle"], o["unused"]], xgrad.ones_like(y), allow_unused=True)
        return a, b, gradients(o)

    both(lambda o: o["middle"] * o["w"].exp(), ask)


def test_an_input_that_is_not_reached_is_an_error_or_none():
    compiled, o = xgrad.compile(lambda o: o["x"] * 2 + o["unused"].detach()), world()
    y = compiled(o)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        xgrad.autograd.grad(y.sum(), o["unused"])
    assert xgrad.autograd.grad(compiled(o).sum(), o["w"], allow_unused=True) == (None,)


def test_one_of_several_results_alone():
    """A gradient that would only come by the other results is None, not zero."""

    def one(i):
        def finish(results, o):
            results[i].sum().backward()
            return gradients(o)

        return finish

    for i in range(3):
        both(lambda o: [o["x"] * 2, o["w"].exp(), o["x"] * o["w"]], one(i))


def test_one_result_after_the_other():
    def finish(results, o):
        results[0].sum().backward(retain_graph=True)
        results[1].sum().backward()
        return gradients(o)

    both(lambda o: [o["x"] * 2, (o["x"] * o["w"]).exp()], finish)


def test_a_graph_is_kept_or_freed():
    compiled, o = xgrad.compile(lambda o: (o["x"] * o["w"]).exp()), world()
    y = compiled(o)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    eager = world()
    z = (eager["x"] * eager["w"]).exp()
    z.sum().backward(retain_graph=True)
    z.sum().backward()
    same(gradients(o), gradients(eager), rtol=1e-9)
    with pytest.raises(xgrad.errors.FreedGraphError, match="backward through the graph a second time"):
        y.sum().backward()


def test_an_input_that_is_changed_before_backward():
    compiled, o = xgrad.compile(lambda o: o["x"] * o["plain"]), world()
    y, z = compiled(o), compiled(o)
    z.sum().backward(retain_graph=True)
    o["plain"].add_(1)
    for result in (y, z):
        with pytest.raises(xgrad.errors.VersionError, match="modified by an inplace operation"):
            result.sum().backward()
    y = compiled(o)
    y.sum().backward()


def test_an_input_that_is_changed_and_not_needed():
    def finish(y, o):
        o["plain"].add_(1)
        y.sum().backward()
        return gradients(o)

    both(lambda o: o["x"] + o["plain"], finish)


def test_an_input_that_each_call_writes_is_needed_as_it_was_before():
    def step(o):
        o["plain"].mul_(o["w"]).mul_(o["w"])

    o, eager = world(), world()
    for run, where in ((xgrad.compile(step), o), (step, eager)):
        run(where)
        run(where)
        where["plain"].sum().backward()
    same(gradients(o), gradients(eager), rtol=1e-9)


def test_a_result_that_is_changed_in_place():
    def finish(y, o):
        y.mul_(2)
        y[1:].add_(o["w"][1:])
        return backward(y, o)

    both(lambda o: o["x"] * o["w"], finish)


def test_a_result_that_is_needed_and_changed_in_place():
    """Eager code notices that exp's result is changed; here it is another array, and the gradient is right."""
    o, eager = world(), world()
    y = xgrad.compile(lambda o: o["x"].exp())(o)
    try:
        y.mul_(2)
        y.sum().backward()
    except xgrad.errors.VersionError:
        return
    (eager["x"].exp() * 2).sum().backward()
    same(gradients(o), gradients(eager), rtol=1e-9)


def test_double_backward_is_refused():
    compiled, o = xgrad.compile(lambda o: o["x"] ** 3), world()
    with pytest.raises(
        RuntimeError, match=r"does not support double backward.*create_graph=True, or leave it uncompiled"
    ):
        xgrad.autograd.grad(compiled(o).sum(), o["x"], create_graph=True)
    compiled(o).sum().backward()


def test_hooks_of_what_is_outside_run_once_and_in_order():
    def finish(function):
        log, o = [], world()
        o["middle"].retain_grad()

        def note(name):
            return lambda g: log.append((name, g.detach().tolist()))

        o["x"].register_hook(note("x"))
        o["w"].register_hook(lambda g: g * 2)
        o["w"].register_post_accumulate_grad_hook(lambda t: log.append(("w", t.grad.tolist())))
        o["middle"].register_hook(note("middle"))
        for _ in range(2):
            y = function(o)
            y.register_hook(note("y"))
            y.sum().backward(retain_graph=True)
        return log, o["middle"].grad, gradients(o)

    def function(o):
        return (o["middle"] * o["w"]).tanh()

    compiled = xgrad.compile(function)
    same(finish(compiled), finish(function), rtol=1e-9)
    assert compiled.metrics().traces == 1


def test_the_gradient_of_a_result_is_retained():
    def finish(y, o):
        y.retain_grad()
        (y * 2).sum().backward()
        return y.grad, gradients(o)

    both(lambda o: o["x"] * o["w"], finish)


def test_calls_one_after_the_other_are_one_graph():
    def twice(function):
        o = world()
        y = function(o)
        y = function({**o, "x": y})
        (y * o["w"]).sum().backward()
        return gradients(o)

    def function(o):
        return (o["x"] * o["w"]).tanh()

    compiled = xgrad.compile(function)
    same(twice(compiled), twice(function), rtol=1e-9)
    assert compiled.metrics().traces == 2  # a leaf, and none


def test_compiled_backward_outside():
    def finish(y, o):
        (y * o["w"]).sum().backward(compiled=True)
        return gradients(o)

    both(lambda o: (o["x"] * o["w"]).tanh(), finish)


def test_a_function_that_runs_backward_and_returns_a_graph():
    """What has been through a backward inside cannot be differentiated outside again, as in eager."""

    def function(o):
        y = (o["x"] * o["w"]).exp()
        y.sum().backward()
        return y, o["x"] * 2

    compiled = xgrad.compile(function)
    for f in (function, compiled):
        o = world()
        y, z = f(o)
        z.sum().backward()
        same(o["x"].grad, (o["w"] * y + 2).detach())
        with pytest.raises(xgrad.errors.FreedGraphError, match="second time"):
            y.sum().backward()


def test_gradients_arrive_in_other_layouts():
    def finish(y, o):
        xgrad.autograd.backward(y, xgrad.ones(2, 3, dtype=xgrad.float64).t()[:, 0])
        return gradients(o)

    both(lambda o: o["x"] * o["w"], finish)


def test_the_name_of_the_node():
    y = xgrad.compile(lambda o: o["x"] * 2)(world())
    assert y.grad_fn.name() == "CompiledFunctionBackward"
    assert len(y.grad_fn.next_functions) == 1
    assert repr(y).endswith("grad_fn=<CompiledFunctionBackward>)")


class Buffered(io.TextIOBase):
    """Like the `sys.stderr` of a notebook."""

    def __init__(self):
        self.buffers = {}

    def write(self, text):
        self.buffers = {**self.buffers, len(self.buffers): text}
        return len(text)


def test_what_is_written_to_a_stream_of_python_is_no_change():
    stream = Buffered()

    @xgrad.compile
    def step(x):
        stream.write("traced")
        return x * 2

    for _ in range(3):
        assert step(xgrad.ones(2)).tolist() == [2, 2]
    assert list(stream.buffers.values()) == ["traced"]
    assert step.metrics().traces == 1


NOTEBOOK = """
import io

class Session:
    def __init__(self):
        self.message_count, self.values = 0, {}

    def send(self, text):
        self.message_count += 1
        self.values["last"] = text

class OutStream(io.TextIOBase):
    def __init__(self, session):
        self.session = session

    def write(self, text):
        self.session.send(text)
        return len(text)
"""


def test_a_logger_of_a_notebook_may_write_in_a_trace():
    """Its stream counts the messages in an object of ipykernel's; such a step was refused."""
    kernel = types.ModuleType("ipykernel.iostream")
    exec(compile(NOTEBOOK, "/site-packages/ipykernel/iostream.py", "exec"), vars(kernel))
    session = kernel.Session()
    log = logging.getLogger("tests.notebook")
    log.addHandler(handler := logging.StreamHandler(kernel.OutStream(session)))

    @xgrad.compile
    def step(x):
        log.warning("traced")
        return x * 2

    try:
        for _ in range(3):
            assert step(xgrad.ones(2)).tolist() == [2, 2]
    finally:
        log.removeHandler(handler)
    assert session.message_count >= 1
    assert step.metrics().traces == 1
