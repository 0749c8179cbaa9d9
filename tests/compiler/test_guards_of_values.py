"""What the user's code reads of objects, containers, tensors and hooks, in each way that it can be changed."""

import argparse
import array
import collections
import contextvars
import dataclasses
import enum
import functools
import operator
import os
import sys
import threading
import types
import weakref

import numpy as np
import pytest

import xgrad


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Attributes(dict):
    pass


class AttributeList(list):
    pass


class Point(collections.namedtuple("Base", "x y")):  # with a __dict__
    pass


class Number(int):
    pass


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Data:
    lr: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    lr: float = 1.0


class Cached:
    def __init__(self):
        self.lr = 1.0

    @functools.cached_property
    def doubled(self):
        return 2 * self.lr

    def rate(self):
        return self.lr


class Meta(type):
    def __call__(cls, *args):
        return super().__call__(*args) if cls.made is None else cls.made


class Made(metaclass=Meta):
    made = None

    def __init__(self):
        self.lr = 1.0


class WithPartial:
    def scaled(self, x, by):
        return x * by

    twice = functools.partialmethod(scaled, by=2.0)


VAR = contextvars.ContextVar("VAR", default=1.0)


def by_kind(x, value):
    return x * value


def attribute(name):
    return lambda o, x: x * getattr(o, name)


def put(name, value):
    return lambda o: setattr(o, name, value)


class _Descriptor:
    def __init__(self, value):
        self.value = value

    def __get__(self, instance, owner):
        return self.value


def _with(value, **attributes):
    for name, item in attributes.items():
        setattr(value, name, item)
    return value


def _local(**attributes):
    return _with(threading.local(), **attributes)


def _twice():
    return lambda x: x * 2


def _defaulted():
    return lambda x, by=2.0, *, plus=1.0: x * by + plus


def _read_only(value):
    value.setflags(write=False)
    return value


def _dispatched():
    @functools.singledispatch
    def scaled(value, x):
        return x * 2

    return scaled


def _memo():
    table = {"lr": 1.0}

    @functools.lru_cache
    def memo(k):
        return table["lr"] * k

    return memo, table


def _flip(keywords):
    keywords["by"] = 7.0 if keywords["by"] == 2.0 else 2.0


# name: (what makes the object, what uses it, what changes it)
CASES = {
    "a SimpleNamespace": (lambda: types.SimpleNamespace(lr=1.0), lambda o, x: x * o.lr, put("lr", 3.0)),
    "an argparse.Namespace": (lambda: argparse.Namespace(lr=1.0), lambda o, x: x * o.lr, put("lr", 3.0)),
    "a UserDict": (lambda: collections.UserDict(lr=1.0), lambda o, x: x * o["lr"], lambda o: o.update(lr=3.0)),
    "a UserList": (lambda: collections.UserList([1.0]), lambda o, x: x * o[0], lambda o: o.__setitem__(0, 3.0)),
    "a UserString": (lambda: collections.UserString("a"), lambda o, x: x * len(o), put("data", "abc")),
    "a ContextVar": (lambda: VAR, lambda o, x: x * o.get(), lambda o: o.set(3.0)),
    "a deque": (lambda: collections.deque([1.0]), lambda o, x: x * o[-1], lambda o: o.append(3.0)),
    "a defaultdict": (
        lambda: collections.defaultdict(float, lr=1.0), lambda o, x: x * o["lr"], lambda o: o.update(lr=3.0),
    ),
    "a Counter": (lambda: collections.Counter("aab"), lambda o, x: x * o["a"], lambda o: o.update("a")),
    "an OrderedDict": (
        lambda: collections.OrderedDict(a=2.0, b=3.0),
        lambda o, x: functools.reduce(lambda y, v: y * v + v, o.values(), x), lambda o: o.move_to_end("a"),
    ),
    "a ChainMap": (
        lambda: collections.ChainMap({}, {"lr": 1.0}), lambda o, x: x * o["lr"], lambda o: o.maps[1].update(lr=3.0),
    ),
    "a dictionary's order": (
        lambda: {"a": 2.0, "b": 3.0}, lambda o, x: functools.reduce(lambda y, v: y * v + v, o.values(), x),
        lambda o: o.update(a=o.pop("a")),
    ),
    "a mappingproxy": (
        lambda: Plain(d={"lr": 1.0}), lambda o, x: x * types.MappingProxyType(o.d)["lr"], lambda o: o.d.update(lr=3.0),
    ),
    "a held mappingproxy": (
        lambda: (d := {"lr": 1.0}, types.MappingProxyType(d)), lambda o, x: x * o[1]["lr"],
        lambda o: o[0].update(lr=3.0),
    ),
    "a threading.local": (lambda: _local(lr=1.0), lambda o, x: x * o.lr, put("lr", 3.0)),
    "a weak reference": (
        lambda: (p := Plain(lr=1.0), weakref.ref(p)), lambda o, x: x * o[1]().lr, lambda o: setattr(o[0], "lr", 3.0),
    ),
    "a weak proxy": (
        lambda: (p := Plain(lr=1.0), weakref.proxy(p)), lambda o, x: x * o[1].lr, lambda o: setattr(o[0], "lr", 3.0),
    ),
    "a WeakValueDictionary": (
        lambda: (p := Plain(lr=1.0), weakref.WeakValueDictionary(a=p)), lambda o, x: x * o[1]["a"].lr,
        lambda o: setattr(o[0], "lr", 3.0),
    ),
    "a dataclass": (Data, lambda o, x: x * o.lr, put("lr", 3.0)),
    "dataclasses.replace": (Data, lambda o, x: x * dataclasses.replace(o).lr, put("lr", 3.0)),
    "dataclasses.asdict": (Data, lambda o, x: x * sum(dataclasses.asdict(o).values()), put("lr", 3.0)),
    "a frozen dataclass with slots": (
        Frozen, lambda o, x: x * o.lr, lambda o: object.__setattr__(o, "lr", 3.0),
    ),
    "a partial": (
        lambda: functools.partial(by_kind, value=1.0), lambda o, x: o(x), lambda o: o.keywords.update(value=3.0),
    ),
    "a partialmethod": (
        WithPartial, lambda o, x: o.twice(x), lambda o: _flip(vars(WithPartial)["twice"].keywords),
    ),
    "a cached_property": (
        lambda: (c := Cached(), c.doubled)[0], lambda o, x: x * o.doubled, put("doubled", 7.0),
    ),
    "attributes of a dict": (
        lambda: _with(Attributes(a=1), lr=1.0), lambda o, x: x * o.lr, put("lr", 3.0),
    ),
    "attributes of a list": (lambda: _with(AttributeList(), lr=1.0), lambda o, x: x * o.lr, put("lr", 3.0)),
    "attributes of a named tuple": (lambda: _with(Point(1, 2), lr=1.0), lambda o, x: x * o.lr, put("lr", 3.0)),
    "attributes of a number": (lambda: _with(Number(2), lr=1.0), lambda o, x: x * o.lr * int(o), put("lr", 3.0)),
    "attributes of a member": (lambda: _with(Color.RED, lr=1.0), lambda o, x: x * o.lr, put("lr", 3.0)),
    "attributes of a function": (lambda: _with(lambda x: x, lr=1.0), lambda o, x: x * o.lr, put("lr", 3.0)),
    "attributes of a partial": (lambda: _with(functools.partial(abs), lr=1.0), lambda o, x: x * o.lr, put("lr", 3.0)),
    "a member": (lambda: Plain(c=Color.RED), lambda o, x: x * o.c.value, put("c", Color.BLUE)),
    "vars": (lambda: Plain(a=1.0), lambda o, x: x * sum(vars(o).values()), put("b", 3.0)),
    "__dict__": (lambda: Plain(a=1.0), lambda o, x: x * sum(o.__dict__.values()), put("a", 3.0)),
    "getattr of a computed name": (lambda: Plain(w0=1.0), lambda o, x: x * getattr(o, "w" + str(0)), put("w0", 3.0)),
    "getattr with a default": (lambda: Plain(), lambda o, x: x * getattr(o, "s", 1.0), put("s", 3.0)),
    "hasattr": (lambda: Plain(), lambda o, x: x * 2 if hasattr(o, "s") else x, put("s", 3.0)),
    "a class attribute that appears": (
        lambda: type("Cfg", (), {}), lambda o, x: x * getattr(o, "s", 1.0), put("s", 3.0),
    ),
    "attrgetter": (
        lambda: (Plain(lr=1.0), operator.attrgetter("lr")), lambda o, x: x * o[1](o[0]),
        lambda o: setattr(o[0], "lr", 3.0),
    ),
    "methodcaller": (
        lambda: (Plain(lr=lambda: 1.0), operator.methodcaller("lr")), lambda o, x: x * o[1](o[0]),
        lambda o: setattr(o[0], "lr", lambda: 3.0),
    ),
    "itemgetter": (lambda: [1.0, 2.0], lambda o, x: x * operator.itemgetter(1)(o), lambda o: o.__setitem__(1, 3.0)),
    "__class__": (
        lambda: type("A", (), {"lr": 1.0})(), lambda o, x: x * o.lr,
        lambda o: setattr(o, "__class__", type("B", (), {"lr": 3.0})),
    ),
    "__bases__": (
        lambda: type("C", (type("A", (), {"lr": 1.0}),), {}), lambda o, x: x * o.lr,
        lambda o: setattr(o, "__bases__", (type("B", (), {"lr": 3.0}),)),
    ),
    "a metaclass's attribute": (
        lambda: type("M", (type,), {"lr": 1.0})("A", (), {}), lambda o, x: x * o.lr,
        lambda o: setattr(type(o), "lr", 3.0),
    ),
    "a metaclass's __call__": (lambda: Made, lambda o, x: x * o().lr, lambda o: setattr(o, "made", Plain(lr=3.0))),
    "__code__": (lambda: _twice(), lambda o, x: o(x), put("__code__", (lambda x: x * 3).__code__)),
    "__defaults__": (lambda: _defaulted(), lambda o, x: o(x), put("__defaults__", (3.0,))),
    "__kwdefaults__": (lambda: _defaulted(), lambda o, x: o(x), put("__kwdefaults__", {"plus": 3.0})),
    "an entry of __kwdefaults__": (_defaulted, lambda o, x: o(x), lambda o: o.__kwdefaults__.update(plus=3.0)),
    "a large array": (lambda: np.ones(9000), lambda o, x: x * o.sum(), lambda o: o.__setitem__(8999, 5.0)),
    "an array of objects": (
        lambda: np.array([1.0, None], object), lambda o, x: x * o[0], lambda o: o.__setitem__(0, 3.0),
    ),
    "an object in an array": (
        lambda: np.array([Plain(lr=1.0)], object), lambda o, x: x * o[0].lr, lambda o: setattr(o[0], "lr", 3.0),
    ),
    "a read-only array": (
        lambda: _read_only(np.ones(5)), lambda o, x: x * o.sum(),
        lambda o: (o.setflags(write=True), o.__setitem__(0, 5.0), o.setflags(write=False)),
    ),
    "a 0-dim array": (lambda: np.array(1.0), lambda o, x: x * float(o), lambda o: o.__setitem__((), 3.0)),
    "an array with NaN": (lambda: np.array([np.nan, 1.0]), lambda o, x: x * o[1], lambda o: o.__setitem__(1, 3.0)),
    "a structured array": (
        lambda: np.zeros(2, [("a", "f4"), ("b", "i8")]), lambda o, x: x + o["b"][1], lambda o: o["b"].__setitem__(1, 3),
    ),
    "a zero's sign in an array": (
        lambda: np.array([0.0]), lambda o, x: xgrad.atan2(x * o[0], -x), lambda o: o.__setitem__(0, -0.0),
    ),
    "a zero's sign": (lambda: [0.0], lambda o, x: xgrad.atan2(x * o[0], -x), lambda o: o.__setitem__(0, -0.0)),
    "a NumPy zero's sign": (
        lambda: [np.float32(0)], lambda o, x: xgrad.atan2(x * o[0], -x), lambda o: o.__setitem__(0, np.float32(-0.0)),
    ),
    "a bool for an int": (lambda: [1], lambda o, x: x * len(str(o[0])), lambda o: o.__setitem__(0, True)),
    "a float for an int": (lambda: [1], lambda o, x: x * len(str(o[0])), lambda o: o.__setitem__(0, 1.0)),
    "a slice": (lambda: [slice(0, 2)], lambda o, x: x[o[0]], lambda o: o.__setitem__(0, slice(1, 3))),
    "a range": (lambda: [range(2)], lambda o, x: x * len(o[0]), lambda o: o.__setitem__(0, range(3))),
    "bytes": (lambda: [b"a"], lambda o, x: x * len(o[0]), lambda o: o.__setitem__(0, b"abc")),
    "a bytearray": (lambda: bytearray(b"a"), lambda o, x: x * o[0], lambda o: o.__setitem__(0, 3)),
    "an array.array": (lambda: array.array("d", [1.0]), lambda o, x: x * o[0], lambda o: o.__setitem__(0, 3.0)),
    "the type of an array's items": (
        lambda: [array.array("i", [1, 2])], lambda o, x: x * ord(o[0].typecode),
        lambda o: o.__setitem__(0, array.array("I", [1, 2])),
    ),
    "the shape of a memoryview": (
        lambda: [memoryview(bytes(4))], lambda o, x: x * len(o[0].shape),
        lambda o: o.__setitem__(0, memoryview(bytes(4)).cast("B", (2, 2))),
    ),
    "a set": (lambda: {1.0}, lambda o, x: x * sum(o), lambda o: o.add(3.0)),
    "a frozenset": (lambda: [frozenset({1})], lambda o, x: x * sum(o[0]), lambda o: o.__setitem__(0, frozenset({3}))),
    "an attribute of a tensor": (lambda: _with(xgrad.ones(3), lr=1.0), lambda o, x: x * o.lr + o, put("lr", 3.0)),
    "one that appears": (lambda: xgrad.ones(3), lambda o, x: x * getattr(o, "lr", 1.0) + o, put("lr", 3.0)),
    "one that is only read": (lambda: _with(xgrad.ones(3), lr=1.0), lambda o, x: x * o.lr, put("lr", 3.0)),
    "a tensor of a tensor": (
        lambda: _with(xgrad.ones(3), buffer=xgrad.ones(3)), lambda o, x: x * o.buffer, put("buffer", xgrad.zeros(3)),
    ),
    "os.environ": (
        lambda: os.environ, lambda o, x: x * len(o.get("XGRAD_OF_A_TEST", "")),
        lambda o: o.update(XGRAD_OF_A_TEST="ab"),
    ),
    "a descriptor": (
        lambda: type("A", (), {"lr": _Descriptor(1.0)})(), lambda o, x: x * o.lr,
        lambda o: setattr(vars(type(o))["lr"], "value", 3.0),
    ),
    "a singledispatch": (lambda: _dispatched(), lambda o, x: o(1, x), lambda o: o.register(int)(lambda v, x: x * 3)),
    "a ContextVar's default": (
        lambda: contextvars.ContextVar("DEFAULT", default=Plain(lr=1.0)),  # noqa: B039 - it changes
        lambda o, x: x * o.get().lr,
        lambda o: setattr(o.get(), "lr", 3.0),
    ),
    "a dictionary's values": (
        lambda: (d := {"lr": 1.0}, d.values()), lambda o, x: x * sum(o[1]), lambda o: o[0].update(lr=3.0),
    ),
    "a dictionary's keys": (
        lambda: (d := {"lr": 1.0}, d.keys()), lambda o, x: x * len(o[1]), lambda o: o[0].update(m=3.0),
    ),
    "a WeakMethod": (
        lambda: (c := Cached(), weakref.WeakMethod(c.rate)), lambda o, x: x * o[1]()(),
        lambda o: setattr(o[0], "lr", 3.0),
    ),
    "a default_factory": (
        lambda: collections.defaultdict(lambda: 1.0), lambda o, x: x * o.default_factory(),
        put("default_factory", lambda: 3.0),
    ),
    "an exception's arguments": (lambda: KeyError(1.0), lambda o, x: x * o.args[0], put("args", (3.0,))),
    "__init__": (
        lambda: type("A", (), {"__init__": lambda self: setattr(self, "lr", 1.0)}), lambda o, x: x * o().lr,
        put("__init__", lambda self: setattr(self, "lr", 3.0)),
    ),
    "the class of a tensor": (
        lambda: xgrad.ones(3).as_subclass(type("Rated", (xgrad.Tensor,), {"lr": 1.0})), lambda o, x: x * o.lr,
        lambda o: setattr(type(o), "lr", 3.0),
    ),
    "a module that is there later": (
        lambda: sys.modules, lambda o, x: x * (1 + ("xgrad_of_a_test" in sys.modules)),
        lambda o: o.update(xgrad_of_a_test=types),
    ),
    "an lru_cache": (lambda: _memo(), lambda o, x: x * o[0](1), lambda o: (o[1].update(lr=3.0), o[0].cache_clear())),
}  # fmt: skip
REMEMBERING = {"a singledispatch"}  # in the first trace, so that there is a second one


@pytest.mark.one_in(30)
@pytest.mark.parametrize("where", ["closure", "attribute"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_changed_is_seen(name, where, monkeypatch):
    monkeypatch.delenv("XGRAD_OF_A_TEST", raising=False)
    make, use, change = CASES[name]
    made = make()
    holder = Plain(made=made)
    function = (lambda x: use(made, x)) if where == "closure" else (lambda x: use(holder.made, x))
    compiled, x = xgrad.compile(function), xgrad.tensor([1.0, 2.0, 3.0])
    try:
        for _ in range(2):
            np.testing.assert_array_equal(compiled(x).numpy(), function(x).numpy())
        traces = compiled.metrics().traces
        assert traces == 1 + (name in REMEMBERING), compiled.metrics()
        change(made)
        for _ in range(2):
            np.testing.assert_array_equal(compiled(x).numpy(), function(x).numpy())
        assert compiled.metrics().traces <= traces + 1 + (name in REMEMBERING), compiled.metrics()
    finally:
        VAR.set(1.0)
        Made.made = None
        vars(Color.RED).pop("lr", None)
        sys.modules.pop("xgrad_of_a_test", None)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["an argument", "keywords", "within a list", "within a tree"])
def test_the_order_of_dictionaries_among_arguments(kind):
    def step(d, x):
        for value in d.values():
            x = x * value + value
        return x

    call = {
        "an argument": (lambda f, d, x: f(d, x), step),
        "keywords": (lambda f, d, x: f(x, **d), lambda x, **d: step(d, x)),
        "within a list": (lambda f, d, x: f([1, d], x), lambda ds, x: step(ds[1], x)),
        "within a tree": (lambda f, d, x: f({"a": (d,)}, x), lambda ds, x: step(ds["a"][0], x)),
    }
    run, function = call[kind]
    compiled, x = xgrad.compile(function), xgrad.tensor([1.0, 2.0])
    a, b = xgrad.tensor(2.0), xgrad.tensor(3.0)
    for d in ({"a": a, "b": b}, {"b": b, "a": a}, {"a": b, "b": a}):
        assert run(compiled, d, x).tolist() == run(function, d, x).tolist()
    assert compiled.metrics().traces == 2
    assert "keys in the order ['a', 'b'], and has ['b', 'a']" in compiled.metrics().reasons[0]


HOOKS = {
    "a leaf's": lambda x, k: x.register_hook(lambda g: g * k()),
    "after accumulation": lambda x, k: x.register_post_accumulate_grad_hook(lambda t: (t.grad.mul_(k()), None)[1]),
    "an accumulator's": lambda x, k: _accumulator(x).register_prehook(lambda g: (g[0] * k(),)),
    "of several": lambda x, k: xgrad.autograd.graph.register_multi_grad_hook((x,), lambda g: x.grad.mul_(k())),
}


def _accumulator(x):
    return xgrad.autograd.graph.get_gradient_edge(x).node


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", HOOKS)
def test_what_hooks_close_over(kind):
    x, rate = xgrad.tensor([1.0, 2.0], requires_grad=True), Plain(lr=2.0)
    node = _accumulator(x)
    by = 1.0

    def step():
        x.grad = xgrad.ones(2)
        (x * x).sum().backward()
        return x.grad * 1

    handle = HOOKS[kind](x, lambda: rate.lr * by)
    compiled = xgrad.compile(step)
    for _ in range(2):
        np.testing.assert_array_equal(compiled().numpy(), step().numpy())
    rate.lr = 3.0
    for _ in range(2):
        np.testing.assert_array_equal(compiled().numpy(), step().numpy())
    by = 5.0
    for _ in range(2):
        np.testing.assert_array_equal(compiled().numpy(), step().numpy())
    handle.remove()
    np.testing.assert_array_equal(compiled().numpy(), step().numpy())
    assert compiled.metrics().traces <= 4, compiled.metrics()
    del node


def test_what_saved_tensor_hooks_close_over():
    x, by = xgrad.tensor([1.0, 2.0], requires_grad=True), 2.0

    def step():
        x.grad = None
        (x * x).sum().backward()
        return x.grad * 1

    def unpack(t):
        return t * by

    compiled = xgrad.compile(step)
    with xgrad.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        for by in (2.0, 2.0, 3.0, 3.0):  # noqa: B007 - unpack closes over it
            np.testing.assert_array_equal(compiled().numpy(), step().numpy())
    assert compiled.metrics().traces == 2, compiled.metrics()


def test_what_hooks_of_modules_close_over():
    layer, by, x = xgrad.nn.Linear(2, 2), 2.0, xgrad.ones(2)
    layer.register_forward_hook(lambda module, args, output: output * by)
    compiled = xgrad.compile(lambda x: layer(x))
    for by in (2.0, 2.0, 3.0, 3.0):  # noqa: B007 - the hook closes over it
        np.testing.assert_array_equal(compiled(x).detach().numpy(), layer(x).detach().numpy())
    assert compiled.metrics().traces == 2, compiled.metrics()


def test_attributes_of_tensors_that_the_function_sets_are_refused():
    x = xgrad.ones(2)

    def step():
        x.seen = 1
        return x * 2

    with pytest.raises(NotImplementedError, match="changes the attribute 'seen' of a tensor from outside"):
        xgrad.compile(step)()
    assert not hasattr(x, "seen")


def test_tensors_that_are_only_compared_by_identity():
    a, b = xgrad.ones(2), xgrad.ones(2)
    found = Plain(a=a, b=a)

    def function(x):
        return x * (2.0 if found.a is found.b else 3.0)

    compiled, x = xgrad.compile(function), xgrad.ones(2)
    for other in (a, b, a, b):
        found.b = other
        np.testing.assert_array_equal(compiled(x).numpy(), function(x).numpy())
    assert compiled.metrics().traces == 2


@pytest.mark.parametrize("base", [dict, collections.OrderedDict, list])
@pytest.mark.parametrize("others", [0, 40])
def test_a_container_that_makes_its_items_when_asked(base, others):
    """As transformers' table of activations.  Guards asked it for its items, and put what it made in their place."""

    class Making(base):
        def __getitem__(self, key):
            return super().__getitem__(key)()

        def __iter__(self):
            return iter([]) if base is list else super().__iter__()

    made = [lambda: lambda x: x * 2, *[lambda: None] * others]
    table = Making(made if base is list else enumerate(made))
    step = xgrad.compile(lambda x: table[0](x))
    x = xgrad.ones(2)
    assert [step(x).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
    assert all(base.__getitem__(table, i) is item for i, item in enumerate(made))
    base.__setitem__(table, 0, lambda: lambda x: x * 5)
    assert [step(x).tolist() for _ in range(2)] == [[5.0, 5.0]] * 2
    assert step.metrics().traces == 2
