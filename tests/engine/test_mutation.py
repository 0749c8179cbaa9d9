"""allow_mutation_on_saved_tensors: gradients of what was saved, whatever is written; its context; its end."""

import gc
import weakref

import pytest

import xgrad
from xgrad.errors import MutationContextError

from ..oracle import as_torch, leaf, same, same_error
from .test_saved_variables import saved_base, saved_inplace_output, saved_input, saved_output, saved_view


def allow(T):
    return T.autograd.graph.allow_mutation_on_saved_tensors()


@pytest.mark.parametrize("make", [saved_input, saved_output, saved_view, saved_base, saved_inplace_output])
def test_allowed_mutation(make, path):
    """The gradients are those of a program that changes nothing after saving it."""

    def program(T):
        made = []

        def remember(T, *shape):
            made.append(leaf(T, *shape))
            return made[0]

        with allow(T):
            make(T, remember).backward()
        return made[0].grad

    as_torch(program)


def squared(x):
    return (x * x).sum()


def written(T, write):
    """What is original and what is changed, before and after a write, and the gradient."""
    with allow(T) as context:
        x = leaf(T, 2, 3)
        base = x * 1
        y = squared(base) + squared(base[0])
        before = len(context.original), len(context.cloned)
        write(T, base)
        after = len(context.original), len(context.cloned)
        y.backward()
        return before, after, (len(context.original), len(context.cloned)), x.grad


def under_no_grad(T, x):
    with T.no_grad():
        x.mul_(2)


WRITES = {
    "itself": lambda T, x: x.sin_(),
    "twice": lambda T, x: x.sin_().cos_(),
    "through a view": lambda T, x: x[0].mul_(3),
    "by index": lambda T, x: x.__setitem__(0, 7.0),
    "under no_grad": under_no_grad,
    "through detach": lambda T, x: x.detach().zero_(),
    "by out=": lambda T, x: T.exp(T.ones_like(x), out=x.detach()),
    "not at all": lambda T, x: x + 1,
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_do_not_reach_what_was_saved(name, path):
    as_torch(lambda T: written(T, WRITES[name]))


def test_writes_through_a_view_that_starts_elsewhere(path):
    """PyTorch looks for the address at which a view starts, misses the saved base, and gives a wrong gradient."""
    for write in (lambda x: x[1].mul_(3), lambda x: x.t()[0, 1:].zero_()):
        before, after, _, grad = written(xgrad, lambda T, x, write=write: write(x))
        assert (before, after) == ((2, 0), (0, 2))
        x = leaf(xgrad, 2, 3).detach()
        expected = 2 * x
        expected[0].mul_(2)
        same(grad, expected)


def test_nothing_is_cloned():
    x = leaf(xgrad, 3) * 1
    array = x._read()
    with allow(xgrad) as context:
        y = squared(x)
        (value,) = context.original.values()
        assert value._read() is array
        x.zero_()
        assert context.original == {}
        (value,) = context.cloned.values()
        assert value._read() is array
        y.backward()


def test_a_tensor_that_is_saved_often_is_kept_once():
    def program(T):
        with allow(T) as context:
            x = leaf(T, 3)
            y = x * 1
            squared(y), squared(y), y * x
            z = squared(y)
            found = len(context.original)
            z.backward()
            return found, x.grad

    as_torch(program)


def test_second_derivatives_and_a_graph_that_is_kept():
    def program(T):
        with allow(T):
            x = leaf(T, 3)
            y = x * 1
            z = (y * y * y).sum()
            (g,) = T.autograd.grad(z, y, create_graph=True)
            y.mul_(7)
            (h,) = T.autograd.grad(g.sum(), x, retain_graph=True)
            return g, h, T.autograd.grad(z, x)

    as_torch(program)


def test_leaves_that_require_grad_stay_refused():
    def program(T):
        with allow(T):
            leaf(T, 3).zero_()

    same_error(program, "a leaf Variable that requires grad")


@pytest.mark.parametrize("later", ["outside", "in another context", "after clear"])
def test_backward_needs_the_context(later):
    def program(T):
        with allow(T) as context:
            y = leaf(T, 3) * 1
            z = squared(y)
            y.zero_()
            if later == "after clear":
                context.clear()
                z.backward()
        if later == "outside":
            z.backward()
        with allow(T):
            z.backward()

    error = same_error(program, "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context")
    assert isinstance(error, MutationContextError)
    assert isinstance(error, AssertionError)  # PyTorch's type
    assert isinstance(error, RuntimeError)


def test_contexts_do_not_nest():
    def program(T):
        with allow(T), allow(T):
            pass

    same_error(program, "allow_mutation_on_saved_tensors contexts cannot be nested")


def test_an_error_leaves_the_context():
    def program(T):
        for error in (ValueError, KeyError):
            with pytest.raises(error), allow(T):
                raise error
        x = leaf(T, 3)
        y = x * 1
        z = squared(y)
        y.zero_()
        z.backward()

    same_error(program, "modified by an inplace operation")


def test_as_a_decorator():
    def program(T):
        @T.autograd.graph.allow_mutation_on_saved_tensors()
        def gradient(x):
            y = x * 1
            z = squared(y)
            y.zero_()
            return T.autograd.grad(z, x)

        return gradient(leaf(T, 3)), gradient(leaf(T, 3, seed=1))

    as_torch(program)


def test_where_saved_hooks_are_disabled():
    def program(T):
        with T.autograd.graph.disable_saved_tensors_hooks("not here"), allow(T):
            pass

    same_error(program, "not here")


@pytest.mark.eager("lifetimes")
def test_values_go_with_their_nodes_and_with_the_context():
    gc.collect()
    gc.disable()
    try:
        x = leaf(xgrad, 3)
        with allow(xgrad) as context:
            y = x * 1
            z = squared(y)
            kept = weakref.ref(y._read())
            y.zero_()
            assert kept() is not None
            z.backward()
            assert kept() is None
            y = x * 1
            z = squared(y)
            kept = weakref.ref(y._read())
            y.zero_()
        assert kept() is None
        assert context.original == context.cloned == {}
        same(x.grad, 2 * x.detach())
    finally:
        gc.enable()
