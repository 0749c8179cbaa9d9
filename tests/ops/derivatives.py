"""Compare a function of a library with PyTorch's: values, gradients, second derivatives and tangents."""

import warnings
from typing import Any

import numpy as np
import torch

import xgrad
import xgrad.autograd.forward_ad

from ..traced import computed


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed numbers."""
    return np.random.RandomState(seed).standard_normal(shape)


def positive(n: int, seed: int = 0) -> np.ndarray:
    """A well-conditioned positive definite matrix."""
    a = numbers(n, n, seed=seed)
    return a @ a.T + n * np.eye(n)


def flatten(out: Any) -> list:
    return [out] if hasattr(out, "dtype") else [t for item in out for t in flatten(item)]


def value(t: Any) -> np.ndarray:
    return np.asarray(t.numpy(force=True))


def derivatives(library: Any, function: Any, arrays: tuple, order: int) -> list[np.ndarray]:
    """The results, the gradients for a fixed cotangent, and the gradients of a fixed combination of those."""
    return _numbers(library, lambda: _derivatives(library, function, arrays, order))


def tangents(library: Any, function: Any, arrays: tuple) -> list[np.ndarray]:
    """The tangents of the results for fixed tangents of the floating inputs."""
    return _numbers(library, lambda: _tangents(library, function, arrays))


def _numbers(library: Any, function: Any) -> list[np.ndarray]:
    return computed(function) if library is xgrad else [value(t) for t in function()]


def _derivatives(library: Any, function: Any, arrays: tuple, order: int) -> list:
    inputs = [library.tensor(a, requires_grad=a.dtype.kind in "fc") for a in arrays]
    wanted = [t for t in inputs if t.requires_grad]
    outs = flatten(function(library, *inputs))
    found = list(outs)
    for step in range(order):
        outs = [t for t in outs if t is not None and t.requires_grad]
        weights = [library.tensor(_like(t, seed=step)) for t in outs]
        # A derivative that is not there is one of zeros.
        absent = [None] * len(wanted)
        outs = library.autograd.grad(outs, wanted, weights, create_graph=True, allow_unused=True) if outs else absent
        found += [library.zeros_like(t) if g is None else g for g, t in zip(outs, wanted)]
    return found


def _like(t: Any, seed: int) -> np.ndarray:
    array = numbers(*t.shape, seed=seed + 7)
    name = str(t.dtype).rpartition(".")[2]
    if name.startswith("complex"):
        array = array + 1j * numbers(*t.shape, seed=seed + 8)
    return np.asarray(array, name)


def _tangents(library: Any, function: Any, arrays: tuple) -> list:
    forward = library.autograd.forward_ad
    with warnings.catch_warnings(), forward.dual_level():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch compiles some of its rules with torch.jit
        duals = []
        for a in arrays:
            t = library.tensor(a)
            duals.append(forward.make_dual(t, library.tensor(_like(t, seed=3))) if a.dtype.kind in "fc" else t)
        outs = [forward.unpack_dual(t).tangent for t in flatten(function(library, *duals))]
        return [library.zeros(()) if t is None else t for t in outs]


def agree(function: Any, *arrays: Any, order: int = 2, forward: bool = True) -> None:
    """Assert that `function(library, *tensors)` and its derivatives are PyTorch's."""
    arrays = tuple(np.asarray(a) for a in arrays)
    pairs = [(derivatives(xgrad, function, arrays, order), derivatives(torch, function, arrays, order))]
    if forward:
        pairs.append((tangents(xgrad, function, arrays), tangents(torch, function, arrays)))
    for got, wanted in pairs:
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted):
            assert g.dtype == w.dtype
            assert g.shape == w.shape or not (g.any() or w.any())
            np.testing.assert_allclose(g, w, rtol=1e-7, atol=1e-9)
