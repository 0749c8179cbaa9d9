"""Compiled functions in other traces, as decorators, methods and modules."""

import copy
import gc
import pickle
import weakref

import jax
import numpy as np
import pytest

import xgrad
from xgrad.tensor import from_array

from ..oracle import leaf, same


def values(n=3, seed=0):
    return leaf(xgrad, n, seed=seed).detach() * 1


def square(x):
    return (x * x).sum()


def step(x, w):
    x.mul_(2)
    (x * w).tanh().sum().backward()
    return w.grad


def test_in_a_compiled_function():
    inner = xgrad.compile(step)

    def outer(x, w):
        inner(x, w)
        return inner(x, w) * 1

    eager, mine = [(values(), leaf(xgrad, 3, seed=1)) for _ in range(2)]
    compiled = xgrad.compile(outer)
    for _ in range(3):
        step(*eager)
        same(compiled(*mine), step(*eager), rtol=1e-9)
        same(mine[0], eager[0], rtol=1e-9)
    assert inner.metrics().traces == 0
    inner(*mine)
    assert inner.metrics().traces == 1


@pytest.mark.exhaustive
def test_in_transforms():
    compiled, x = xgrad.compile(square), values()
    rows = xgrad.stack([x, x + 1])
    np.testing.assert_allclose(xgrad.func.grad(compiled)(x).numpy(), 2 * x.numpy())
    np.testing.assert_allclose(xgrad.func.vmap(compiled)(rows).numpy(), (rows * rows).sum(1).numpy())
    np.testing.assert_allclose(xgrad.func.hessian(compiled)(x).numpy(), 2 * np.eye(3))
    np.testing.assert_allclose(xgrad.func.jvp(compiled, (x,), (x,))[1].numpy(), 2 * compiled(x).numpy())
    np.testing.assert_allclose(xgrad.autograd.functional.jacobian(compiled, x).numpy(), 2 * x.numpy())
    with xgrad.autograd.forward_ad.dual_level():
        dual = xgrad.autograd.forward_ad.make_dual(x, x)
        tangent = xgrad.autograd.forward_ad.unpack_dual(compiled(dual)).tangent
    np.testing.assert_allclose(tangent.numpy(), 2 * compiled(x).numpy())


@pytest.mark.exhaustive
def test_around_transforms():
    x = values()
    for function in (xgrad.func.grad(square), xgrad.func.vmap(lambda t: t * 2), xgrad.func.hessian(square)):
        same(xgrad.compile(function)(x), function(x), rtol=1e-9)


def test_a_view_that_a_transform_of_forward_mode_gives_leaves_a_compiled_function():
    def diagonal(x):
        return xgrad.func.jvp(lambda x: (x * x).diagonal(), (x,), (x,))

    x = xgrad.tensor([[1.0, 2.0], [3.0, 4.0]])
    for function in (diagonal, xgrad.compile(diagonal)):
        output, tangent = function(x)
        assert (output.tolist(), tangent.tolist()) == ([1, 16], [2, 32])
        assert "tangent" not in repr(output._base)


def test_in_jax():
    compiled = xgrad.compile(square)

    def by_array(a):
        return compiled(from_array(a))._read()

    a = np.arange(3.0)
    np.testing.assert_allclose(jax.jit(by_array)(a), 5.0)
    np.testing.assert_allclose(jax.grad(lambda a: jax.jit(by_array)(a))(a), 2 * a)
    np.testing.assert_allclose(jax.vmap(by_array)(np.stack([a, a])), [5.0, 5.0])
    np.testing.assert_allclose(compiled(xgrad.asarray(a)).numpy(), 5.0)
    np.testing.assert_allclose(jax.grad(by_array)(a), 2 * a)  # now that there is a program for such a tensor
    np.testing.assert_allclose(jax.jit(jax.vmap(by_array))(np.stack([a, a])), [5.0, 5.0])
    assert compiled.metrics().traces == 1
    captured = []

    def closing_over(a):
        t = from_array(a)
        captured.append(xgrad.compile(lambda: t * 2)()._read())
        return captured[-1]

    np.testing.assert_allclose(jax.jit(closing_over)(a), 2 * a)


def test_around_jax():
    inner = jax.jit(lambda a: a * 2)
    function = xgrad.compile(lambda x: from_array(inner(x._read())) + xgrad.asarray(jax.numpy.ones(3)))
    x = values()
    for _ in range(2):
        np.testing.assert_allclose(function(x).numpy(), 2 * x.numpy() + 1)


def test_backward_of_a_compiled_result_in_a_compiled_function():
    w = leaf(xgrad, 3)
    forward = xgrad.compile(lambda x: (w * x).exp())

    def train(x):
        w.grad = None
        forward(x).sum().backward()
        return w.grad

    x = values(seed=1)
    same(xgrad.compile(train)(x), train(x), rtol=1e-9)


def test_a_generator_of_calls_that_is_recursive():
    @xgrad.compile
    def power(x, n):
        return x if n == 0 else power(x, n - 1) * x

    x = values()
    np.testing.assert_allclose(power(x, 3).numpy(), (x**4).numpy())
    assert power.metrics().traces == 1


# -- as a decorator ----------------------------------------------------------------------------------------------------


def test_a_decorator_keeps_the_name_and_takes_options():
    @xgrad.compile
    def plain(x):
        """Adds one."""
        return x + 1

    @xgrad.compile(donate=False, options={"xla_cpu_enable_fast_math": False})
    def with_options(x):
        return x.add_(1)

    @xgrad.compile(disable=True)
    def disabled(x):
        return x.sum().item()

    x = values()
    assert (plain.__name__, plain.__doc__) == ("plain", "Adds one.")
    assert plain.__wrapped__(x).tolist() == plain(x).tolist()
    assert "plain" in repr(plain)
    assert with_options(x) is x
    assert isinstance(disabled(x), float)
    assert not hasattr(disabled, "metrics")


class Counter:
    def __init__(self, value):
        self.total = values() * value

    @xgrad.compile
    def add(self, x):
        self.total.add_(x)
        return self.total * 1

    @xgrad.compile(donate=False)
    def again(self, x, *, by=2):
        return self.total * by + x

    @staticmethod
    @xgrad.compile
    def static(x):
        return x * 3

    @classmethod
    @xgrad.compile
    def of_class(cls, x):
        return x * len(cls.__name__)


def test_methods_of_two_objects():
    a, b, x = Counter(1), Counter(2), values(seed=1)
    expected = [t.total.clone() for t in (a, b)]
    for _ in range(3):
        for i, t in enumerate((a, b)):
            expected[i] = expected[i] + x
            np.testing.assert_allclose(t.add(x).numpy(), expected[i].numpy())
            np.testing.assert_allclose(t.total.numpy(), expected[i].numpy())
    assert a.add is a.add
    assert a.add.metrics() == a.add.metrics()
    assert (a.add.metrics().traces, b.add.metrics().traces) == (1, 1)
    assert isinstance(Counter.add, type(a.add))
    np.testing.assert_allclose(a.again(x, by=3).numpy(), (a.total * 3 + x).numpy())
    np.testing.assert_allclose(Counter.static(x).numpy(), (x * 3).numpy())
    np.testing.assert_allclose(a.of_class(x).numpy(), (x * 7).numpy())
    np.testing.assert_allclose(Counter.add(b, x).numpy(), (expected[1] + x).numpy())


def test_an_object_with_a_compiled_method_is_freed():
    gc.collect()
    t = Counter(1)
    t.add(values())
    alive = weakref.ref(t)
    del t
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_of_an_object_have_methods_of_their_own(how):
    a, x = Counter(1), values(seed=1)
    a.add(x)
    b = how(a)
    b.total = a.total.clone()
    before = a.total.clone()
    np.testing.assert_allclose(b.add(x).numpy(), (before + x).numpy())
    np.testing.assert_allclose(a.total.numpy(), before.numpy())
    np.testing.assert_allclose(a.add(x).numpy(), (before + x).numpy())
    assert dir(a)


@xgrad.compile
def one_more(x):
    return x + 1


def test_a_function_is_copied_and_pickled_by_name():
    assert copy.deepcopy(one_more) is one_more
    assert pickle.loads(pickle.dumps(one_more)) is one_more


class Slotted:
    __slots__ = ("t",)

    @xgrad.compile
    def twice(self):
        return self.t * 2


def test_a_method_of_an_object_with_slots():
    o = Slotted()
    for i in range(2):
        o.t = values(seed=i)
        np.testing.assert_allclose(o.twice().numpy(), (o.t * 2).numpy())
    assert Slotted.twice.metrics().calls == 2


# -- modules -----------------------------------------------------------------------------------------------------------


class Net(xgrad.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = xgrad.nn.Parameter(leaf(xgrad, 3).detach())
        self.register_buffer("count", xgrad.tensor(0.0))

    def forward(self, x, scale=1):
        self.count.add_(1)
        return (self.w * x).tanh() * scale


class Compiled(Net):
    @xgrad.compile
    def forward(self, x, scale=1):
        return super().forward(x, scale)


@pytest.mark.parametrize("make", [lambda: xgrad.compile(Net()), Compiled])
def test_a_module(make):
    net, eager, x = make(), Net(), values(seed=1)
    module = getattr(net, "_orig_mod", net)
    for scale in (1, 1, 2):
        for n in (net, eager):
            n(x, scale=scale).sum().backward()
        same(module.w.grad, eager.w.grad, rtol=1e-9)
    assert module.count.item() == 3
    assert list(dict(module.named_parameters())) == ["w"]
    assert list(module.state_dict()) == ["w", "count"]


def test_a_modules_hooks_are_part_of_it():
    net, x = Net(), values(seed=1)
    compiled = xgrad.compile(net)
    first = compiled(x).detach().numpy()
    handle = net.register_forward_hook(lambda module, args, out: out * 2)
    np.testing.assert_allclose(compiled(x).detach().numpy(), 2 * first)
    handle.remove()
    np.testing.assert_allclose(compiled(x).detach().numpy(), first)
