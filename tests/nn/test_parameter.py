"""Parameter and Buffer against torch's."""

import copy
import importlib
import pickle

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import as_torch, same_error

WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x))}


def traits(T, x):
    return isinstance(x, T.nn.Parameter), x.requires_grad, x.is_leaf, x.tolist()


PROGRAMS = {
    "new": lambda T, P: P(T.ones(2)),
    "without gradient": lambda T, P: P(T.ones(2), False),
    "integers": lambda T, P: P(T.arange(2), requires_grad=False),
    "empty": lambda T, P: P(),
    "of a parameter": lambda T, P: P(P(T.ones(2))),
    "of a result": lambda T, P: P(T.ones(2, requires_grad=True) * 2),
    "0-dim": lambda T, P: P(T.tensor(2.5)),
    "product": lambda T, P: P(T.ones(2)) * 2,
    "clone": lambda T, P: P(T.ones(2)).clone(),
    "detached": lambda T, P: P(T.ones(2)).detach(),
    "data": lambda T, P: P(T.ones(2)).data,
    "view": lambda T, P: P(T.ones(2, 2))[0],
    "frozen": lambda T, P: P(T.ones(2)).requires_grad_(False),
    "moved to itself": lambda T, P: P(T.ones(2)).to(T.float32),
    "cast": lambda T, P: P(T.ones(2)).to(T.float16),
    "after a step": lambda T, P: step(T, P(T.ones(2))),
    "marked by hand": lambda T, P: (lambda t: [setattr(t, "_is_param", True), t][1])(T.ones(2)).detach(),
}


def step(T, p):
    (p * p).sum().backward()
    with T.no_grad():
        p -= 0.5 * p.grad
    return p


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_is_a_parameter_or_not_as_in_torch(program):
    ours, theirs = (traits(T, program(T, T.nn.Parameter)) for T in (xgrad, torch))
    np.testing.assert_equal(ours, theirs)


def test_prints_as_torch_does():
    for program in ("new", "without gradient", "0-dim", "product", "empty"):
        ours, theirs = (repr(PROGRAMS[program](T, T.nn.Parameter)) for T in (xgrad, torch))
        assert ours == theirs


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_duplicates_are_parameters(way):
    def program(T):
        p = T.nn.Parameter(T.ones(2))
        (p * 3).sum().backward()
        q = way(p)
        return isinstance(q, T.nn.Parameter), q.requires_grad, q.detach(), q.grad

    as_torch(program)


def test_shares_storage_and_version_with_its_data():
    def program(T):
        x = T.ones(2)
        p = T.nn.Parameter(x)
        with T.no_grad():
            p.add_(1)
        return x, x._version, p._version, p._base is None

    as_torch(program)


def test_errors():
    with pytest.raises(TypeError, match="data must be a Tensor"):
        xgrad.nn.Parameter([1.0])
    same_error(lambda T: T.nn.Parameter(T.arange(2)), "only Tensors of floating point and complex dtype")


def test_subclasses_have_their_own_instances():
    def program(T):
        Mine = type("Mine", (T.nn.Parameter,), {})
        m, p = Mine(T.ones(2)), T.nn.Parameter(T.ones(2))
        found = type(m) is Mine, isinstance(m, T.nn.Parameter), isinstance(p, Mine), type(m * 2) is T.Tensor, repr(m)
        (m * m).sum().backward()
        return [*found, m.grad]

    as_torch(program)


def test_a_parameter_of_a_subclass_of_tensor_keeps_that_class():
    def program(T):
        Sub = type("Sub", (T.Tensor,), {})
        p = T.nn.Parameter(T.ones(2).as_subclass(Sub))
        return type(p).__name__, isinstance(p, T.nn.Parameter), p.requires_grad, type(p * 2).__name__

    as_torch(program)


def test_buffers():
    def program(T):
        b = T.nn.Buffer(T.ones(2), persistent=False)
        kinds = [isinstance(x, T.nn.Buffer) for x in (b, b * 1, T.ones(1), T.nn.Parameter(), T.nn.Buffer())]
        return *kinds, isinstance(b, T.nn.Parameter), b.persistent, copy.deepcopy(b).persistent, repr(b)

    as_torch(program)


def test_operators_take_a_parameter_on_the_path_of_tensors(monkeypatch):
    def slow(*args):
        raise AssertionError("a parameter is looked at as a subclass would be")

    monkeypatch.setattr(importlib.import_module("xgrad.dispatch.call"), "interpret", slow)
    monkeypatch.setattr(importlib.import_module("xgrad.dispatch.view"), "ask_view", slow)
    p = xgrad.nn.Parameter(xgrad.ones(2, 2))
    assert type(p) is xgrad.Tensor
    (p * p + p.t().exp()).sum().backward()
    with pytest.raises(AssertionError, match="as a subclass would be"):
        xgrad.ones(1).as_subclass(type("Sub", (xgrad.Tensor,), {})) + 1
