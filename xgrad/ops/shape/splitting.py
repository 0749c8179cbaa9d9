"""split, chunk, tensor_split, unbind: cut a tensor along a dimension into several views.

Such views must not be written in place while they are recorded (CreationMeta.MULTI_OUTPUT_NODE), as in PyTorch; the
views of `tensor_split` may be written, because they are slices made one by one.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...base import dtypes
from ...base.limits import check_views
from ...dispatch.declare import composite
from ...dispatch.view import view, views_of
from ...tensor import Tensor
from ...views.named.arguments import int_of, own_dim, wrap_dim


def _pieces(input: Tensor, dim: int, sizes: Sequence[int], name: str) -> tuple[Tensor, ...]:
    keys, start = [], 0
    for size in sizes:
        keys.append(("narrow", dim, start, size))
        start += size
    return views_of(input, keys, name)


def _require_dims(input: Tensor, name: str) -> None:
    if not input.ndim:
        raise RuntimeError(f"{name} expects at least a 1-dimensional tensor")


@composite(method=False)
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces of `split_size` elements (the last may be smaller), or of the given sizes, in one dimension."""
    if isinstance(split_size_or_sections, Sequence):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    _require_dims(tensor, "split")
    dim, size = wrap_dim(dim, tensor.ndim), int_of(split_size_or_sections)
    length = tensor.shape[dim]
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if size == 0 and length:
        raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {length}")
    count = max(-(-length // size), 1) if size else 1
    check_views(count, "split")
    return _pieces(tensor, dim, [min(size, length - i * size) if size else 0 for i in range(count)], "SplitBackward0")


@composite("split", function=False)
def _split(input: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces of `split_size` elements (the last may be smaller), or of the given sizes, in one dimension."""
    return split(input, split_size, dim)


@composite
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces of the given sizes in one dimension."""
    _require_dims(input, "split")
    dim, sizes = wrap_dim(dim, input.ndim), tuple(int_of(s) for s in split_sizes)
    if min(sizes, default=0) < 0:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={list(sizes)}"
        )
    if sum(sizes) != input.shape[dim]:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {input.shape[dim]} (input tensor's size at "
            f"dimension {dim}), but got split_sizes={list(sizes)}"
        )
    return _pieces(input, dim, sizes, "SplitWithSizesBackward0")


@composite
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size (the last may be smaller) in one dimension."""
    _require_dims(input, "chunk")
    chunks = int_of(chunks)
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    dim = wrap_dim(dim, input.ndim)
    length = input.shape[dim]
    if length == 0:
        check_views(chunks, "chunk")
        return _pieces(input, dim, [0] * chunks, "SplitWithSizesBackward0")
    return split(input, -(-length // chunks), dim)


def _cuts(indices_or_sections: Any, named: dict[str, Any], name: str) -> Any:
    """The places to cut at, a tuple of indices, or a number of sections; PyTorch has a keyword for each form."""
    if indices_or_sections is None:
        if len(named) != 1 or not set(named) <= {"indices", "sections", "tensor_indices_or_sections"}:
            raise TypeError(f"{name}() takes indices or sections, but got {', '.join(named) or 'neither'}")
        (indices_or_sections,) = named.values()
    elif named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")
    if not isinstance(indices_or_sections, Tensor):
        several = isinstance(indices_or_sections, Sequence)
        return tuple(map(int_of, indices_or_sections)) if several else int_of(indices_or_sections)
    if indices_or_sections.dtype != dtypes.default_integer():
        raise RuntimeError(
            f"{name} expected tensor_indices_or_sections to have dtype of long, but got "
            f"{dtypes.TORCH_NAMES.get(indices_or_sections.dtype, indices_or_sections.dtype.name)}"
        )
    if indices_or_sections.ndim > 1:
        raise RuntimeError(
            f"{name} expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but got a "
            f"tensor with {indices_or_sections.ndim} dims"
        )
    found = indices_or_sections.tolist()
    return tuple(found) if indices_or_sections.ndim else found


@composite
def tensor_split(input: Tensor, indices_or_sections: Any = None, dim: int = 0, **named: Any) -> tuple[Tensor, ...]:
    """Views cut at the given indices, or into that many pieces of sizes that differ by at most one."""
    cuts = _cuts(indices_or_sections, named, "tensor_split")
    if not input.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    dim = wrap_dim(dim, input.ndim)
    length = input.shape[dim]
    if isinstance(cuts, tuple):
        keys = [("slice", dim, a, b, 1) for a, b in pairwise((0, *cuts, length))]
        return tuple(view(input, key, "SliceBackward0") for key in keys)
    if cuts <= 0:
        raise RuntimeError(f"number of sections must be larger than 0, got {cuts}")
    check_views(cuts, "tensor_split")
    small, more = divmod(length, cuts)
    keys = [("narrow", dim, i * small + min(i, more), small + (i < more)) for i in range(cuts)]
    return tuple(view(input, key, "SliceBackward0") for key in keys)


def _axis_split(name: str, minimum: int, axis: Any) -> None:
    @composite(name)
    def split_axis(input: Tensor, indices_or_sections: Any = None, **named: Any) -> tuple[Tensor, ...]:
        if input.ndim < minimum:
            raise RuntimeError(
                f"{name} requires a tensor with at least {minimum} dimension, but got a tensor with {input.ndim} "
                "dimensions!"
            )
        cuts = _cuts(indices_or_sections, named, name)
        dim = axis(input.ndim)
        n = input.shape[dim]
        if isinstance(cuts, int) and (cuts <= 0 or n % cuts):
            raise RuntimeError(
                f"{name} attempted to split along dimension {dim}, but the size of the dimension {n} is not divisible "
                f"by the split_size {cuts}!"
            )
        return tensor_split(input, cuts, dim)

    split_axis.__name__ = name
    split_axis.__doc__ = f"`tensor_split` along the dimension that `{name}` is called after."


_axis_split("hsplit", 1, lambda ndim: 0 if ndim == 1 else 1)
_axis_split("vsplit", 2, lambda ndim: 0)
_axis_split("dsplit", 3, lambda ndim: 2)


@composite
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views at each index of one dimension."""
    dim = own_dim(wrap_dim(dim, input.ndim), input.ndim)
    check_views(input.shape[dim], "unbind")
    return views_of(input, [("select", dim, i) for i in range(input.shape[dim])], "UnbindBackward0")
