"""tracking: a context manager by which new views are differentiated as operations, or by sizes and strides.

Both ways give the same values and gradients.  They differ in the metadata of a view and its CopySlices, and so in the
nodes of the graph and in the programs that backward runs:

    "replay"     the view operations; a regenerated grad_fn is SelectBackward0, TransposeBackward0, ...
    "geometry"   sizes, strides and offset in the base; a regenerated grad_fn is AsStridedBackward0

Invariant: the choice is made once for each view, when it is made, and is per thread.
"""

from contextlib import ContextDecorator

from ..config import Block, state

PATHS = ("replay", "geometry")


class tracking(Block, ContextDecorator):
    """Make views along `path`, "replay" or "geometry", in a `with` block or a decorated function.

    Without it the device decides: XLA's devices have no strides, so their views are replayed.
    Raises `ValueError` for another path.

    >>> import xgrad
    >>> base = xgrad.ones(2, 3, requires_grad=True).clone()
    >>> with xgrad.views.tracking("geometry"):
    ...     row = base[0]
    >>> _ = row.mul_(2)
    >>> row.grad_fn.name()
    'AsStridedBackward0'
    """

    def __init__(self, path: str) -> None:
        if path not in PATHS:
            raise ValueError(f'views are tracked by "replay" or by "geometry", not by {path!r}')
        self.path = path

    def _recreate_cm(self) -> "tracking":
        return type(self)(self.path)  # a decorated function may call itself, and be called by several threads

    def __enter__(self) -> None:
        self._will_restore("tracking")
        state.tracking = self.path
