"""Active: the `with chip.activate():` block, in which a thread makes its new tensors on `chip`, an `xgrad.Backend`."""

from collections.abc import Callable
from typing import Any

from ..base.decorators import in_block
from ..config import Block, state


class Active(Block):
    """A `with` block, or a decorator, that makes `backend` the place of new tensors; blocks may be nested."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def __enter__(self) -> Any:
        self._will_restore("place")
        state.place = self.backend.__xgrad_place__()
        return self.backend

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return in_block(function, lambda: Active(self.backend))
