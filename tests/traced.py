"""Numbers without compiling: JAX traces what a test computes on xgrad, and NumPy evaluates the program.

Call, node and engine run as ever; only XLA is left out, whose compiler takes ten times as long as all else in a test of
small arrays.  It is left in where XGRAD_TESTS_OPTIMIZE=1 asks for programs as users have them, and where a program
cannot be traced, because it reads values or draws random numbers.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch

import xgrad

from . import oracle
from .ops import by_numpy

COMPILED = bool(os.environ.get("XGRAD_TESTS_OPTIMIZE"))
NOT_TRACED = jax.errors.JAXTypeError, jax.errors.JAXIndexError, xgrad.errors.TracedValueError, UserWarning


def computed(function: Callable[[], Any]) -> Any:
    """Return what `function()` does, tensors in it as NumPy arrays."""
    found: Any = None

    def arrays() -> list:
        nonlocal found
        found = function()
        return [t._read() for t in tensors(found)]

    if not COMPILED:
        try:
            program = jax.make_jaxpr(arrays)()
        except NOT_TRACED:
            pass
        else:
            values = iter(by_numpy.evaluate(program))
            return filled(found, lambda _: np.asarray(next(values)))
    return filled(function(), oracle.array)


def evaluated(function: Callable, *arrays: Any) -> Any:
    """Return what a function of arrays returns, which is one array."""
    if COMPILED:
        return function(*arrays)
    return by_numpy.evaluate(jax.make_jaxpr(function)(*arrays), *map(np.asarray, arrays))[0]


def tensors(found: Any) -> list:
    collected: list = []
    filled(found, collected.append)
    return collected


def filled(found: Any, value: Callable) -> Any:
    """Return nested tuples, lists and dictionaries with `value(t)` in the place of each tensor `t`."""
    if isinstance(found, xgrad.Tensor):
        return value(found)
    if isinstance(found, dict):
        return {key: filled(item, value) for key, item in found.items()}
    if isinstance(found, (tuple, list)):
        return [filled(item, value) for item in found]
    return found


def as_torch(program: Callable, *args: Any, **options: Any) -> None:
    """Assert that `program(T, *args)` returns the same on xgrad as on torch; of tensors, values, shapes and dtypes."""
    oracle.same(computed(lambda: program(xgrad, *args)), program(torch, *args), **options)
