"""NumPy's names of arguments, where PyTorch's argument parser takes them; and none where an argument is given twice."""

import inspect

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import as_torch, data, same_error

CALLS = {
    "axis": lambda T, x: [x.sum(axis=0), T.sum(x, axis=0), T.cumsum(x, axis=1), T.sort(x, axis=0)[0], x.cumsum(axis=0)],
    "keepdims": lambda T, x: [x.sum(axis=0, keepdims=True), T.amax(x, axis=1, keepdims=True), x.mean(0, keepdims=True)],
    "input": lambda T, x: [T.exp(x=x), T.exp(a=x), T.exp(x1=x), T.sum(a=x, axis=0), T.sum(x=x, dim=1)],
    "other": lambda T, x: [T.mul(x1=x, x2=x), x.mul(x2=3), T.maximum(x, x2=x), (x * 1).mul_(x2=2)],
    "several forms": lambda T, x: [*x.max(axis=0), *T.max(x, axis=0, keepdims=True), *x.median(axis=0), x.var(axis=0)],
    "composites": lambda T, x: [x.softmax(axis=0), T.softmax(x, axis=0), T.std(x, axis=0), *x.chunk(2, axis=1)],
    "a list": lambda T, x: [T.cat([x, x], axis=1), T.stack([x, x], axis=2)],
    "several": lambda T, x: [x.sum(axis=(0, 1)), x.amax(axis=(0, 1)), x.std(axis=(0, 1), keepdims=True)],
    "None": lambda T, x: [x.sum(axis=None), T.all(x, axis=None), x.argmax(axis=None)],
    "unnamed": lambda T, x: [T.linalg.vector_norm(x=x, dim=0), T.trapezoid(x, x=x)],
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", CALLS)
def test_names(name):
    as_torch(lambda T: CALLS[name](T, data(T, (2, 3))))


REFUSED = {
    "dim and axis": lambda T, x: x.sum(dim=1, axis=0),
    "dim by position": lambda T, x: T.cumsum(x, 0, axis=1),
    "input twice": lambda T, x: T.exp(x, x=x),
    "other twice": lambda T, x: x.mul(x, x2=x),
    "keepdim twice": lambda T, x: x.amax(0, True, keepdims=False),
    "of a composite": lambda T, x: x.max(0, axis=1),
    "of a function that is a composite": lambda T, x: T.max(x, dim=0, axis=1),
    "too many": lambda T, x: T.mul(x, x, x),
    "unknown": lambda T, x: x.sum(axes=0),
    "none given": lambda T, x: T.mul(),
    "one given": lambda T, x: T.mul(x),
    "no dim": lambda T, x: x.cumsum(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    same_error(lambda T: REFUSED[name](T, data(T, (2, 3))), "argument|takes")


def test_errors_name_the_arguments():
    x = xgrad.ones(2, 3)
    with pytest.raises(TypeError, match=r"sum\(\) got an unexpected keyword argument 'axis'.*NumPy's name of 'dim'"):
        x.sum(dim=1, axis=0)
    with pytest.raises(TypeError, match=r"mul\(\) missing 1 required positional argument: 'other'"):
        xgrad.mul(x)
    with pytest.raises(TypeError, match=r"mul\(\) missing 2 required positional arguments: 'input' and 'other'"):
        xgrad.mul()


def test_signatures_show_pytorchs_names_only():
    assert str(inspect.signature(xgrad.sum)) == "(input, dim=None, keepdim=False, *, dtype=None, out=None)"
    assert str(inspect.signature(xgrad.ones(1).mul)) == "(other, *, out=None)"
    assert str(inspect.signature(xgrad.Tensor.cumsum_)) == "(input, dim, *, dtype=None)"


def test_an_override_sees_pytorchs_names():
    class Asked:
        @classmethod
        def __xgrad_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, args[1:], kwargs

    assert xgrad.sum(Asked(), axis=0, keepdims=True) == ("sum", (0, True), {})
    assert xgrad.var(Asked(), axis=0) == ("var", (), {"dim": 0})


def test_gradients_flow():
    x = xgrad.tensor(np.ones((2, 3)), requires_grad=True)
    xgrad.mul(x1=x, x2=x).sum(axis=0).sum().backward()
    assert x.grad.tolist() == torch.full((2, 3), 2.0).tolist()
