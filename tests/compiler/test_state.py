"""State that lives in closures, globals, containers, objects and modules, and what is refused of it."""

import collections
import functools

import numpy as np
import pytest

import xgrad

from ..oracle import leaf
from .agreement import agree, look


def values(n=3, seed=0):
    return leaf(xgrad, n, seed=seed).detach() * 1


class Adam:
    """An optimizer as users write it: its state in attributes, lists and dictionaries."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.state = {p: {"m": xgrad.zeros_like(p), "v": xgrad.zeros_like(p)} for p in self.parameters}
        self.count = xgrad.tensor(0.0, dtype=xgrad.float64)

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    def step(self):
        self.count += 1
        with xgrad.no_grad():
            for p in self.parameters:
                m, v = self.state[p]["m"], self.state[p]["v"]
                m.mul_(0.9).add_(p.grad, alpha=0.1)
                v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                p.sub_(0.01 * (m / (1 - 0.9**self.count)) / ((v / (1 - 0.999**self.count)).sqrt() + 1e-8))


class Net(xgrad.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = xgrad.nn.Parameter(leaf(xgrad, 3, 3).detach() * 1)
        self.register_buffer("mean", xgrad.zeros(3, dtype=xgrad.float64))
        self.scale = 2.0

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(x.detach(), alpha=0.1)
        return (self.weight @ x - self.mean).tanh() * self.scale


@pytest.mark.exhaustive
def test_a_module_and_an_optimizer():
    def program():
        net = Net()
        optimizer = Adam(net.parameters())

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        watched = [net.weight, net.mean, list(optimizer.state.values()), optimizer.count]
        return step, [values()], watched

    agree(program, calls=4)


def test_a_modules_mode_and_attributes_are_guarded():
    net = Net()
    step = xgrad.compile(lambda x: net(x).detach())
    x = values()
    step(x)
    mean = net.mean.clone()
    net.eval()
    step(x)
    np.testing.assert_array_equal(net.mean.numpy(), mean.numpy())
    net.scale = 5.0
    np.testing.assert_allclose(step(x).numpy(), net(x).detach().numpy())
    net.train()
    net.scale = 2.0
    step(x)
    assert step.metrics().traces == 3
    assert "training was True and is False" in step.metrics().reasons[0]
    assert "scale was 2.0 and is 5.0" in step.metrics().reasons[1]


def test_a_module_whose_parameters_are_replaced():
    net = Net()
    step = xgrad.compile(lambda x: net(x).detach())
    x = values()
    step(x)
    net.weight = xgrad.nn.Parameter(net.weight.detach() * 3)
    np.testing.assert_allclose(step(x).numpy(), (net.weight @ x - net.mean).tanh().detach().numpy() * 2)
    assert step.metrics().traces == 1


def replacing():
    """Every container gets a new tensor in the place of the old one."""
    d, m, o = {"s": values()}, [values(seed=1), 3], collections.namedtuple("O", "inner")(Holder())
    cell = values(seed=2)

    def step(x):
        nonlocal cell
        d["s"] = d["s"] * x
        m[0] = m[0] + d["s"]
        o.inner.t = o.inner.t - x
        cell = cell * 2
        return cell + o.inner.t

    return step, [values(seed=3)], [d, m, o.inner.__dict__]


class Holder:
    def __init__(self):
        self.t = values(seed=4)


def test_tensors_are_replaced_in_containers():
    agree(replacing)


def test_new_keys_and_attributes_come_with_the_first_call():
    def program():
        d, o = {}, Holder()

        def step(x):
            if "m" not in d:
                d["m"] = xgrad.zeros_like(x)
                o.new = x * 1
            d["m"].add_(x)
            o.new.mul_(2)
            return d["m"] + o.new

        return step, [values()], [d, o.__dict__]

    agree(program, traces=2)


def test_a_defaultdict_and_an_ordered_dict():
    def program():
        d, o = collections.defaultdict(lambda: xgrad.zeros(3, dtype=xgrad.float64)), collections.OrderedDict(a=values())

        def step(x):
            d["m"].add_(x)
            o["a"] = o["a"] + x

        return step, [values()], [d, o]

    agree(program, traces=2)


@pytest.mark.parametrize("extra", [(), (np.ones(3),)])
def test_an_argument_that_is_a_container_is_not_filled(extra):
    """Neither with tracers, nor by the trace alone."""
    d, m, n = {"x": values()}, [values(seed=1)], {"inner": [1, values(seed=2)]}

    def in_a_dict(d, m, n, *extra):
        d["y"] = d["x"] * 2

    def in_a_list(d, m, n, *extra):
        m[0] = m[0] + 1

    def inside(d, m, n, *extra):
        n["inner"].append(n["inner"].pop())
        n["inner"][0] = 2

    before = look([d, m, n], {})
    for function, told in [(in_a_dict, r"dict\['y'\]"), (in_a_list, r"list\[0\]"), (inside, r"list\[0\]")]:
        with pytest.raises(NotImplementedError, match=rf"changes {told} of an argument in Python .* or return what is"):
            xgrad.compile(function)(d, m, n, *extra)
        np.testing.assert_equal(look([d, m, n], {}), before)


def test_tensors_in_an_argument_that_is_a_container_are_written():
    def program():
        def step(d, m):
            d["x"].add_(m[0])
            m[0].mul_(2)
            d["n"][0].sub_(1)

        return step, [{"x": values(), "n": (values(seed=2),)}, [values(seed=1)]], None

    agree(program)


def test_a_container_that_the_function_knows_may_be_an_argument_too():
    def program():
        d = {"x": values()}

        def step(e, x):
            e["x"] = e["x"] * x
            d["x"] = d["x"] + 1

        return step, [d, values(seed=1)], d

    agree(program)


def test_keys_are_taken_away():
    def program():
        d = {"x": values(), "y": values(seed=1)}

        def step():
            d["x"] = d.pop("y", d["x"]) * 2

        return step, [], d

    function, _, mine = program()
    compiled = xgrad.compile(function)
    with pytest.raises(NotImplementedError, match=r"changes dict\['y'\]"):
        compiled()
    assert list(mine) == ["x", "y"]


GLOBAL = xgrad.ones(3, dtype=xgrad.float64) * 1
NUMBER = 2


def test_globals_are_read_written_and_rebound(monkeypatch):
    monkeypatch.setitem(globals(), "GLOBAL", values())
    first = GLOBAL.clone()

    @xgrad.compile
    def step():
        global GLOBAL
        GLOBAL.add_(1)
        GLOBAL = GLOBAL * NUMBER

    for _ in range(3):
        step()
        first = (first + 1) * 2
        np.testing.assert_allclose(GLOBAL.numpy(), first.numpy())
    monkeypatch.setitem(globals(), "NUMBER", 3)
    step()
    np.testing.assert_allclose(GLOBAL.numpy(), 3 * (first + 1).numpy())
    assert step.metrics().traces == 2
    assert "global NUMBER was 2 and is 3" in step.metrics().reasons[0]


# -- what is refused ---------------------------------------------------------------------------------------------------


def refusals():
    """(name, function, world, what the error says): the world stays as it was."""

    def append():
        found = [values()]
        return lambda x: found.append(x * 2), found

    def extend_dict():
        d = {}

        def step(x):
            d[len(d)] = 3

        return step, d

    def count():
        o = Holder()
        o.steps = 0

        def step(x):
            o.t.add_(x)
            o.steps += 1

        return step, o.__dict__

    def count_nonlocal():
        n = 0
        t = values()

        def step(x):
            nonlocal n
            n += 1
            t.mul_(2)

        return step, [t, lambda: n]

    def an_item():
        d = {"n": 1, "t": values()}

        def step(x):
            d["t"] = d["t"] + x
            d["n"] += 1

        return step, d

    def cleared():
        found = [values(), values(seed=1)]
        return lambda x: found.clear(), found

    def nested():
        d = {"a": {"b": [values(), {"n": 0}]}}

        def step(x):
            d["a"]["b"][0].add_(x)
            d["a"]["b"][1]["n"] += 1

        return step, d

    def an_attribute_of_a_class():
        class Counter:
            n = 0

        def step(x):
            Counter.n += 1
            return x

        return step, [lambda: Counter.n]

    def a_module():
        net = Net()

        def step(x):
            net.scale = 7.0
            net.mean.add_(1)
            return net(x)

        return step, net.__dict__ | {"scale": net.scale}

    def the_argument():
        d = {"x": 1}

        def step(x):
            d.update(y=2)
            return x

        return step, d

    return locals()


REFUSALS = {name: make for name, make in refusals().items() if callable(make)}


def state_of(world):
    if isinstance(world, dict):
        return {key: state_of(item) for key, item in world.items()}
    if isinstance(world, list):
        return [state_of(item) for item in world]
    return world() if callable(world) and not isinstance(world, xgrad.Tensor) else world


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_program_cannot_repeat_is_refused_and_undone(name):
    function, world = REFUSALS[name]()
    x = values()
    before = look(state_of(world), {})
    step = xgrad.compile(function)
    for _ in range(2):
        with pytest.raises(NotImplementedError, match=r"xgrad.compile: the function changes .* in Python \(it was"):
            step(x)
        np.testing.assert_equal(look(state_of(world), {}), before)
    assert x._version == 0
    assert step.metrics() == (0, 0, (), 0.0, 0)


class Slots:
    __slots__ = ("__own", "n", "t")

    def __init__(self):
        self.t, self.n, self.__own = values(), 2, 3

    def run(self, x):
        self.t = self.t * x
        return self.t + self.n + self.__own


def test_objects_with_slots():
    def program():
        o = Slots()
        return o.run, [values(seed=1)], None

    agree(program)
    o, x = Slots(), values(seed=1)
    compiled = xgrad.compile(lambda: o.t * x + o.n)
    for n, t in ((2, o.t), (5, o.t), (5, values(seed=2))):
        o.n, o.t = n, t
        np.testing.assert_allclose(compiled().numpy(), (t * x + n).numpy())
    assert compiled.metrics().traces == 2


def test_a_slot_that_is_filled_where_it_was_empty():
    class Meter:
        __slots__ = ("total",)

        def update(self, x):
            self.total = self.total + x if hasattr(self, "total") else x * 1
            return self.total * 1

    x, eager, mine = values(), Meter(), Meter()
    update = xgrad.compile(mine.update)
    for _ in range(3):
        np.testing.assert_allclose(update(x).numpy(), eager.update(x).numpy())
    assert update.metrics().traces == 2


def test_a_deque():
    def program():
        queue = collections.deque([values(seed=1), values(seed=2)], maxlen=2)

        def step(x):
            queue.append(queue[0] * x)
            return queue[1] + queue[0]

        return step, [values()], queue

    agree(program)


def test_a_set():
    names, x = {"a", "b"}, values()
    compiled = xgrad.compile(lambda: x * len(names))
    compiled()
    names.add("c")
    np.testing.assert_allclose(compiled().numpy(), (x * 3).numpy())

    @xgrad.compile
    def adds():
        names.add("d")
        return x

    with pytest.raises(NotImplementedError, match="changes a set in Python"):
        adds()
    assert names == {"a", "b", "c"}


@pytest.mark.parametrize("maxsize", [None, 2])
def test_a_cache_of_tensors_that_the_trace_fills(maxsize):
    """As of masks: the program has them as constants, and outside there are tensors with values."""

    @functools.lru_cache(maxsize=maxsize)
    def mask(n):
        return xgrad.ones(n).cumsum(0)

    step = xgrad.compile(lambda x: x * mask(3))
    for _ in range(2):
        np.testing.assert_array_equal(step(xgrad.ones(3)).numpy(), [1, 2, 3])
        np.testing.assert_array_equal(mask(3).numpy(), [1, 2, 3])
    assert mask.cache_info().currsize == 1
