"""What a later call is compared with: when it differs, the result is right, and the reason says what it was."""

import functools
import gc
import weakref

import jax
import numpy as np
import pytest

import xgrad

from ..oracle import leaf
from .agreement import look


def values(n=3, seed=0):
    return leaf(xgrad, n, seed=seed).detach() * 1


class Kind(xgrad.Tensor):
    pass


class Compared:
    """A function, called eagerly and compiled on the same arguments; it changes nothing."""

    def __init__(self, function):
        self.function, self.compiled = function, xgrad.compile(function)

    def __call__(self, *args, **kwargs):
        found, expected = self.compiled(*args, **kwargs), self.function(*args, **kwargs)
        np.testing.assert_equal(_plain(found), _plain(expected))
        return found

    def traced(self, count, reason=None):
        metrics = self.compiled.metrics()
        assert metrics.traces == count, metrics
        assert len(metrics.reasons) == count - 1
        if reason is not None:
            assert reason in metrics.reasons[-1], metrics.reasons


def _plain(value):
    found = look(value, {})
    if isinstance(found, dict):
        found.pop("version", None)
    return found


def twice(x, *rest):
    return x * 2


CHANGES = {
    "shape": (lambda: values(), lambda: values(4), "has another shape: it was (3,), and is (4,). Keep shapes the same"),
    "dtype": (lambda: values(), lambda: values().float(), "another dtype: it was float64, and is float32"),
    "requires_grad": (lambda: values(), lambda: values().requires_grad_(), "requires_grad: it was False, and is True"),
    "leaf": (lambda: leaf(xgrad, 3), lambda: leaf(xgrad, 3) * 1, "being a leaf: it was True, and is False"),
    "type": (values, lambda: values().as_subclass(Kind), "type: it was Tensor, and is Kind"),
    "a number": (lambda: 3, lambda: 4, "argument 0 was 3 and is 4. Give numbers that change as tensors"),
    "the kind of a number": (lambda: 3, lambda: 3.0, "argument 0 was 3 and is 3.0"),
    "a bool": (lambda: 1, lambda: True, "argument 0 was 1 and is True"),
    "a tensor instead of a number": (lambda: 3, values, "argument 0 was 3 and is a Tensor"),
    "structure": (lambda: [values()] * 2, lambda: (values(),) * 2, "the arguments have another structure"),
    "a longer list": (lambda: [2] * 2, lambda: [2] * 3, "the arguments have another structure"),
    "a sharding": (
        values,
        lambda: xgrad.asarray(jax.device_put(np.ones(3), jax.devices()[1])),
        "another sharding",
    ),
    "an array": (lambda: np.ones(3), lambda: np.ones(4), "the array of argument 0"),
    "a jax array": (lambda: jax.numpy.ones(3), lambda: jax.numpy.ones(3, int), "the array of argument 0"),
    "inference": (values, lambda: _inference(), "has other hooks, flags"),
    "a dtype": (lambda: xgrad.float32, lambda: xgrad.float64, "argument 0 was"),
    "a callable": (lambda: abs, lambda: len, "argument 0 is another builtin_function_or_method now"),
}


def _inference():
    with xgrad.inference_mode():
        return values() * 1


def describing(x):
    if isinstance(x, (list, tuple)):
        return len(x)
    if isinstance(x, xgrad.Tensor):
        return [(x * 2).detach(), x.dtype, x.requires_grad, x.is_leaf, type(x).__name__]
    return [xgrad.ones(2) * (x if isinstance(x, (int, float)) else 1), str(x) if callable(x) else None]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", CHANGES)
def test_another_kind_of_argument(name):
    before, after, reason = CHANGES[name]
    function = Compared(describing)
    a, b = before(), after()
    for argument in (a, a, b, b, a):
        function(argument)
    function.traced(2, reason)


def test_views_that_are_only_read_run_the_same_program():
    """As minibatches do, at each start; and what is no view at all."""
    batches = values(12).reshape(4, 3)
    function = Compared(lambda x: (x * 2, x))
    for x in (*batches, batches[:, :3][1], values()):
        function(x)
    function.traced(1)
    assert function.compiled(batches[2])[1] is not None


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.add_(1),
        lambda x: x[1:],
        lambda x: x.detach(),
        lambda x: xgrad.tensor(x.storage_offset()),
        lambda x: xgrad.tensor(x._base is None),
        lambda x: x.requires_grad_() * 2,
    ],
    ids=["written", "a view of it", "an alias", "its offset", "its base", "marked"],
)
def test_views_that_are_more_than_their_values_are_themselves(use):
    whole, twin = values(8), values(8)
    compiled = xgrad.compile(use)
    for start in (0, 2, 5):
        x, y = whole[start : start + 3], twin[start : start + 3]
        for _ in range(2):
            assert compiled(x).tolist() == use(y).tolist()
        assert whole.tolist() == twin.tolist()
        assert x.requires_grad == y.requires_grad


def test_a_view_that_is_read_and_its_base_that_is_written_are_the_same_memory():
    def step(x, whole):
        before = x * 1
        whole.mul_(2)
        return before, x * 1

    compiled = xgrad.compile(step)
    for other in (False, True, True):  # what shares no memory first
        a, b = values(8), values(8)
        found = compiled(a[2:5], a if other else values(8))
        expected = step(b[2:5], b if other else values(8))
        assert [t.tolist() for t in found] == [t.tolist() for t in expected]


def test_new_values_of_tensors_and_arrays_run_the_same_program():
    function = Compared(lambda x, a, b: x + xgrad.asarray(a) + xgrad.asarray(b))
    for i in range(3):
        function(values(seed=i), np.full(3, i + 0.5), jax.numpy.full(3, i))
    function.traced(1)


def test_grads_are_guarded_if_the_function_looks():
    looks, other = Compared(lambda x: 0 if x.grad is None else x.grad * 1), Compared(twice)
    x = leaf(xgrad, 3)
    looks(x)
    other(x)
    x.grad = values()
    looks(x)
    other(x)
    looks.traced(2, "grad being None: it was True, and is False. Set the grads to None inside")
    other.traced(1)
    x.grad = None
    looks(x)
    looks.traced(2)


def test_a_grad_of_another_shape_cannot_be_but_one_of_another_dtype_can():
    x = leaf(xgrad, 3)
    x.grad_dtype = None
    function = Compared(lambda x: x.grad.sum())
    for grad in (values(), values().float(), values()):
        x.grad = grad
        function(x)
    function.traced(2, "the grad of tensor 0 has another dtype")


HOOKS = {
    "a tensor's": lambda x, hook: x.register_hook(hook),
    "after accumulation": lambda x, hook: x.register_post_accumulate_grad_hook(lambda t: t.grad.mul_(2) and None),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_that_come_and_go(kind):
    def step(x):
        x.grad = None
        (x * x).sum().backward()
        return x.grad.clone()

    x = leaf(xgrad, 3)
    compiled = xgrad.compile(step)
    plain = step(x).numpy()
    for _ in range(2):
        np.testing.assert_allclose(compiled(x).numpy(), plain)
        handle = x.register_hook(lambda g: g * 2)
        for _ in range(2):
            np.testing.assert_allclose(compiled(x).numpy(), 2 * plain)
        handle.remove()
    np.testing.assert_allclose(compiled(x).numpy(), plain)
    assert compiled.metrics().traces == 3  # the second time it is another hook
    assert "has other hooks, flags" in compiled.metrics().reasons[0]


MODES = {
    "grad mode is False (was True)": xgrad.no_grad,
    "inference mode is True (was False)": xgrad.inference_mode,
    "the saved-tensor hooks": lambda: xgrad.autograd.graph.saved_tensors_hooks(abs, abs),
    "compiled_backward is Options(least=64, dump=None) (was None)": xgrad.autograd.compiled_backward,
    "the view tracking": lambda: xgrad.views.tracking("geometry"),
    "use_key is False (was True)": lambda: xgrad.random.use_key(jax.random.key(0)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("reason", MODES)
def test_modes(reason):
    function, x = Compared(lambda x, w: (x * w).sum().requires_grad), leaf(xgrad, 3)
    w = values()
    function(x, w)
    for _ in range(2):
        with MODES[reason]():
            function(x, w)
    function(x, w)
    function.traced(2, reason)


@pytest.mark.exhaustive
def test_the_default_dtype():
    function = Compared(lambda: xgrad.ones(2).dtype)
    function()
    before = xgrad.get_default_dtype()
    xgrad.set_default_dtype(xgrad.float64)
    try:
        assert function() is xgrad.float64
    finally:
        xgrad.set_default_dtype(before)
    function()
    function.traced(2, "the default dtype is dtype('float64')")


def test_modes_that_are_left_on_inside():
    """A mode that the function changes is one of the thread: later calls start without it."""
    x = leaf(xgrad, 3)

    def inside(x):
        with xgrad.no_grad():
            y = x * 2
        with xgrad.inference_mode():
            z = x * 3
        return y, z, x * 4

    compiled = xgrad.compile(inside)
    for _ in range(2):
        y, z, w = compiled(x)
        assert (y.requires_grad, z.is_inference(), w.requires_grad) == (False, True, True)
    assert compiled.metrics().traces == 1


# -- surroundings ------------------------------------------------------------------------------------------------------


class Options:
    scale = 2

    def __init__(self):
        self.shift, self.table = 1, {"a": 1}

    def apply(self, x):
        return x * self.scale + self.shift + self.table["a"]


def test_attributes_of_objects_and_classes(monkeypatch):
    options, x = Options(), values()
    function = Compared(lambda x: options.apply(x))
    function(x)
    options.shift = 2
    function(x)
    function.traced(2, "closure's options.shift was 1 and is 2")
    options.table["a"] = 5
    function(x)
    function.traced(3, "closure's options.table['a'] was 1 and is 5")
    monkeypatch.setattr(Options, "scale", 3)
    function(x)
    function.traced(4, "scale was 2 and is 3")
    monkeypatch.setattr(Options, "apply", lambda self, x: x - 1)
    function(x)
    function.traced(5)
    options.scale = 4
    options.apply = twice
    function(x)
    function.traced(6, "closure's options has got apply")


class Inheriting(Options):
    pass


def test_attributes_of_base_classes(monkeypatch):
    options, x = Inheriting(), values()
    function = Compared(lambda x: options.apply(x))
    function(x)
    monkeypatch.setattr(Options, "scale", 3)
    function(x)
    function.traced(2, "scale was 2 and is 3")
    monkeypatch.setattr(Inheriting, "scale", 4, raising=False)
    function(x)


def test_attributes_that_are_made_where_they_are_missing():
    class Meter:
        def update(self, x):
            if not hasattr(self, "total"):
                self.total = xgrad.zeros_like(x)
            self.total = self.total + x
            return self.total * 1

    x, eager, mine = values(), Meter(), Meter()
    update = xgrad.compile(mine.update)
    for _ in range(3):
        np.testing.assert_allclose(update(x).numpy(), eager.update(x).numpy())
    assert update.metrics().traces == 2


def test_methods_of_modules_that_are_replaced():
    class Net(xgrad.nn.Module):
        scale = 2

        def forward(self, x):
            return self.part(x) * self.scale

        def part(self, x):
            return x + 1

    net, x = Net(), values()
    function = Compared(lambda x: net(x))
    function(x)
    net.scale = 3
    function(x)
    net.part = twice
    function(x)
    net.forward = lambda x: x - 1
    function(x)
    function.traced(4)


def test_closures_and_defaults():
    number, x = 2, values()

    def inner(x, by=3):
        return x * number + by

    function = Compared(lambda x: inner(x))
    function(x)
    number = 3
    function(x)
    function.traced(2, "number was 2 and is 3")
    inner.__defaults__ = (4,)
    function(x)
    function.traced(3)

    def inner(x):
        return x

    function(x)
    function.traced(4, "inner is another function now")


def test_what_an_object_that_is_an_argument_has():
    function, x = Compared(lambda o, x: o.apply(x)), values()
    options = Options()
    function(options, x)
    options.shift = 4
    function(options, x)
    function(Options(), x)
    function.traced(2, "argument 0.shift was 1 and is 4")


def test_partials_and_lists_of_functions():
    steps, x = [twice, functools.partial(twice, 3)], values()
    function = Compared(lambda x: [f(x) for f in steps])
    function(x)
    steps[0] = abs
    function(x)
    function.traced(2)
    steps.append(abs)
    function(x)
    function.traced(3, "had 2 entries and has 3")


def test_a_numpy_constant_that_is_changed():
    table, x = np.arange(3.0), values()
    function = Compared(lambda x: x + xgrad.asarray(table))
    function(x)
    table[1] = 7
    function(x)
    function.traced(2, "is another array now")


# -- which tensors are the same ----------------------------------------------------------------------------------------


def changing(x, y):
    x.add_(1)
    y.mul_(2)
    return x + y


@pytest.mark.one_in(2)
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_arguments_that_are_the_same_or_share_a_storage(first):
    def pairs():
        x, base = values(), values(6)
        return [(values(), values(seed=1)), (x, x), (base[:3], base[3:]), (base[:3], base[1:4])]

    eager, mine = pairs(), pairs()
    compiled = xgrad.compile(changing)
    order = [first, 0, 1, 2, 3, first]
    for i in order:
        np.testing.assert_allclose(compiled(*mine[i]).numpy(), changing(*eager[i]).numpy())
        for a, b in zip(mine[i], eager[i]):
            np.testing.assert_allclose(a.numpy(), b.numpy())
    assert compiled.metrics().traces == 4


def test_a_base_that_is_an_argument_beside_its_view():
    def step(x, v):
        v.add_(1)
        x.mul_(2)
        return v * 1

    compiled = xgrad.compile(step)
    for make in (lambda b: (b, b[1:]), lambda b: (b, b[1:] * 1), lambda b: (b, b.detach()[1:])):
        eager, mine = make(values()), make(values())
        np.testing.assert_allclose(compiled(*mine).numpy(), step(*eager).numpy())
        for a, b in zip(mine, eager):
            np.testing.assert_allclose(a.numpy(), b.numpy())


def test_a_tensor_that_is_a_global_and_an_argument():
    x, compiled = values(), None

    def step(y):
        y.add_(1)
        return x * 2

    compiled, other = xgrad.compile(step), values(seed=1)
    for y in (x, other, x, x, other):
        before = x.clone() + (1 if y is x else 0)
        np.testing.assert_allclose(compiled(y).numpy(), 2 * before.numpy())
    assert compiled.metrics().traces == 2


def test_tensors_of_a_class_are_fetched_anew():
    class Config:
        weight, bias = xgrad.ones(2), xgrad.zeros(2)

        def __init__(self):
            self.scale = xgrad.full((2,), 3.0)

    config, last = Config(), xgrad.full((2,), 7.0)

    def step(x):
        return x * config.weight * config.scale + config.bias + last

    compiled = xgrad.compile(step)
    compiled(xgrad.ones(2))
    Config.weight = xgrad.full((2,), 5.0)
    config.scale = xgrad.full((2,), 2.0)
    Config.bias = xgrad.ones(2)
    assert compiled(xgrad.ones(2)).tolist() == step(xgrad.ones(2)).tolist() == [18.0, 18.0]
    assert compiled.metrics().traces == 1


def test_what_was_passed_or_replaced_is_not_held():
    class Model:
        def __init__(self):
            self.weight = xgrad.ones(2)

    model, state = Model(), {"momentum": xgrad.zeros(2)}

    def step(model, x):
        state["momentum"] = state["momentum"] * 0.9 + model.weight * x

    compiled = xgrad.compile(step)
    dead = [weakref.ref(model), weakref.ref(state["momentum"])]
    for _ in range(2):
        compiled(model, xgrad.ones(2))
    assert compiled.metrics().traces == 1
    del model
    gc.collect()  # JAX's own traces have cycles
    assert [reference() for reference in dead] == [None, None]


def test_a_gradient_that_is_another_tensor_too_is_looked_at():
    """The shared gradient is found by one way, and the other ways must lead to it in later calls."""
    a, b = xgrad.ones(3, requires_grad=True), xgrad.ones(3, requires_grad=True)
    a.grad = b.grad = xgrad.ones(3)
    step = xgrad.compile(lambda: a.grad + 10 * b.grad)
    assert step().tolist() == [11, 11, 11]
    a.grad = xgrad.ones(3) * 2
    assert step().tolist() == [12, 12, 12]
    b.grad = a.grad
    assert step().tolist() == [22, 22, 22]


def test_a_gradient_that_a_list_holds_too_is_looked_at():
    w, kept = xgrad.ones(3, requires_grad=True), [xgrad.zeros(3)]
    w.grad = kept[0]

    @xgrad.compile
    def step(x):
        (w * x).sum().backward()

    step(xgrad.ones(3))
    assert kept[0].tolist() == [1, 1, 1]
    w.grad = xgrad.ones(3) * 10
    step(xgrad.ones(3))
    assert (w.grad.tolist(), kept[0].tolist()) == ([11, 11, 11], [1, 1, 1])

    @xgrad.compile
    def add(x, grad):
        (w * x).sum().backward()
        return grad * 1

    assert add(xgrad.ones(3), w.grad).tolist() == [12, 12, 12]
    assert add(xgrad.ones(3), xgrad.zeros(3)).tolist() == [0, 0, 0]
    assert w.grad.tolist() == [13, 13, 13]


def test_a_base_that_is_found_too_is_looked_at():
    base = xgrad.arange(4.0)
    views, bases = [base[:2]], [base]
    same = xgrad.compile(lambda: views[0] * (2 if views[0]._base is bases[0] else 3))
    assert same().tolist() == [0, 2]
    bases[0] = base.detach()
    assert same().tolist() == [0, 3]


@pytest.mark.parametrize("wrapped", [xgrad.sin, xgrad.nn.functional.relu, np.sin, xgrad.Tensor.sin])
def test_a_wrapper_of_a_librarys_function_is_the_users_code(wrapped):
    factors = {"k": 1.0}

    @functools.wraps(wrapped)
    def function(x):
        return (x + 1).abs() * factors["k"]

    def made():
        inner = function
        return lambda x: inner(x)

    compared = Compared(made())
    for factor in (1.0, 2.0, 2.0, 3.0):
        factors["k"] = factor
        compared(values())
