"""PyTorch as the oracle: run one program on torch and on xgrad, in both paths, and compare what comes out.

A *program* is a function of a namespace `T`, which is `torch` or `xgrad`.  It makes its tensors with `T.tensor` or with
`leaf` and `data` below, and returns whatever it wants compared: tensors, numbers, strings, None, and tuples, lists and
dictionaries of these.
"""

import contextlib
import re
from typing import Any

import numpy as np
import torch

import xgrad
import xgrad.views

PATHS = ("replay", "geometry")


tracking = xgrad.views.tracking


def values(shape, seed=0):
    """Distinct float64 numbers between -1 and 1, the same for every caller."""
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape)


def data(T, shape, seed=0, requires_grad=False):
    """A float64 tensor with the numbers of `values`, in torch or in xgrad."""
    x = T.from_numpy(values(shape, seed))
    return x.requires_grad_() if requires_grad else x


def leaf(T, *shape, seed=0):
    """As `data`, and it requires grad."""
    return data(T, shape, seed, True)


def array(x):
    """The values of a tensor of either library, outside of its graph."""
    if isinstance(x, torch.Tensor):
        return x.detach().resolve_conj().resolve_neg().numpy()
    return np.asarray(x._read())


def same(ours: Any, theirs: Any, where: str = "result", rtol: float = 1e-10, atol: float = 1e-12) -> None:
    """Assert that what xgrad gave equals what torch gave."""
    if isinstance(theirs, (torch.Tensor, np.ndarray, xgrad.Tensor)):
        assert ours is not None, f"{where}: xgrad gave None, torch {theirs}"
        theirs = theirs if isinstance(theirs, np.ndarray) else array(theirs)
        ours = ours if isinstance(ours, np.ndarray) else array(ours)
        assert ours.shape == theirs.shape, f"{where}: shape {ours.shape}, torch {theirs.shape}"
        assert ours.dtype == theirs.dtype, f"{where}: dtype {ours.dtype}, torch {theirs.dtype}"
        np.testing.assert_allclose(ours, theirs, rtol, atol, err_msg=where)
    elif theirs is None:
        assert ours is None, f"{where}: xgrad gave {ours}, torch None"
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs), f"{where}: keys {list(ours)}, torch {list(theirs)}"
        for key in theirs:
            same(ours[key], theirs[key], f"{where}[{key!r}]", rtol, atol)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), f"{where}: {len(ours)} items {ours}, torch {len(theirs)}: {theirs}"
        for i, (a, b) in enumerate(zip(ours, theirs)):
            same(a, b, f"{where}[{i}]", rtol, atol)
    elif isinstance(theirs, float):
        np.testing.assert_allclose(ours, theirs, rtol, atol, err_msg=where)
    else:
        assert ours == theirs, f"{where}: {ours!r}, torch {theirs!r}"


def as_torch(program, *args, **options):
    """Assert that `program(T, *args)` returns the same on xgrad, in the path that is in force, as on torch."""
    same(program(xgrad, *args), program(torch, *args), **options)


def outcome(program, T):
    """What a program returns, or the exception that it raises."""
    try:
        return program(T)
    except Exception as error:
        return error


def behind_name(error):
    """Return an error's text without the operator's name in front, which PyTorch's text may lack."""
    return re.sub(r"^\w+\(\): ", "", str(error))


def same_error(program, match):
    """Assert that both libraries raise, xgrad an error of torch's type, whose text matches `match`; return it."""
    theirs = outcome(program, torch)
    assert isinstance(theirs, Exception), f"torch raised nothing: {theirs}"
    ours = outcome(program, xgrad)
    assert isinstance(ours, Exception), f"xgrad raised nothing: {ours}; torch {theirs!r}"
    assert isinstance(ours, family(theirs)), f"xgrad raised {ours!r}; torch {theirs!r}"
    assert re.search(match, str(ours)), f"{match!r} is not in {str(ours)!r}"
    return ours


FAMILIES = (IndexError, ValueError, TypeError, NotImplementedError, RuntimeError)


def family(error):
    """The built-in type as which an error of torch is caught."""
    return next((t for t in FAMILIES if isinstance(error, t)), type(error))


@contextlib.contextmanager
def maybe_no_grad(T, grad):
    with contextlib.nullcontext() if grad else T.no_grad():
        yield
