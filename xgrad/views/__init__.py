"""Views of tensors on devices without strides: chains of steps, which read a base's array and write into it."""

from . import named as named
from .tracking import tracking as tracking

__all__ = ["tracking"]


def __dir__() -> list[str]:
    return sorted(__all__)
