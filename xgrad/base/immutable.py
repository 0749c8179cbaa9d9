"""Immutable: base class of `dtype`, `device` and others whose attributes can't be set (PyTorch: THPDtype)."""

from typing import Any


class Immutable:
    """A class whose objects get their attributes by `fixed` while they are made, and never again."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"attribute '{name}' of 'xgrad.{type(self).__name__}' objects is not writable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"attribute '{name}' of 'xgrad.{type(self).__name__}' objects is not writable")


fixed = object.__setattr__
