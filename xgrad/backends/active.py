"""Active: the block in which new tensors of a thread are made on a backend."""

from collections.abc import Callable
from typing import Any

from ..base.decorators import in_block
from ..config import Block, state


class Active(Block):
    """Within the block new tensors are made on `backend`.  It may be nested, and is a decorator too."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def __enter__(self) -> Any:
        self._will_restore("place")
        state.place = self.backend.__xgrad_place__()
        return self.backend

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return in_block(function, lambda: Active(self.backend))
