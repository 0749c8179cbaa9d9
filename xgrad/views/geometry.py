"""TensorGeometry: sizes, strides and offset of a view, the values of PyTorch's `stride()` and `storage_offset()`.

A geometry counts elements of a row-major flat root.

    root (4, 6)                 geometry sizes (2, 4), strides (3, 6), offset 1
    0  1  2  3  4  5                       1  7 13 19
    6  7  8  9 10 11      ──►              4 10 16 22
    ...                         = root[:, 1:5:3].T

Invariant: a geometry is numbers only, and knows no array: `strided.py` reads and writes through it.  PyTorch's
counterparts: at::TensorGeometry, and at::detail::computeStride (aten/src/ATen/TensorUtils.cpp).
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

Shape = tuple[int, ...]

OVERLAP = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
    "Please clone() the tensor before performing the operation."
)


def contiguous_strides(sizes: Shape) -> Shape:
    """Return row-major strides; a dimension of size 0 counts as 1, as in PyTorch."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class TensorGeometry:
    """The places of a view's elements: `sizes`, `strides` and `offset`, in elements.  Strides are never negative.

    Strides of dimensions of size 1, and of empty views, are arbitrary, here as in PyTorch; they need not agree.
    """

    sizes: Shape
    strides: Shape
    offset: int = 0

    @classmethod
    def contiguous(cls, sizes: Sequence[int]) -> "TensorGeometry":
        """Return the row-major geometry of a whole root.

        >>> TensorGeometry.contiguous((4, 6)).strides
        (6, 1)
        """
        sizes = tuple(sizes)
        return cls(sizes, contiguous_strides(sizes), 0)

    @property
    def numel(self) -> int:
        return prod(self.sizes)

    def is_contiguous(self) -> bool:
        """Return True if the elements are in row-major order without gaps; an empty view's are."""
        return self.numel == 0 or self.is_in_order(reversed(range(len(self.sizes))))

    def is_in_order(self, dims: Iterable[int]) -> bool:
        """Return True if the elements are in the order of these dimensions, the fastest first, without gaps."""
        expected = 1
        for dim in dims:
            size = self.sizes[dim]
            if size != 1:
                if self.strides[dim] != expected:
                    return False
                expected *= size
        return True

    def span(self) -> tuple[int, int]:
        """Return the lowest and the highest element index touched; `(offset, offset - 1)` if the view is empty."""
        if self.numel == 0:
            return self.offset, self.offset - 1
        return self.offset, self.offset + sum((n - 1) * s for n, s in zip(self.sizes, self.strides))

    def overlaps(self) -> bool:
        """Return True if two different indices are the same element.  Exact.

        PyTorch's own test (at::has_internal_overlap) sees stride 0 only, and so lets overlapping `unfold` and
        `as_strided` views be written.
        """
        return _overlaps(self.sizes, self.strides)

    def distinct(self) -> "TensorGeometry | None":
        """Return a geometry of the same elements, each of them once; None if no strides express it.

        >>> TensorGeometry((3, 4), (0, 2)).distinct()
        TensorGeometry(sizes=(4,), strides=(2,), offset=0)
        >>> TensorGeometry((4, 2), (1, 1)).distinct()
        TensorGeometry(sizes=(5,), strides=(1,), offset=0)
        """
        if self.numel == 0:
            return self
        sizes: list[int] = []
        strides: list[int] = []
        for stride, size in sorted((s, n) for n, s in zip(self.sizes, self.strides) if n > 1 and s > 0):
            # Runs of the same step that touch or overlap are one longer run.
            if strides and stride % strides[-1] == 0 and stride // strides[-1] <= sizes[-1]:
                sizes[-1] += (size - 1) * (stride // strides[-1])
            else:
                sizes.append(size)
                strides.append(stride)
        found = TensorGeometry(tuple(reversed(sizes)), tuple(reversed(strides)), self.offset)
        return None if found.overlaps() else found

    def view_strides(self, new_sizes: Sequence[int]) -> Shape | None:
        """Return the strides that give the same elements, in order, the sizes `new_sizes`; None if there are none.

        The number of elements must agree.

        >>> TensorGeometry.contiguous((4, 6)).view_strides((2, 2, 6))
        (12, 6, 1)
        >>> TensorGeometry((6, 4), (1, 6)).view_strides((24,)) is None
        True
        """
        new_sizes = tuple(new_sizes)
        if self.numel == 0:
            return self.strides if new_sizes == self.sizes else contiguous_strides(new_sizes)
        if not self.sizes:
            return (1,) * len(new_sizes)
        # Runs of dimensions that are contiguous with each other, last first: (number of elements, innermost stride).
        runs: list[tuple[int, int]] = []
        count, inner = 1, self.strides[-1]
        for d in range(len(self.sizes) - 1, -1, -1):
            count *= self.sizes[d]
            if d == 0 or (self.sizes[d - 1] != 1 and self.strides[d - 1] != count * inner):
                runs.append((count, inner))
                count, inner = 1, self.strides[d - 1]
        # Each run must be used up by whole new dimensions.
        strides: list[int] = []
        d = len(new_sizes) - 1
        for count, inner in runs:
            taken = 1
            while d >= 0 and (taken < count or new_sizes[d] == 1):
                strides.append(taken * inner)
                taken *= new_sizes[d]
                d -= 1
            if taken != count:
                return None
        return tuple(reversed(strides)) if d < 0 else None


@functools.lru_cache(maxsize=4096)
def _overlaps(sizes: Shape, strides: Shape) -> bool:
    if prod(sizes) == 0:
        return False
    dims = sorted(((s, n) for n, s in zip(sizes, strides) if n > 1), reverse=True)
    reach = [0]  # reach[i]: the largest distance from their start that dims[i:] together give
    for stride, size in reversed(dims):
        reach.append(reach[-1] + (size - 1) * stride)
    reach.reverse()
    if all(stride > reach[i + 1] for i, (stride, _) in enumerate(dims)):
        return False
    # Two indices meet iff some difference of indices, not all zero, moves by nothing.  Search the differences, largest
    # stride first: the remaining distance must be within `reach` of the smaller strides, so there are few to try.
    seen: set[tuple[int, int, bool]] = set()
    todo = [(0, 0, False)]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        i, moved, different = state
        if i == len(dims):
            if moved == 0 and different:
                return True
            continue
        stride, size = dims[i]
        if stride == 0:
            return True
        low = max(-(size - 1), -((moved + reach[i + 1]) // stride))
        high = min(size - 1, (reach[i + 1] - moved) // stride)
        todo.extend((i + 1, moved + d * stride, different or d != 0) for d in range(low, high + 1))
    return False


def check_bounds(geometry: TensorGeometry, storage_numel: int, itemsize: int) -> None:
    """Raise `RuntimeError` if `geometry` has elements outside of a storage of `storage_numel` elements."""
    if geometry.numel == 0:
        return
    low, high = geometry.span()
    if low < 0 or high >= storage_numel:
        raise RuntimeError(
            f"setStorage: sizes {list(geometry.sizes)}, strides {list(geometry.strides)}, storage offset "
            f"{geometry.offset}, and itemsize {itemsize} requiring a storage size of {(high + 1) * itemsize} are out "
            f"of bounds for storage of size {storage_numel * itemsize}"
        )
