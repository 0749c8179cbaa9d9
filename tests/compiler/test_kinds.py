"""What goes in and comes out: nested structures, arrays, numbers, and things that are no tensors."""

import collections
import dataclasses

import jax
import numpy as np
import pytest

import xgrad

from ..lanes import eager_cases
from ..oracle import leaf
from .agreement import look

Pair = collections.namedtuple("Pair", "first second")


class Words:
    pass


words = Words()
table = {"fixed": 1}


@jax.tree_util.register_pytree_node_class
class Node:
    def __init__(self, x, note):
        self.x, self.note = x, note

    def tree_flatten(self):
        return (self.x,), self.note

    @classmethod
    def tree_unflatten(cls, note, children):
        return cls(*children, note)


RESULTS = {
    "None": lambda x: None,
    "nothing": lambda x: (),
    "a tensor": lambda x: x * 2,
    "itself": lambda x: x,
    "a list": lambda x: [x, x * 2, [x * 3]],
    "a tuple": lambda x: (x * 2,),
    "a dict in its order": lambda x: {"b": x * 2, "a": x * 3, 1: None},
    "an OrderedDict": lambda x: collections.OrderedDict(b=x * 2, a=1),
    "a defaultdict": lambda x: collections.defaultdict(list, b=x * 2),
    "a NamedTuple": lambda x: Pair(x * 2, Pair(1, "two")),
    "of a tensor's method": lambda x: x.max(0),
    "numbers and strings": lambda x: (1, 2.5, "s", b"b", 1j, True, ...),
    "a shape": lambda x: x.shape,
    "a dtype": lambda x: [x.dtype, x.device, x.ndim],
    "a function": lambda x: len,
    "an object": lambda x: words,
    "a jax.Array": lambda x: (x * 2)._read(),
    "a jax.Array among tensors": lambda x: {"a": x._read(), "b": x},
    "a constant array": lambda x: jax.numpy.arange(3),
    "a NumPy array": lambda x: np.arange(3),
    "a constant tensor": lambda x: xgrad.tensor([1.0, 2.0]),
    "bools": lambda x: x > 0,
    "an empty tensor": lambda x: x[:0],
    "a slice": lambda x: slice(0, 1),
    "a generator's list": lambda x: list(x.unbind()),
    "no tensors": lambda x: [[], {}, ()],
    "nested deep": lambda x: {"a": [{"b": (x * 2, [None])}]},
}


@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", eager_cases("arrays", RESULTS, lambda name: name == "a jax.Array"))
def test_results_are_those_of_eager(name):
    x, function = leaf(xgrad, 3).detach() * 1, RESULTS[name]
    compiled = xgrad.compile(function)
    for _ in range(3):
        found, expected = compiled(x), function(x)
        assert type(found) is type(expected)
        np.testing.assert_equal(look([found, x], {}), look([expected, x], {}))
    assert compiled.metrics().traces == 1


def test_pytrees_of_ones_own():
    def function(n):
        return Node(n.x * 2, n.note + "!")

    compiled, x = xgrad.compile(function), leaf(xgrad, 3).detach()
    for _ in range(2):
        found = compiled(Node(x, "a"))
        assert (type(found), found.note) == (Node, "a!")
        np.testing.assert_allclose(found.x.numpy(), 2 * x.numpy())
    compiled(Node(x, "b"))
    assert compiled.metrics().traces == 2


def test_each_call_gives_new_tensors_and_containers():
    compiled, x = xgrad.compile(lambda x: [x * 2, {"a": x + 1}, xgrad.ones(2)]), leaf(xgrad, 3).detach()
    first, second = compiled(x), compiled(x)
    assert first is not second
    assert first[1] is not second[1]
    first[0].zero_()
    first[2].zero_()
    assert second[2].tolist() == [1, 1]
    np.testing.assert_allclose(second[0].numpy(), 2 * x.numpy())
    assert compiled(x)[2].tolist() == [1, 1]


def test_a_constant_tensor_that_is_changed_is_new_in_each_call():
    compiled = xgrad.compile(lambda: xgrad.tensor([1.0, 2.0]).add_(1))
    for _ in range(3):
        found = compiled()
        assert found.tolist() == [2, 3]
        found.mul_(0)


ARGUMENTS = {
    "keywords": (lambda x, *, by=2, **more: x * by + more.get("c", 0), lambda x: ((x,), {"by": 3, "c": x})),
    "defaults": (lambda x, by=2: x * by, lambda x: ((x,), {})),
    "varargs": (lambda *xs: sum(xs), lambda x: ((x, x, x * 2), {})),
    "a nested structure": (lambda d: d["a"][0] * d["b"], lambda x: (({"a": [x], "b": 2},), {})),
    "None": (lambda x, y: x if y is None else y, lambda x: ((x, None), {})),
    "an object": (lambda x, o: x * o.n, lambda x: ((x, holder()), {})),
    "a dataclass": (lambda x, o: x * o.n, lambda x: ((x, Data(3)), {})),
    "a dtype": (lambda x, dtype: x.to(dtype), lambda x: ((x, xgrad.float32), {})),
    "a function": (lambda x, f: f(x), lambda x: ((x, xgrad.sin), {})),
    "a string": (lambda x, s: getattr(x, s)(), lambda x: ((x, "exp"), {})),
    "a slice": (lambda x, s: x[s], lambda x: ((x, slice(1, None)), {})),
    "a NumPy number": (lambda x, n: x * n, lambda x: ((x, np.float32(2)), {})),
    "a NumPy array": (lambda x, a: x + xgrad.asarray(a), lambda x: ((x, np.arange(3.0)), {})),
    "a jax.Array": (lambda x, a: x + xgrad.asarray(a), lambda x: ((x, jax.numpy.arange(3.0)), {})),
    "arrays in a list": (lambda x, a: x + sum(map(xgrad.asarray, a)), lambda x: ((x, [np.ones(3), np.ones(3)]), {})),
    "an array of objects": (lambda x, a: x * a[0], lambda x: ((x, np.array([2, "s"], dtype=object)), {})),
    "a set": (lambda x, s: x * len(s), lambda x: ((x, {1, 2}), {})),
}


def holder():
    words.n = 3
    return words


@dataclasses.dataclass
class Data:
    n: int


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name):
    function, arguments = ARGUMENTS[name]
    compiled, x = xgrad.compile(function), leaf(xgrad, 3).detach()
    args, kwargs = arguments(x)
    for _ in range(3):
        np.testing.assert_allclose(compiled(*args, **kwargs).numpy(), function(*args, **kwargs).numpy())
    assert compiled.metrics()[:2] == (3, 1)


def test_a_numpy_argument_that_is_changed_later_is_read_in_each_call():
    compiled, a = xgrad.compile(lambda a: xgrad.asarray(a) * 2), np.arange(3.0)
    for i in range(3):
        a[0] = i
        found = compiled(a)
        a[0] = -1
        assert found.tolist() == [2 * i, 2, 4]


def test_keywords_in_another_order_are_one_program():
    compiled, x = xgrad.compile(lambda **k: k["a"] - k["b"]), leaf(xgrad, 3).detach()
    first = compiled(a=x, b=x * 2)
    assert first.tolist() == compiled(b=x * 2, a=x).tolist()
    assert compiled.metrics().traces == 1


def test_subclasses_and_parameters_keep_their_type():
    class Kind(xgrad.Tensor):
        pass

    x = leaf(xgrad, 3).detach().as_subclass(Kind)
    compiled = xgrad.compile(lambda x: (x * 2, x.detach(), xgrad.nn.Parameter(x.detach() * 1)))
    for _ in range(2):
        found, expected = compiled(x), compiled._function(x)
        assert [type(t) for t in found] == [type(t) for t in expected]
        assert isinstance(found[2], xgrad.nn.Parameter)
        assert found[2].requires_grad


def test_whether_a_tensor_is_a_parameter_is_guarded():
    compiled = xgrad.compile(lambda x: isinstance(x, xgrad.nn.Parameter))
    assert compiled(xgrad.nn.Parameter(xgrad.ones(3)))
    assert not compiled(xgrad.ones(3, requires_grad=True))


def test_no_arguments_and_no_tensors():
    compiled = xgrad.compile(lambda n: n + 1)
    assert [compiled(1), compiled(1), compiled(2)] == [2, 2, 3]


def test_arrays_that_the_function_brings_along_are_operands():
    """XLA's CPU compiler, as of jaxlib 0.7.2, folds transposes of constants wrong."""
    numbers = np.arange(8.0).reshape(2, 2, 2)

    def step():
        x = xgrad.from_numpy(numbers).permute((2, 1, 0)).detach().requires_grad_()
        loss = (x * x * x).sum()
        loss.backward(retain_graph=True)
        first = x.grad * 1
        loss.backward()
        return x.detach(), first, x.grad

    compiled = xgrad.compile(step)
    for _ in range(2):
        for mine, eager in zip(compiled(), step(), strict=True):
            np.testing.assert_array_equal(mine.numpy(), eager.numpy())
    assert "constant<[" not in compiled.lower().as_text()
