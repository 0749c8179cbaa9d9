"""Views without strides: a view is a list of steps (Slice, Permute, ...) that programs apply to its base's array.

A program reads the view from the base's array, or writes new values of the view into it.
"""

from . import named as named
from .tracking import tracking

__all__ = ["tracking"]


def __dir__() -> list[str]:
    return sorted(__all__)
