"""The eager run as the oracle: one program, made twice, is called eagerly and compiled, and all is compared.

A *program* is a function without arguments that makes fresh tensors and returns `(function, args, watched)`.  Watched
are the tensors, containers and numbers whose state is compared after each call, besides what the call returns.
"""

import collections

import numpy as np

import xgrad

from ..oracle import same


def look(value, seen):
    """What is to be the same about a value: of tensors the values, history, version, grad, and what they share."""
    if isinstance(value, xgrad.Tensor):
        number = seen.setdefault(id(value), len(seen))
        seen[len(seen), "kept"] = value  # so that its id stays taken
        if number != len(seen) - 2:
            return number
        return {
            "values": np.array(value.detach()._read()),
            "type": type(value).__name__,
            "requires_grad": value.requires_grad,
            "is_leaf": value.is_leaf,
            "version": value._version,
            "base": None if value._base is None else look(value._base, seen),
            "storage": seen.setdefault(("storage", id(value._share())), len(seen)),
            "grad": None if not value.is_leaf or value.grad is None else look(value.grad, seen),
        }
    if isinstance(value, dict):
        return {str(key): look(item, seen) for key, item in value.items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return [type(value).__name__, *(look(item, seen) for item in value)]
    if hasattr(value, "__array__"):
        return np.array(value)
    return value


def agree(program, calls=3, traces=1, **options):
    """Assert that compiled calls do what eager ones do, with so many traces; return the compiled function."""
    eager, args, watched = program()
    function, my_args, my_watched = program()
    compiled = xgrad.compile(function, **options)
    for call in range(calls):
        expected = look([eager(*args), args, watched], {})
        found = look([compiled(*my_args), my_args, my_watched], {})
        same(found, expected, f"call {call}", rtol=1e-9)
    assert compiled.metrics().traces == traces, compiled.metrics()
    assert compiled.metrics().calls == calls
    return compiled
