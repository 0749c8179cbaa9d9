"""Code that the function reaches in roundabout ways: what it depends on is looked at all the same."""

import contextlib
import functools
import operator

import numpy as np
import pytest

import xgrad

from ..oracle import leaf

N = 2  # what all these functions multiply with


def by_n(x):
    return x * N


@xgrad.no_grad()
def without_grad(x):
    return x * N


def decorated(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


@contextlib.contextmanager
def block():
    yield N


def in_a_block(x):
    with block() as n:
        return x * n


class Object:
    def __init__(self):
        self._hidden = None

    @property
    def n(self):
        return N

    @staticmethod
    def static(x):
        return x * N

    @classmethod
    def of_class(cls, x):
        return x * N

    def __call__(self, x):
        return x * N

    def __rmul__(self, x):
        return x * N

    def __getitem__(self, x):
        return x * N


class Net(xgrad.nn.Module):
    def forward(self, x):
        return x * N


class Times(xgrad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * N

    @staticmethod
    def backward(ctx, grad):
        return grad * N


class Backward(xgrad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad * N


def through_backward(x):
    y = x.detach().requires_grad_()
    return xgrad.autograd.grad(Backward.apply(y).sum(), y)[0]


def by_hook(x):
    y = x.detach().requires_grad_()
    y.register_hook(lambda g: g * N)
    return xgrad.autograd.grad(y.sum(), y)[0]


@functools.singledispatch
def dispatched(x):
    return x * N


def from_a_module(x):
    return operator.mul(x, N)


o, net = Object(), Net()
table = {"f": by_n, "g": [decorated(by_n)]}

WAYS = {
    "a function": by_n,
    "a decorated one": decorated(by_n),
    "no_grad()": without_grad,
    "a context manager": in_a_block,
    "a property": lambda x: x * o.n,
    "a static method": lambda x: Object.static(x),
    "of an object": lambda x: o.static(x),
    "a class method": lambda x: Object.of_class(x),
    "__call__": lambda x: o(x),
    "an operator": lambda x: x * 1 if o is None else o.__rmul__(x),
    "indexing": lambda x: o[x],
    "forward": lambda x: net(x),
    "the module": net,
    "the object": o,
    "a partial": functools.partial(by_n),
    "a table": lambda x: table["f"](x) + table["g"][0](x),
    "a Function": lambda x: Times.apply(x),
    "its backward": through_backward,
    "a hook": by_hook,
    "a compiled function": xgrad.compile(by_n),
    "one inside": lambda x: compiled(x),
    "a comprehension": lambda x: sum([x * N for _ in range(2)]),
    "a nested function": lambda x: (lambda: x * N)(),
    "a checkpoint": lambda x: xgrad.utils.checkpoint.checkpoint(by_n, x, use_reentrant=False),
    "vmap": lambda x: xgrad.func.vmap(by_n)(x),
    "a library's function": from_a_module,
    "map": lambda x: next(iter(map(by_n, [x]))),
}
compiled = xgrad.compile(by_n)


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", WAYS)
def test_a_global_of_code_that_is_reached(name, monkeypatch):
    function, x = WAYS[name], leaf(xgrad, 3).detach()
    mine = xgrad.compile(function)
    for n in (2, 3, 2):
        monkeypatch.setitem(globals(), "N", n)
        np.testing.assert_allclose(mine(x).numpy(), function(x).numpy())
    if mine.metrics().calls:
        assert mine.metrics().traces == 2


class Hidden:
    def __init__(self):
        self._n = 2

    @property
    def n(self):
        return self._n

    @functools.cached_property
    def kept(self):
        return self._n


def test_what_a_property_reads():
    hidden, x = Hidden(), leaf(xgrad, 3).detach()
    step = xgrad.compile(lambda x: x * hidden.n)
    for n in (2, 3):
        hidden._n = n
        np.testing.assert_allclose(step(x).numpy(), (x * n).numpy())


def test_a_subclass_of_list_or_dict_is_a_container():
    class Bag(dict):
        pass

    class Row(list):
        pass

    bag, row, x = Bag(t=leaf(xgrad, 3).detach()), Row([1, 2]), leaf(xgrad, 3).detach()
    step = xgrad.compile(lambda x: bag["t"] * x + row[0])
    step(x)
    row[0], bag["t"] = 5, bag["t"] * 2
    np.testing.assert_allclose(step(x).numpy(), (bag["t"] * x + 5).numpy())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("read", [lambda o: getattr(o, "_n", 0), lambda o: o.__dict__["_n"], lambda o: vars(o)["_n"]])
def test_attributes_that_are_named_by_strings(read):
    hidden, x = Hidden(), leaf(xgrad, 3).detach()
    step = xgrad.compile(lambda x: x * read(hidden))
    for n in (2, 3):
        hidden._n = n
        np.testing.assert_allclose(step(x).numpy(), (x * n).numpy())
    del hidden._n
    hidden.__dict__["_n"] = 4
    np.testing.assert_allclose(step(x).numpy(), (x * 4).numpy())
