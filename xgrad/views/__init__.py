"""Views on devices without strides: chains of view operations, replayed on a base and written back through."""

from . import named as named
from .tracking import tracking as tracking

__all__ = ["tracking"]


def __dir__() -> list[str]:
    return sorted(__all__)
