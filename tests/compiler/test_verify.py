"""verify=True: what differs from the eager run is named, and what does not differ is as without it."""

import itertools
import operator

import numpy as np
import pytest

import xgrad
from xgrad.errors import CompiledMismatchError

from .agreement import agree


def leaf(*values):
    return xgrad.tensor(values or (1.0, 2.0, 3.0), dtype=xgrad.float64, requires_grad=True)


@pytest.fixture
def told(tmp_path):
    """A number in a file, which no guard sees: a function that reads it, and one that writes it."""
    file = tmp_path / "number"
    file.write_text("2")
    return (lambda: float(file.read_text())), lambda number: file.write_text(str(number))


def differs(told, match, function, *args, **options):
    """Assert that the second call, for which the number in the file is another one, is found to differ."""
    read, write = told
    compiled = xgrad.compile(lambda *args: function(read(), *args), verify=options or True)
    compiled(*args)
    write(3)
    with pytest.raises(CompiledMismatchError, match=match):
        compiled(*args)


# ------------------------------------------------------------ what differs


def test_a_result_is_named_with_its_path_position_and_values(told):
    differs(
        told,
        r"function|the result\['a'\]\[1\] is 6.0 at \[1\] eagerly, and 4.0 compiled \(2 of 3 elements differ, by 3 at",
        lambda n, x: {"a": [x, x * xgrad.tensor([0.0, n, n])]},
        leaf().detach(),
    )


def test_the_message_says_what_to_do(told):
    differs(
        told, r"in this call .*<lambda> does something else .* give that as an argument", lambda n, x: x * n, leaf()
    )


def test_a_written_tensor(told):
    differs(
        told,
        r"the tensor args\[0\] \(shape \[3\]\) is 5.0 at \[0\] eagerly",
        lambda n, x: x.fill_(n + 2),
        leaf().detach(),
    )


def test_a_tensor_in_an_object_has_its_name(told):
    class Model:
        weight = leaf().detach()

    model = Model()
    model.bias = leaf().detach()
    differs(told, r"the tensor model\.bias ", lambda n: [model.bias.fill_(n)])


def test_a_gradient(told):
    def backward(n, x):
        x.grad = None
        (x * n).sum().backward()

    differs(told, r"the \.grad of the tensor args\[0\] .*is 3.0 at \[0\] eagerly, and 2.0 compiled", backward, leaf())


def test_a_gradient_that_only_one_has(told):
    def backward(n, x):
        x.grad = None
        if n == 3:
            x.sum().backward()

    differs(told, r"\.grad of the tensor args\[0\].* is a tensor eagerly, and None compiled", backward, leaf())


def test_flags_versions_shapes_and_dtypes(told):
    x = leaf()
    differs(
        told, "requires_grad of the result is True eagerly, and False", lambda n: x * n if n == 3 else x.detach() * n
    )
    _, write = told
    write(2)
    differs(told, "the shape of the result is", lambda n: x.detach()[: int(n)].clone())
    write(2)
    differs(told, "the dtype of the result is", lambda n: x.detach().to(xgrad.float32 if n == 2 else xgrad.float64) * 1)
    write(2)
    y = xgrad.zeros(3)
    differs(told, r"the version \(it counts the writes\) of", lambda n: [y.add_(0) for _ in range(int(n))] and None)


def test_random_numbers(told):
    def function(n):
        first = xgrad.rand(2)
        if n == 3:
            xgrad.rand(2)
        return first

    differs(told, "a random generator is in another state", function)


def test_a_container(told):
    kept = {}

    def function(n, x):
        kept["a"] = x * n

    read, write = told
    compiled = xgrad.compile(lambda x: function(read(), x), verify=True)
    compiled(leaf().detach())
    compiled(leaf().detach())
    write(3)
    with pytest.raises(CompiledMismatchError, match=r"has at 'a' is 3.0 at \[0\] eagerly, and 2.0 compiled"):
        compiled(leaf().detach())


def test_a_slot_that_a_property_hides():
    class Base:
        __slots__ = ("factor", "kept")

    class Hiding(Base):
        __slots__ = ()
        factor = property(lambda self: 2.0)

    held = Hiding()
    held.kept = None

    def function(x):
        held.kept = x * held.factor
        return held.kept

    compiled = xgrad.compile(function, verify=True)
    for _ in range(3):
        assert compiled(xgrad.ones(3)).sum() == 6
        assert held.kept.sum() == 6


def test_a_tensor_that_the_eager_run_does_not_touch(told):
    x = leaf().detach()

    def function(n):
        if n == 2:
            x.add_(1)

    differs(told, r"the program changes the tensor x \(shape \[3\]\), and the eager run does not touch it", function)


def test_an_exception_of_the_eager_run(told):
    def function(n, x):
        if n == 3:
            raise KeyError("three")
        return x * n

    differs(told, "the eager run raises KeyError: 'three', and the program does not", function, leaf())


def test_the_structure_of_the_result(told):
    differs(told, "the result is .* eagerly, and .* compiled", lambda n, x: (x,) * int(n), leaf())


def test_backward_outside_is_compared_once():
    counter = itertools.count(1)

    class Scale(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * next(counter)

    compiled = xgrad.compile(lambda x: Scale.apply(x), verify=True)
    with pytest.raises(CompiledMismatchError, match=r"the gradient of the tensor args\[0\] .* by backward outside"):
        compiled(leaf())


def test_tolerance(told):
    read, write = told
    function = xgrad.compile(lambda x: x * read(), verify={"rtol": 0.1, "atol": 0})
    function(leaf())
    write(2.1)
    function(leaf())
    write(3)
    with pytest.raises(CompiledMismatchError, match=r"tolerance .*, of rtol=0.1, atol=0"):
        function(leaf())


# ------------------------------------------------------------ what does not


def momentum():
    w, state = leaf(), {}

    def step(x):
        w.grad = None
        loss = ((w * x) ** 2).sum()
        loss.backward()
        with xgrad.no_grad():
            v = state.get("v")
            state["v"] = w.grad.clone() if v is None else v * 0.9 + w.grad
            w.sub_(state["v"], alpha=0.01)
        return {"loss": loss.detach(), 1: w}

    return step, [leaf().detach()], [w, state]


def views_and_hooks():
    x, base = leaf(), leaf().detach()
    x.register_hook(lambda grad: grad * 2)
    part = base[1:]

    def function():
        part.mul_(2)
        (x * base).sum().backward()
        return part, base[:2], x.grad, float("nan") * base

    return function, [], [x, base, part]


def histories():
    x = leaf()

    def function(y):
        z = (x * y).tanh()
        return z, z[0], y

    return function, [leaf(3.0, 2.0, 1.0)], [x]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", [momentum, views_and_hooks, histories])
def test_a_verified_call_does_what_it_does_without(program):
    traces = 2 if program in (momentum, views_and_hooks) else 1
    compiled = agree(program, calls=3, traces=traces, verify=True)
    assert compiled.metrics().verified == 3


def test_backward_through_a_verified_result():
    x = leaf()
    compiled = xgrad.compile(lambda x: (x * x).tanh(), verify=True)
    for _ in range(2):
        x.grad = None
        compiled(x).sum().backward()
        expected = leaf()
        (expected * expected).tanh().sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), expected.grad.numpy(), rtol=1e-12)


def test_methods_buckets_and_functions_inside():
    inner = xgrad.compile(lambda x: x * 2, verify=True)

    class Model:
        def __init__(self):
            self.w = leaf()

        @xgrad.compile(verify=True, dynamic={"x": 0})
        def forward(self, x):
            return inner(x).sum() * self.w

    model = Model()
    for n in (3, 4, 3):
        assert model.forward(xgrad.ones(n, dtype=xgrad.float64)).tolist() == [2.0 * n, 4.0 * n, 6.0 * n]
    assert model.forward.metrics().verified == 3
    assert inner.metrics().calls == 0


def test_python_side_effects_happen_twice(capsys):
    def function(x):
        print("ran")  # nothing puts that back
        return x * 2

    compiled = xgrad.compile(function, verify=True)
    compiled(leaf())
    compiled(leaf())
    assert capsys.readouterr().out.count("ran") == 3  # the trace, and two eager runs


def test_writes_happen_once():
    def function(x):
        x.add_(1)
        return x.sum()

    compiled = xgrad.compile(function, verify=True)
    x = leaf().detach()
    compiled(x)
    assert x.tolist() == [2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    "module", ["logging_of_nobody", "numpyro_of_nobody", "jax_of_nobody", "nobody", "xgrad.ops", "jax.nobody"]
)
def test_a_log_is_written_once(module):
    class Log:
        __module__ = module

        def __init__(self):
            self.lines = []

    log = Log()

    @xgrad.compile(verify=True)
    def step(x):
        log.lines.append("called")
        return x * 2

    step(xgrad.ones(2))
    assert log.lines == ["called"]


def test_views_whose_history_a_write_has_changed():
    """Eagerly a view's history is made anew when it is asked for, and one of `split`'s may have none any more."""

    def write(base, view, w):
        first, _ = base.split(2)
        view.mul_(w)
        return base, view, first

    base = xgrad.ones(4, dtype=xgrad.float64)
    base, view, first = xgrad.compile(write, verify=True)(base, base[1:], leaf())
    assert not base.is_leaf
    assert not view.is_leaf
    with pytest.raises(xgrad.errors.InplaceViewError, match="returns multiple views"):
        first.grad_fn


def test_objects_of_c_have_members_that_are_never_written():
    getter, items = operator.attrgetter("shape"), [leaf().detach()]
    compiled = xgrad.compile(lambda x: x * getter(items[0])[0], verify=True)
    for _ in range(2):
        assert compiled(leaf()).tolist() == [3.0, 6.0, 9.0]


# ------------------------------------------------------------ the environment


def test_the_environment(monkeypatch):
    monkeypatch.setenv("XGRAD_COMPILE", "verify")
    assert verifications() == 1
    assert verifications(verify=False) == 0
    monkeypatch.setenv("XGRAD_COMPILE", "1")
    with pytest.raises(ValueError, match="XGRAD_COMPILE may be verify, or unset, but is '1'"):
        verifications()
    monkeypatch.delenv("XGRAD_COMPILE")
    assert verifications() == 0


def verifications(**options):
    compiled = xgrad.compile(lambda x: x * 2, **options)
    compiled(leaf())
    return compiled.metrics().verified


@pytest.mark.parametrize("verify", [1, "yes", {"tol": 1}])
def test_what_verify_takes(verify):
    with pytest.raises(TypeError, match="verify="):
        xgrad.compile(lambda x: x, verify=verify)
