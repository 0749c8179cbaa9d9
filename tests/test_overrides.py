"""Subclasses of Tensor and `__xgrad_function__`, against torch's `__torch_function__`."""

import gc
import weakref

import numpy as np
import pytest
import torch

import xgrad
from xgrad.overrides import disable_overrides, handle_xgrad_function, has_xgrad_function, is_tensor_like

PROTOCOL = {xgrad: "__xgrad_function__", torch: "__torch_function__"}
DISABLED = {xgrad: disable_overrides, torch: torch._C.DisableTorchFunctionSubclass}


def with_override(T, bases, override, name="Sub"):
    """A class of library `T` whose override is `override(cls, up, func, types, args, kwargs)`."""

    def protocol(cls, func, types, args=(), kwargs=None):
        up = getattr(super(made, cls), PROTOCOL[T], None)
        return override(cls, up, func, types, args, kwargs or {})

    made = type(name, bases, {PROTOCOL[T]: classmethod(protocol)})
    return made


def logging(T, log, name="Logged"):
    def override(cls, up, func, types, args, kwargs):
        log.append((func.__name__, [t.__name__ for t in types]))
        return up(func, types, args, kwargs)

    return with_override(T, (T.Tensor,), override, name)


def plain_subclass(T, name="Sub"):
    return type(name, (T.Tensor,), {})


CALLS = {
    "add": lambda T, x, t: x + 1,
    "reflected": lambda T, x, t: t + x,
    "right of a number": lambda T, x, t: 2 * x,
    "function": lambda T, x, t: T.add(t, x),
    "method": lambda T, x, t: x.mul(t),
    "in place": lambda T, x, t: x.add_(1),
    "in place on a plain one": lambda T, x, t: t.clone().mul_(x),
    "comparison": lambda T, x, t: x == t,
    "reduction": lambda T, x, t: x.sum(dim=0),
    "several results": lambda T, x, t: x.max(0),
    "several results of a function": lambda T, x, t: T.max(x, 0),
    "split": lambda T, x, t: x.split(1),
    "chunk function": lambda T, x, t: T.chunk(x, 2),
    "unbind": lambda T, x, t: x.unbind(),
    "view": lambda T, x, t: x.t(),
    "view function": lambda T, x, t: T.transpose(x, 0, 1),
    "reshape function": lambda T, x, t: T.reshape(x, (3, 2)),
    "squeeze function": lambda T, x, t: T.squeeze(x),
    "T": lambda T, x, t: x.T,
    "data": lambda T, x, t: x.data,
    "detach": lambda T, x, t: x.detach(),
    "getitem": lambda T, x, t: x[0],
    "advanced index": lambda T, x, t: x[T.tensor([0, 1])],
    "in a list": lambda T, x, t: T.cat([t, x]),
    "in a list of a composite": lambda T, x, t: T.hstack([t, x]),
    "second of a composite": lambda T, x, t: T.where(t > 0, t, x),
    "by name": lambda T, x, t: T.flip(input=x, dims=(0,)),
    "layer": lambda T, x, t: T.nn.functional.linear(t, x),
    "composite layer": lambda T, x, t: T.nn.functional.cross_entropy(x, t),
    "like": lambda T, x, t: T.zeros_like(x),
    "new": lambda T, x, t: x.new_zeros(2),
    "shape": lambda T, x, t: x.shape[0],
    "len": lambda T, x, t: len(x),
    "item": lambda T, x, t: x[0, 0].item(),
    "bool": lambda T, x, t: bool(x[0, 0]),
    "grad": lambda T, x, t: x.grad,
    "autograd.grad": lambda T, x, t: T.autograd.grad((x.requires_grad_() * 2).sum(), [x]),
    "is_leaf": lambda T, x, t: x.is_leaf,
    "requires_grad_": lambda T, x, t: x.requires_grad_(),
    "clamp": lambda T, x, t: x.clamp(0, 1),
    "to a plain one": lambda T, x, t: x.as_subclass(T.Tensor),
    "iteration": lambda T, x, t: list(x),
    "allclose": lambda T, x, t: T.allclose(x, t),
}


def kinds(value):
    """The classes of a result; those of a tuple one by one."""
    if isinstance(value, (tuple, list)) and not isinstance(value, (torch.Size, xgrad.Size)):
        return [type(v).__name__ for v in value]
    return type(value).__name__


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_results_have_the_class_that_torch_gives_them(call):
    def program(T):
        x = T.ones(2, 3).as_subclass(plain_subclass(T))
        return kinds(call(T, x, T.ones(2, 3)))

    assert program(xgrad) == program(torch)


# torch calls a comparison `__eq__`, and counts Tensor among the types where Python code asks.
ELSEWISE = ("iteration", "comparison", "composite layer")


@pytest.mark.parametrize("name", [n for n in CALLS if n not in ELSEWISE])
def test_overrides_are_asked_about_what_torch_asks_about(name):
    def program(T):
        log = []
        x = T.ones(2, 3).as_subclass(logging(T, log))
        CALLS[name](T, x, T.ones(2, 3))
        return log

    ours, theirs = program(xgrad), program(torch)
    assert ours == theirs


def test_properties_are_asked_about_with_their_accessors():
    seen = []

    def override(cls, up, func, types, args, kwargs):
        seen.append(func)
        return up(func, types, args, kwargs)

    x = xgrad.ones(2).as_subclass(with_override(xgrad, (xgrad.Tensor,), override))
    x.requires_grad = True
    x.grad = xgrad.ones(2)
    x.shape
    del x.grad
    Tensor = xgrad.Tensor
    assert seen == [Tensor.requires_grad.__set__, Tensor.grad.__set__, Tensor.shape.__get__, Tensor.grad.__delete__]
    assert x.requires_grad


def orders(T):
    """Who is asked, in which order, with which types."""
    log = []

    def note(name, answer):
        def override(cls, up, func, types, args, kwargs):
            log.append((name, [t.__name__ for t in types]))
            return answer if answer is NotImplemented else name

        return override

    A = with_override(T, (T.Tensor,), note("A", NotImplemented), "A")
    B = with_override(T, (A,), note("B", NotImplemented), "B")
    C = with_override(T, (T.Tensor,), note("C", NotImplemented), "C")
    D = with_override(T, (), note("D", "D"), "D")
    E = with_override(T, (D,), note("E", NotImplemented), "E")
    t = T.ones(2)
    a, b, c = (t.as_subclass(kind) for kind in (A, B, C))
    results = []
    for args in ((a, b), (b, a), (a, c), (a, D()), (D(), E()), (t, E()), (a, a), (D(), t)):
        try:
            results.append(T.add(*args))
        except TypeError as error:
            results.append("Multiple dispatch failed" in str(error))
    results.append(t + D())
    return results, log


def test_a_subclass_is_asked_before_its_bases_and_the_rest_from_left_to_right():
    assert orders(xgrad) == orders(torch)


def test_refusal_by_all_names_function_and_classes():
    kind = with_override(xgrad, (), lambda cls, up, func, types, args, kwargs: NotImplemented, "Refusing")
    for call, name in ((xgrad.add, "xgrad.add"), (xgrad.transpose, "xgrad.transpose"), (xgrad.var, "xgrad.var")):
        with pytest.raises(TypeError, match=f"(?s)Multiple dispatch failed for '{name}'.*Refusing"):
            call(kind(), 0, 1) if call is xgrad.transpose else call(kind(), 0)


DUCKS = {
    "operator": lambda T, d, t: T.exp(d),
    "static arguments": lambda T, d, t: T.sum(d, 0),
    "operator with a check": lambda T, d, t: T.clamp(d, 0, 1),
    "composite": lambda T, d, t: T.var(d),
    "view": lambda T, d, t: T.transpose(d, 0, 1),
    "flatten": lambda T, d, t: T.flatten(d),
    "list": lambda T, d, t: T.cat([t, d]),
    "in place": lambda T, d, t: t.add_(d),
    "reflected": lambda T, d, t: t * d,
    "layer": lambda T, d, t: T.nn.functional.linear(t, d),
    "loss": lambda T, d, t: T.nn.functional.cross_entropy(t, d),
    "matmul": lambda T, d, t: T.matmul(t, d),
}


@pytest.mark.parametrize("call", DUCKS.values(), ids=DUCKS)
def test_a_class_that_is_no_tensor_answers_for_functions(call):
    def program(T):
        def override(cls, up, func, types, args, kwargs):
            return func.__name__, len(args) + len([v for v in kwargs.values() if isinstance(v, int) and v == 0])

        return call(T, with_override(T, (), override)(), T.ones(2, 3))[0]

    assert program(xgrad) == program(torch)


def test_table_of_implementations_finds_the_function():
    """The recipe of PyTorch's notes on extending: functions are keys."""
    handled = {}

    class Scalar:
        def __init__(self, n, value):
            self.n, self.value = n, value

        @classmethod
        def __xgrad_function__(cls, func, types, args=(), kwargs=None):
            return handled[func](*args, **(kwargs or {})) if func in handled else NotImplemented

    handled[xgrad.mean] = lambda input: float(input.value) / input.n
    handled[xgrad.var] = lambda input: 0.0
    handled[xgrad.transpose] = lambda input, dim0, dim1: input
    x = Scalar(5, 2)
    assert xgrad.mean(x) == 0.4
    assert xgrad.var(x) == 0.0
    assert xgrad.transpose(x, 0, 1) is x
    with pytest.raises(TypeError, match=r"'xgrad\.exp'"):
        xgrad.exp(x)


def test_gradients_flow_through_a_subclass():
    def program(T):
        kind = plain_subclass(T)
        w = T.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        x = w.as_subclass(kind)
        y = T.nn.functional.softmax(x.t() @ x, 0)
        z = x.clone()
        z[0].mul_(y[1])
        loss = (z * x).sum()
        (g,) = T.autograd.grad(loss, w, create_graph=True)
        (g * g).sum().backward()
        return type(loss).__name__, type(y).__name__, w.grad.tolist(), g.tolist()

    ours, theirs = program(xgrad), program(torch)
    assert ours[:2] == theirs[:2]
    np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-4)


def test_a_leaf_of_a_subclass_is_the_variable_of_its_accumulator():
    x = xgrad.Tensor._make_subclass(plain_subclass(xgrad), xgrad.ones(3), True)
    told = []
    x.register_post_accumulate_grad_hook(told.append)
    y = (x * x).sum()
    assert y.grad_fn.next_functions[0][0].next_functions[0][0].variable is x
    y.backward()
    assert told[0] is x
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    assert type(x.grad) is xgrad.Tensor
    assert x[0]._base is x


def test_a_saved_leaf_of_a_subclass_that_is_written_is_an_error():
    x = xgrad.Tensor._make_subclass(plain_subclass(xgrad), xgrad.ones(3), True)
    y = (x * x).sum()
    with xgrad.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_result_of_an_operation_keeps_its_own_node():
    x = xgrad.ones(2, requires_grad=True).as_subclass(plain_subclass(xgrad))
    assert x.grad_fn.name() == "AliasBackward0"
    assert (x * 2).grad_fn.name() == "MulBackward0"


def test_disabled_overrides_give_plain_tensors_and_come_back_after_an_error():
    def program(T):
        x = T.ones(2).as_subclass(plain_subclass(T))
        with DISABLED[T]():
            inside = [type(v).__name__ for v in (x + 1, x[0], x.t(), T.flip(x, (0,)))]
        with pytest.raises(ZeroDivisionError), DISABLED[T]():
            1 / 0
        return inside, type(x + 1).__name__

    assert program(xgrad) == program(torch)


def test_as_subclass_is_an_alias_and_make_subclass_a_leaf():
    def program(T):
        kind = plain_subclass(T)
        t = T.ones(2, requires_grad=True)
        alias = t.as_subclass(kind)
        leaf = T.Tensor._make_subclass(kind, t, True)
        with T.no_grad():
            leaf.add_(1)
        return (alias.is_leaf, leaf.is_leaf, leaf.requires_grad, t.tolist(), t._version, alias._version,
                T.Tensor._make_subclass(kind, t).requires_grad)  # fmt: skip

    assert program(xgrad) == program(torch)
    for wrong in (int, 3):
        with pytest.raises(TypeError, match="subclass of Tensor"):
            xgrad.ones(1).as_subclass(wrong)
        with pytest.raises(TypeError, match="subclass of Tensor"):
            xgrad.Tensor._make_subclass(wrong, xgrad.ones(1))


def test_a_subclass_is_made_from_data_and_prints_its_name():
    def program(T):
        kind = plain_subclass(T, "Named")
        x = kind([1.0, 2.0])
        return type(x).__name__, repr(x), repr(x + 1), x.tolist(), isinstance(x, T.Tensor)

    assert program(xgrad) == program(torch)


def test_a_subclass_is_assigned_and_copied_into_a_plain_tensor():
    def program(T):
        x, value = T.zeros(2, 3), T.ones(3).as_subclass(plain_subclass(T))
        x[0] = value
        x[1].copy_(value * 2)
        return type(x).__name__, x.tolist()

    assert program(xgrad) == program(torch)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["add", "mul", "matmul", "softmax", "sum", "cat", "index_select", "var"])
def test_batches_of_a_subclass_are_mapped_over(name):
    """The operator that maps over a batch has the name of its operator, and no public function."""
    index = xgrad.tensor([1, 0])
    calls = {
        "add": lambda a: a + a, "mul": lambda a: a * 2, "matmul": lambda a: a @ a, "var": lambda a: a.var(0),
        "softmax": lambda a: xgrad.softmax(a, 0), "sum": lambda a: a.sum(0), "cat": lambda a: xgrad.cat([a, a]),
        "index_select": lambda a: a.index_select(0, index),
    }  # fmt: skip
    x = xgrad.arange(8.0).reshape(2, 2, 2)
    plain = xgrad.func.vmap(calls[name])(x)
    ours = xgrad.func.vmap(calls[name])(x.as_subclass(plain_subclass(xgrad)))
    assert ours.tolist() == plain.tolist()


def test_methods_of_the_subclass_itself_count():
    class Mine(xgrad.Tensor):
        def sum(self):
            return "mine"

        @property
        def T(self):
            return "turned"

        def __getitem__(self, index):
            return super().__getitem__(index).as_subclass(xgrad.Tensor)

    x = xgrad.ones(2).as_subclass(Mine)
    assert (x.sum(), x.T, type(x[0])) == ("mine", "turned", xgrad.Tensor)
    assert type(x + x) is Mine


def test_functions_of_ones_own_may_be_overridden():
    def twice(x):
        if has_xgrad_function((x,)):
            return handle_xgrad_function(twice, (x,), x)
        return x + x

    class Duck:
        @classmethod
        def __xgrad_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    assert twice(Duck()) == "twice"
    assert twice(1) == 2
    assert is_tensor_like(Duck())
    assert is_tensor_like(xgrad.ones(1))
    assert not is_tensor_like(1)


def test_an_instance_dies_with_its_last_reference():
    x = xgrad.Tensor._make_subclass(plain_subclass(xgrad), xgrad.ones(3), True)
    gone = weakref.ref(x)
    gc.disable()
    try:
        y = (x * x).exp()
        y.sum().backward()
        del x, y
        assert gone() is None
    finally:
        gc.enable()
