"""Rows of layers, each compared with PyTorch's of the same name: text, state, values, gradients, buffers, errors."""

import copy
import inspect
import pickle
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch

import xgrad

from ..traced import computed


class Row(NamedTuple):
    """A layer's name, its constructor's arguments, and its inputs: shapes, arrays, or functions of NumPy's random."""

    name: str
    args: tuple
    kwargs: dict
    inputs: tuple

    def __str__(self) -> str:
        """Return the test's name."""
        given = [*map(_short, self.args), *(f"{k}={_short(v)}" for k, v in self.kwargs.items())]
        return f"{self.name}({','.join(given)})-{'-'.join(map(_short, self.inputs))}"


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}[{'x'.join(map(str, value.shape))}]"
    return ("x".join(map(str, value)) if isinstance(value, tuple) else str(value)).replace(" ", "")


def row(name: str, *args: Any, inputs: Any, **kwargs: Any) -> Row:
    """Return a row; `inputs` is a shape, or a list of shapes and arrays."""
    return Row(name, args, kwargs, tuple(inputs) if isinstance(inputs, list) else (inputs,))


def _given(library: Any, value: Any) -> Any:
    return library.tensor(value) if isinstance(value, np.ndarray) else value


def pair(case: Row, dtype: str = "float64") -> tuple[Any, Any]:
    """Make PyTorch's layer and xgrad's with its state."""
    made = []
    for library in (torch, xgrad):
        args = [_given(library, a) for a in case.args]
        kwargs = {k: _given(library, v) for k, v in case.kwargs.items()}
        if "dtype" in inspect.signature(getattr(torch.nn, case.name)).parameters:
            kwargs["dtype"] = getattr(library, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.append(getattr(library.nn, case.name)(*args, **kwargs))
    theirs, ours = made
    ours.load_state_dict({k: xgrad.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return theirs, ours


def _arrays(inputs: tuple, dtype: str) -> list:
    rng = np.random.RandomState(0)
    return [np.asarray(rng.randn(*x), dtype) if isinstance(x, tuple) else x for x in inputs]


def outcome(library: Any, layer: Any, arrays: list, drawn: list, order: tuple = (True, False)) -> list:
    """Return outputs, gradients of drawn inputs and of parameters, and buffers, in training and then in evaluation."""
    found: list = []
    layer = copy.deepcopy(layer)  # a trace that fails is computed again, and buffers count
    for training in order:
        layer.train(training)
        layer.zero_grad()
        tensors = [library.tensor(a) if isinstance(a, np.ndarray) else a for a in arrays]
        leaves = [t.requires_grad_() for t, own in zip(tensors, drawn) if own]
        # what works in place may not write to a leaf
        out = layer(*(t * 1 if any(t is leaf for leaf in leaves) else t for t in tensors))
        outs = list(out) if isinstance(out, tuple) else [out]
        found += outs
        loss = sum(
            (o * library.tensor(np.cos(np.arange(o.numel())).reshape(o.shape).astype(_name(o)))).sum()
            for o in outs
            if o.is_floating_point()
        )
        if getattr(loss, "requires_grad", False):
            loss.backward()
        found += [None if t.grad is None else t.grad for t in (*leaves, *layer.parameters())]
        found += [b.detach().clone() for b in layer.buffers()]
    return found


def _name(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2].removeprefix("xgrad.")


def agree(case: Row, dtype: str = "float64", rtol: float = 1e-7, order: tuple = (True, False)) -> None:
    """Assert that the layer has PyTorch's text and state, and computes what PyTorch's does."""
    theirs, ours = pair(case, dtype)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [tuple(v.shape) for v in ours.state_dict().values()] == [
        tuple(v.shape) for v in theirs.state_dict().values()
    ]
    arrays, drawn = _arrays(case.inputs, dtype), [isinstance(given, tuple) for given in case.inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's advice
        wanted = [None if t is None else t.numpy(force=True) for t in outcome(torch, theirs, arrays, drawn, order)]
        got = computed(lambda: outcome(xgrad, ours, arrays, drawn, order))
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        if w is None:
            assert g is None or not np.asarray(g).any()
            continue
        assert g.shape == w.shape
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=rtol, atol=rtol)
    again = pickle.loads(pickle.dumps(ours))
    assert repr(again) == repr(ours)


def refused(case: Row) -> None:
    """Assert that both libraries raise, xgrad an error of PyTorch's kind."""
    found = []
    for library in (torch, xgrad):
        try:
            layer = getattr(library.nn, case.name)(*case.args, **case.kwargs)
            layer(*[library.tensor(a) for a in _arrays(case.inputs, "float32")])
        except Exception as error:
            found.append(error)
    assert len(found) == 2
    assert isinstance(found[1], type(found[0])), found
