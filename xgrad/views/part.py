"""within: expresses a view of a storage as an `as_strided` of another view that contains it, for dispatch/view.py.

`as_strided` counts elements of the storage.  A detached slice is a base of its own for autograd, which knows only the
part: a view inside of the part is a view of it.
"""

import numpy as np

from .chain import ViewChain
from .geometry import TensorGeometry


def within(part: ViewChain, seen: ViewChain) -> ViewChain | None:
    """Return the chain from the view `part` to the view `seen`; None if it is not inside, or has no strides there."""
    if not (part.expressible and seen.expressible) or part.overlaps:
        return None
    here, there = part.geometry, seen.geometry
    if here.is_contiguous():
        first, last = there.span()
        offset = first - here.offset
        if there.numel and not (offset >= 0 and last - here.offset < here.numel):
            return None
        strides = there.strides
        offset = offset if there.numel else 0
    else:
        found = _places(here, there)
        if found is None:
            return None
        strides, offset = found
    return ViewChain.root(part.shape, part.dtype).view("as_strided", there.sizes, strides, offset)


def _places(here: TensorGeometry, there: TensorGeometry) -> tuple[tuple[int, ...], int] | None:
    """Return strides and offset of `there` in the elements of `here`, laid out in rows."""
    if not there.numel:
        return there.strides, 0
    mine, asked = _positions(here).reshape(-1), _positions(there)
    order = np.argsort(mine)
    found = np.searchsorted(mine, asked, sorter=order)
    if found.max() >= mine.size:
        return None
    places = order[found]
    if not np.array_equal(mine[places], asked):
        return None
    first = int(places[(0,) * places.ndim])
    strides = tuple(
        int(places[tuple(int(k == d) for k in range(places.ndim))]) - first if n > 1 else 1
        for d, n in enumerate(there.sizes)
    )
    regular = min(strides, default=0) >= 0 and np.array_equal(
        _positions(TensorGeometry(there.sizes, strides, first)), places
    )
    return (strides, first) if regular else None


def _positions(geometry: TensorGeometry) -> np.ndarray:
    """Return the storage index of each element."""
    found = np.asarray(geometry.offset)
    for n, stride in zip(geometry.sizes, geometry.strides, strict=True):
        found = found[..., None] + np.arange(n) * stride
    return found
