"""shapes_only: a block in which tensors get shapes and dtypes but no values, and take no memory.

For `xgrad.chips.shapes()` and "meta" tensors.  Such a tensor holds a `Pending` of a queue that never runs; to read its
value raises an error.
"""

from collections.abc import Iterator
from typing import Any

from ..config import block, state
from .pending import Pending, aval_of
from .queue import Queue
from .runner import runner

_NUMBERS = frozenset(("item()", "bool()", "int()", "float()", "complex()"))


class NoValues(Queue):
    """The queue of such a block: it gives shapes to the operations that it gets, and forgets them."""

    def note(self, program: Any, operands: Any, owners: Any = None) -> Any:
        found = super().note(program, operands, owners)
        self.drop()
        return found

    def evaluate(self, reason: str, asked: Pending | None = None) -> None:
        self.drop()
        if asked is not None and asked.place:
            if reason in _NUMBERS:
                raise RuntimeError("Tensor.item() cannot be called on meta tensors")
            if reason == "numpy()":
                raise TypeError("can't convert meta device type tensor to numpy: it has no values")
            raise NotImplementedError(
                f"Cannot copy out of meta tensor; no data! {reason} needs its values. Use Module.to_empty(device=...) "
                "in place of to(), and load the values"
            )
        if asked is not None:
            raise RuntimeError(
                f"{reason} needs the values of a tensor that has a shape {list(asked.shape)} alone: it was made by "
                "xgrad.chips.shapes(), or of a jax.ShapeDtypeStruct, to be compiled for a target and not to be computed"
            )


no_values = NoValues()
no_values.only_shapes = True


@block
def shapes_only(generator: Any) -> Iterator[None]:
    """Within the block operators give tensors without values; at its end the generator is as it was."""
    runner.ask()
    before, drawn = (state.queue, state.lazy), dict(vars(generator))
    state.queue, state.lazy = no_values, True
    try:
        yield
    finally:
        state.queue, state.lazy = before
        vars(generator).update(drawn)


def array_of(shape: tuple[int, ...], dtype: Any, weak_type: bool = False) -> Pending:
    """Return the array of a tensor without values."""
    runner.ask()
    return Pending(no_values, 0, aval_of(tuple(shape), dtype, weak_type))
