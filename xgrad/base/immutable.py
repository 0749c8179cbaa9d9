"""Immutable: objects that a process shares, and neither code nor a file may change (PyTorch: THPDtype, THPDevice)."""

from typing import Any


class Immutable:
    """Its objects get their attributes from `fixed` while they are made, and never again."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"attribute '{name}' of 'xgrad.{type(self).__name__}' objects is not writable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"attribute '{name}' of 'xgrad.{type(self).__name__}' objects is not writable")


fixed = object.__setattr__
