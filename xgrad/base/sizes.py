"""SymInt, sym_max, ...: PyTorch's names for symbolic sizes, here over plain Python numbers (torch/__init__.py).

In PyTorch a trace may not know its sizes; here it knows them all, as Python's numbers.  So the functions compute at
once, and the classes exist for `isinstance` alone.
"""

import math
from typing import Any


class SymInt:
    """The class of an unknown integer, for `isinstance`: there are none."""


class SymFloat:
    """The class of an unknown float, for `isinstance`: there are none."""


class SymBool:
    """The class of an unknown truth value, for `isinstance`: there are none."""


def sym_int(a: Any) -> int:
    """Return `a` as an int, rounded towards zero."""
    return int(a)


def sym_float(a: Any) -> float:
    """Return `a` as a float."""
    return float(a)


def sym_max(a: Any, b: Any) -> Any:
    """Return the larger number; a float if one of them is."""
    return type(a + b)(max(a, b))


def sym_min(a: Any, b: Any) -> Any:
    """Return the smaller number; a float if one of them is."""
    return type(a + b)(min(a, b))


def sym_not(a: Any) -> bool:
    """Return `not a`."""
    return not a


def sym_sqrt(a: Any) -> float:
    """Return the square root."""
    return math.sqrt(a)


def sym_sum(args: Any) -> Any:
    """Return the sum of the numbers."""
    return sum(args)
