"""The layers as classes: PyTorch's names, signatures, bases, first values; subclasses; compiled and lazy."""

import inspect
import math

import pytest
import torch

import xgrad
from xgrad import nn

# what PyTorch's documentation of torch.nn lists, and others have: LinearCrossEntropyOptions
LAYERS = [
    name
    for name in dir(nn)
    if inspect.isclass(getattr(nn, name))
    and issubclass(getattr(nn, name), nn.Module)
    and getattr(nn, name).__module__.startswith("xgrad.nn.modules.")
]


def _arguments(cls):
    if "__deprecated__" in vars(cls):  # before Python 3.13 inspect sees the `__new__` that warns
        parameters = [*inspect.signature(cls.__init__).parameters.values()][1:]
    else:
        parameters = inspect.signature(cls).parameters.values()
    return [
        (p.name, p.kind, getattr(p.default, "__name__", p.default) if p.default is not math.inf else "inf")
        for p in parameters
    ]


@pytest.mark.parametrize("name", LAYERS)
def test_constructor_has_pytorchs_arguments(name):
    ours, theirs = _arguments(getattr(nn, name)), _arguments(getattr(torch.nn, name))
    if [kind for _, kind, _ in theirs] == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
        assert ours in (theirs, []) or name in ("GRU", "LSTM", "RNN")  # inherited from Module; overloads
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", LAYERS)
def test_forward_has_pytorchs_arguments(name):
    if name in ("RNNBase", "RNNCellBase"):
        return  # PyTorch's bases have none
    ours, theirs = (
        [(p.name, p.default) for p in inspect.signature(getattr(library.nn, name).forward).parameters.values()]
        for library in (xgrad, torch)
    )
    assert ours == theirs


@pytest.mark.parametrize("name", LAYERS)
def test_bases_that_packages_ask_for_are_there(name):
    def bases(cls):
        return {c.__name__ for c in cls.__mro__}

    missing = bases(getattr(torch.nn, name)) - bases(getattr(nn, name)) - {"_LazyConvXdMixin"}
    assert not missing
    for base in bases(getattr(torch.nn, name)):
        module = getattr(torch.nn, name).__module__.rpartition(".")[2]
        if base.startswith("_") and hasattr(getattr(torch.nn.modules, module), base):
            assert inspect.isclass(getattr(getattr(nn.modules, module), base))


def test_the_last_projection_of_attention_has_the_class_of_its_name():
    last = nn.MultiheadAttention(4, 2).out_proj
    assert type(last) is nn.modules.linear.NonDynamicallyQuantizableLinear
