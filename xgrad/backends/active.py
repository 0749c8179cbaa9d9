"""Active: the block in which new tensors of a thread are made on a backend."""

from collections.abc import Callable
from typing import Any

from ..config import state
from ..decorators import in_block


class Active:
    """Within the block new tensors are made on `backend`.  It may be nested, and is a decorator too."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self._outer: list[Any] = []

    def __enter__(self) -> Any:
        self._outer.append(state.place)
        state.place = self.backend.__xgrad_place__()
        return self.backend

    def __exit__(self, *error: Any) -> None:
        state.place = self._outer.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return in_block(function, lambda: Active(self.backend))
