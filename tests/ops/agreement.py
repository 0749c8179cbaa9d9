"""Compare a layer function with PyTorch's: values, gradients and second derivatives, in float64."""

import warnings

import numpy as np
import torch

import xgrad

from ..traced import computed


def random(*shape, seed=0):
    """Normally distributed numbers."""
    return np.random.RandomState(seed).randn(*shape)


def derivatives(library, function, arrays, order):
    """Tensors: the result, gradients for a fixed cotangent, and the gradients of those gradients' sum of squares."""
    tensors = [library.tensor(a) for a in arrays]
    for t, a in zip(tensors, arrays):
        t.requires_grad_(a.dtype.kind == "f")
    inputs = [t for t, a in zip(tensors, arrays) if a.dtype.kind == "f"]
    out = function(library.nn.functional, *tensors)
    found = [out]
    for seed in range(order):
        weights = library.tensor(random(*out.shape, seed=100 + seed))
        grads: list = [None] * len(inputs)
        if out.requires_grad:
            grads = library.autograd.grad((out * weights).sum(), inputs, create_graph=True, allow_unused=True)
        grads = [x.detach() * 0 if g is None else g for g, x in zip(grads, inputs)]
        found += grads
        out = sum((g * g).sum() for g in grads)
    return found


def agree(function, *arrays, order=2):
    """Assert that `function(F, *tensors)` and its derivatives are PyTorch's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's advice
        # `force`: a gradient may be one of PyTorch's ZeroTensors
        wanted = [t.numpy(force=True) for t in derivatives(torch, function, arrays, order)]
    got = computed(lambda: derivatives(xgrad, function, arrays, order))
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-7, atol=1e-9)
