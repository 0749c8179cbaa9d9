"""Several views made by one operation: split, chunk, tensor_split, unbind.

Such views must not be written in place while they are recorded (CreationMeta.MULTI_OUTPUT_NODE), as in PyTorch; those
of `tensor_split`, which are slices made one by one, may.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..tensor import Tensor
from .promotion import wrap_dim
from .registry import composite
from .sizes import int_of
from .viewing import view, views_of


def _pieces(input: Tensor, dim: int, sizes: Sequence[int], name: str) -> tuple[Tensor, ...]:
    keys, start = [], 0
    for size in sizes:
        keys.append(("narrow", dim, start, size))
        start += size
    return views_of(input, keys, name)


@composite
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces of `split_size` elements (the last may be smaller), or of the given sizes, in one dimension."""
    if isinstance(split_size_or_sections, Sequence):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    dim, size = wrap_dim(dim, tensor.ndim), int_of(split_size_or_sections)
    if not tensor.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    length = tensor.shape[dim]
    if size < 0 or (size == 0 and length):
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    count = max(-(-length // size), 1) if size else 1
    return _pieces(tensor, dim, [min(size, length - i * size) if size else 0 for i in range(count)], "SplitBackward0")


@composite
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces of the given sizes in one dimension."""
    dim, sizes = wrap_dim(dim, input.ndim), tuple(int_of(s) for s in split_sizes)
    if sum(sizes) != input.shape[dim] or min(sizes, default=0) < 0:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {input.shape[dim]} (input tensor's size at "
            f"dimension {dim}), but got split_sizes={list(sizes)}"
        )
    return _pieces(input, dim, sizes, "SplitWithSizesBackward0")


@composite
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size (the last may be smaller) in one dimension."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    dim = wrap_dim(dim, input.ndim)
    length = input.shape[dim]
    if length == 0:
        return _pieces(input, dim, [0] * chunks, "SplitWithSizesBackward0")
    return split(input, -(-length // chunks), dim)


@composite
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views cut at the given indices, or into that many pieces of sizes that differ by at most one."""
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    dim = wrap_dim(dim, input.ndim)
    length = input.shape[dim]
    if isinstance(indices_or_sections, Sequence):
        cuts = [0, *indices_or_sections, length]
        keys = [("slice", dim, a, b, 1) for a, b in pairwise(cuts)]
        return tuple(view(input, key, "SliceBackward0") for key in keys)
    if indices_or_sections <= 0:
        raise RuntimeError(f"number of sections must be larger than 0, got {indices_or_sections}")
    small, more = divmod(length, indices_or_sections)
    sizes = [small + (i < more) for i in range(indices_or_sections)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    keys = [("narrow", dim, a, n) for a, n in zip(starts, sizes, strict=True)]
    return tuple(view(input, key, "SliceBackward0") for key in keys)


def _axis_split(name: str, minimum: int, axis: Any) -> None:
    @composite(name)
    def split_axis(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        if input.ndim < minimum:
            raise RuntimeError(f"{name} requires a tensor with at least {minimum} dimension(s), but got {input.ndim}")
        dim = axis(input.ndim)
        n = input.shape[dim]
        if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or n % indices_or_sections):
            raise RuntimeError(
                f"{name} attempted to split along dimension {dim}, but the size of the dimension {n} is not divisible "
                f"by the split_size {indices_or_sections}!"
            )
        return tensor_split(input, indices_or_sections, dim)

    split_axis.__doc__ = f"`tensor_split` along the dimension that `{name}` is called after."


_axis_split("hsplit", 1, lambda ndim: 0 if ndim == 1 else 1)
_axis_split("vsplit", 2, lambda ndim: 0)
_axis_split("dsplit", 3, lambda ndim: 2)


@composite
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views at each index of one dimension."""
    dim = wrap_dim(dim, input.ndim)
    if not input.ndim:
        raise RuntimeError("unbind: a 0-dim tensor has no dimension to unbind")
    return views_of(input, [("select", dim, i) for i in range(input.shape[dim])], "UnbindBackward0")
