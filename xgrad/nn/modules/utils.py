"""Helpers that make tuples of layers' sizes, for packages that import them (PyTorch: torch/nn/modules/utils.py)."""

from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that repeats a number `n` times, and makes a tuple of what is iterable."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single, _pair, _triple = _ntuple(1, "_single"), _ntuple(2, "_pair"), _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Return each item `n` times, the last one first: what `pad` takes."""
    return tuple(x for x in reversed(t) for _ in range(n))
