"""Objects that differ from call to call: each call makes ready, changes and returns its own."""

import collections
import importlib
import textwrap

import numpy as np
import pytest

import xgrad

PACKAGE = """
    import xgrad

    class Layer:
        def __init__(self):
            self.keys, self.ready = None, False
            self.length = xgrad.tensor(0)

        def start(self, x):
            self.device, self.width = x.device, x.shape[-1]
            self.keys = xgrad.zeros(4, self.width)
            self.ready = True

        def update(self, x):
            if not self.ready:
                self.start(x)
            place = xgrad.arange(len(x)) + self.length
            self.length.add_(len(x))
            self.keys.index_copy_(0, place, x)
            return self.keys

    class Cache:
        def __init__(self):
            self.layers = [Layer(), Layer()]

    class Model:
        def __init__(self):
            self.weights = [xgrad.tensor(2.0), xgrad.tensor(3.0)]

        def __call__(self, x, cache):
            for weight, layer in zip(self.weights, cache.layers):
                x = x + layer.update(x * weight).sum(0)
            return x, cache

    class Registry(dict):  # like a library's, by class
        def get(self, key):
            return super().get(type(key))

        def __setitem__(self, key, value):
            super().__setitem__(type(key), value)

    registry = Registry()
    registry[1] = 2.0

    def looked_up(x):
        return x * registry.get(3)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A module of an installed library: its code is looked at as it runs."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library_of_objects.py").write_text(textwrap.dedent(PACKAGE))
    monkeypatch.syspath_prepend(str(folder))
    return importlib.import_module("library_of_objects")


def steps(model, package, caches=3):
    """Return the results of a start and three steps, for one cache after the other."""
    found = []
    for _ in range(caches):
        cache = package.Cache()
        out, same = model(xgrad.ones(1, 3), cache)
        assert same is cache
        for _ in range(3):
            out, cache = model(out, cache)
            assert cache is same
            found.append(out.numpy())
        assert [(layer.ready, layer.width, int(layer.length)) for layer in cache.layers] == [(True, 3, 4)] * 2
    return np.stack(found)


@pytest.mark.parametrize("way", ["eager", "lazy"])
def test_each_cache_is_made_ready_and_returned_by_its_own_calls(package, way):
    expected = steps(package.Model(), package)
    compiled = xgrad.compile(package.Model())
    if way == "lazy":
        with xgrad.lazy():
            found = steps(compiled, package)
    else:
        found = steps(compiled, package)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert compiled.metrics().traces == 2, compiled.metrics().reasons  # the first call of a cache, and all others


class Box:
    def __init__(self, value):
        self.inner = value

    def __eq__(self, other):
        return True

    __hash__ = None


def test_an_object_from_outside_is_returned_by_each_call_as_its_own():
    @xgrad.compile
    def both(x, box):
        box.inner.t.add_(x)
        return box, [box.inner], {"box": box, "x": x * 2}

    for value in (1.0, 2.0, 3.0):
        box = Box(type("Inner", (), {})())
        box.inner.t = xgrad.tensor(value)
        first, (second,), third = both(xgrad.tensor(1.0), box)
        assert first is box
        assert second is box.inner
        assert third["box"] is box
        assert float(box.inner.t) == value + 1


def test_a_global_object_is_returned_as_it_is_now():
    world = {"box": Box(xgrad.tensor(1.0))}

    @xgrad.compile
    def step(x):
        return world["box"], x * world["box"].inner

    for value in (2.0, 3.0):
        world["box"] = Box(xgrad.tensor(value))
        box, result = step(xgrad.tensor(1.0))
        assert box is world["box"]
        assert float(result) == value


def test_a_module_is_returned_by_each_call_as_its_own():
    @xgrad.compile
    def step(module, x):
        return module, module(x)

    for _ in range(3):
        module = xgrad.nn.Linear(2, 2)
        found, result = step(module, xgrad.ones(2))
        assert found is module
        np.testing.assert_allclose(result.detach().numpy(), module(xgrad.ones(2)).detach().numpy(), rtol=1e-6)
    assert step.metrics().traces == 1


def test_an_object_that_the_function_makes_is_one_for_all_calls():
    step = xgrad.compile(lambda x: (x * 2, Box(3)))
    assert step(xgrad.ones(()))[1] is step(xgrad.ones(()))[1]


def test_a_flag_is_set_by_each_call():
    net = xgrad.nn.Dropout(0.5)

    @xgrad.compile
    def step(x):
        net.eval()
        return net(x)

    for _ in range(3):
        net.train()
        np.testing.assert_array_equal(step(xgrad.ones(3)).numpy(), np.ones(3))
        assert not net.training
    assert step.metrics().traces == 1


def test_a_dictionary_with_a_get_of_its_own_is_read_plainly(package):
    step = xgrad.compile(package.looked_up)
    assert [float(step(xgrad.tensor(1.0))) for _ in range(2)] == [2.0, 2.0]
    package.registry[1] = 4.0
    assert float(step(xgrad.tensor(1.0))) == 4.0


@pytest.mark.parametrize("kind", ["plain", "ordered"])
def test_a_dictionary_that_puts_items_in_its_own_way_is_restored(kind):
    base = {"plain": dict, "ordered": collections.OrderedDict}[kind]

    class Doubling(base):
        def __setitem__(self, key, value):
            base.__setitem__(self, key, value * 2)

        def get(self, key):
            return "never asked"

    table = Doubling()
    table["a"] = 1.0

    def step(x):
        table["a"] = 5.0
        table["b"] = 3.0
        return x * table["a"]

    with pytest.raises(NotImplementedError, match="changes"):
        xgrad.compile(step)(xgrad.ones(()))
    assert list(table.items()) == [("a", 2.0)]


def test_a_name_of_torch_that_the_function_asks_for_first_is_no_new_value():
    with xgrad.as_torch(replace=True):
        import torch

        vars(torch).pop("atanh", None)

        @xgrad.compile
        def step(x):
            return torch.atanh(x)

        for _ in range(3):
            step(xgrad.zeros(2))
    assert step.metrics().traces == 1, step.metrics().reasons
