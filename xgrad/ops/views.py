"""The view operations of PyTorch, as functions and methods over `viewing.view`.

Each is one line: PyTorch's arguments as the key of the view, and the name of its node.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from .. import dtypes
from ..tensor import Size, Tensor
from ..views.view_ops import Conj, Neg
from .promotion import wrap_dim
from .registry import FUNCTIONS, METHODS, composite
from .viewing import try_view, view, view_inplace, views_of


def sizes_of(size: tuple) -> tuple[int, ...]:
    """Sizes given as one sequence or as several ints."""
    if len(size) == 1 and isinstance(size[0], Sequence):
        size = tuple(size[0])
    if all(s.__class__ is int for s in size):
        return size
    return tuple(_index(s) for s in size)


def _index(s: Any) -> int:
    if isinstance(s, Tensor):
        return int(s)
    try:
        return s.__index__()
    except AttributeError:
        raise TypeError(f"sizes and dims must be ints, but got {type(s).__name__}") from None


@composite
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The view at one index of one dimension; the dimension is gone.

    >>> import xgrad
    >>> xgrad.arange(6).reshape(2, 3).select(0, 1)
    tensor([3, 4, 5])
    """
    return view(input, ("select", dim, _index(index)), "SelectBackward0")


@composite
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """The view of `length` elements from `start` on in one dimension."""
    return view(input, ("narrow", dim, _index(start), length), "SliceBackward0")


@composite("slice", function=False, method=False)
def slice_(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """The view `input[start:end:step]` in one dimension."""
    return view(input, ("slice", dim, start, end, step), "SliceBackward0")


@composite
def permute(input: Tensor, *dims: Any) -> Tensor:
    """The view with its dimensions in the order `dims`."""
    return view(input, ("permute", sizes_of(dims)), "PermuteBackward0")


@composite(aliases=("swapaxes", "swapdims"))
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """The view with two dimensions swapped."""
    return view(input, ("transpose", dim0, dim1), "TransposeBackward0")


@composite
def t(input: Tensor) -> Tensor:
    """The transpose of a tensor with at most two dimensions, as a view."""
    return view(input, ("t",), "TBackward0")


@composite(aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """The view with dimensions `source` moved to the places `destination`."""
    source, destination = (tuple(d) if isinstance(d, Sequence) else d for d in (source, destination))
    return view(input, ("movedim", source, destination), "PermuteBackward0")


@composite
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions, as a view."""
    return view(input, ("adjoint",), "TransposeBackward0")


def _transposed(name: str, key: tuple) -> None:
    def read(self: Tensor) -> Tensor:
        return view(self, key, "PermuteBackward0" if name == "T" else "TransposeBackward0")

    read.__doc__ = f"The view `{key[0]}` of PyTorch."
    METHODS[name] = property(read)


for _name in ("T", "mT", "H", "mH"):
    _transposed(_name, (_name,))


@composite("view", function=False)
def view_(input: Tensor, *shape: Any) -> Tensor:
    """The view with another shape (one size may be -1), or, given a dtype, the same bits as that dtype.

    Raises `RuntimeError` if the layout of a view of `input` does not allow it: use `reshape` then.
    """
    if len(shape) == 1 and not isinstance(shape[0], (int, Sequence)) and not hasattr(shape[0], "__index__"):
        return view(input, ("view_dtype", dtypes.as_dtype(shape[0])), "ViewBackward0")
    return view(input, ("view", *sizes_of(shape)), "ViewBackward0")


@composite(function=False)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """`input.view(other.size())`."""
    return view(input, ("view", *other.shape), "ViewBackward0")


@composite
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """The tensor with another shape: a view exactly where PyTorch's strides would allow one, else a copy.

    >>> import xgrad
    >>> xgrad.arange(6).reshape(2, -1).shape
    xgrad.Size([2, 3])
    """
    size = sizes_of(shape)
    out = try_view(input, ("reshape", *size), "ViewBackward0")
    if out is None:
        out = view(input.clone(), ("reshape", *size), "UnsafeViewBackward0")
        out._array = out._read()  # nobody else has the copy: what is returned is no view
        out._view = out._storage = out._version_counter = out._cache = None
        out._chain = None  # pyright: ignore[reportAttributeAccessIssue] - as in the class: it goes with _storage
    return out


@composite(function=False)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """`input.reshape(other.size())`."""
    return reshape(input, tuple(other.shape))


@composite
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from `start_dim` to `end_dim` as one; a view where the layout allows it."""
    start, end = wrap_dim(start_dim, input.ndim), wrap_dim(end_dim, input.ndim)
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    shape = tuple(input.shape)
    if not shape:
        return reshape(input, (1,))
    if start == end:
        return input
    return reshape(input, (*shape[:start], Size(shape[start : end + 1]).numel(), *shape[end + 1 :]))


@composite
def ravel(input: Tensor) -> Tensor:
    """`input.reshape(-1)`."""
    return reshape(input, (-1,))


@composite
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """One dimension as several, of the given sizes (one may be -1), as a view."""
    return view(input, ("unflatten", dim, sizes_of((sizes,))), "ViewBackward0")


@composite
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """The view without the dimensions of size 1 (all, or those in `dim` that have it)."""
    key = ("squeeze",) if dim is None else ("squeeze", tuple(dim) if isinstance(dim, Sequence) else dim)
    return view(input, key, "SqueezeBackward0" if dim is None else "SqueezeBackward1")


@composite
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """The view with a new dimension of size 1 at `dim`."""
    return view(input, ("unsqueeze", dim), "UnsqueezeBackward0")


@composite(function=False)
def expand(input: Tensor, *size: Any, implicit: bool = False) -> Tensor:
    """The view with dimensions of size 1 repeated to `size` (-1 keeps one); it must not be written."""
    return view(input, ("expand", *sizes_of(size)), "ExpandBackward0")


@composite(function=False)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`input.expand(other.size())`."""
    return view(input, ("expand", *other.shape), "ExpandBackward0")


@composite
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """`input.expand(size)`."""
    return view(input, ("expand", *sizes_of((size,))), "ExpandBackward0")


@composite(namespace=("", "linalg"))
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The view of a diagonal of two dimensions, as the last dimension."""
    return view(input, ("diagonal", offset, dim1, dim2), "DiagonalBackward0")


def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The view of a diagonal of the last two dimensions."""
    return diagonal(A, offset, dim1, dim2)


FUNCTIONS["linalg"]["diagonal"] = linalg_diagonal


@composite(function=False)
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """The view of all slices of `size` elements, `step` apart, of one dimension, as a new last dimension."""
    return view(input, ("unfold", dimension, size, step), "UnfoldBackward0")


@composite
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """The view of the storage with the given geometry, emulated on a device without strides.

    Raises `RuntimeError` if it would read outside of the storage.
    """
    return view(input, ("as_strided", tuple(size), tuple(stride), storage_offset), "AsStridedBackward0")


@composite
def view_as_real(input: Tensor) -> Tensor:
    """A complex tensor as a real one with a last dimension of size 2, as a view."""
    return view(input, ("view_as_real",), "ViewAsRealBackward0")


@composite
def view_as_complex(input: Tensor) -> Tensor:
    """A real tensor whose last dimension has size 2 as a complex one, as a view."""
    return view(input, ("view_as_complex",), "ViewAsComplexBackward0")


@composite(method=False)
def real(input: Tensor) -> Tensor:
    """The real part, as a view; a real tensor itself."""
    return view(input, ("real",), "SelectBackward0") if input.dtype in dtypes.COMPLEX else input


@composite(method=False)
def imag(input: Tensor) -> Tensor:
    """The imaginary part of a complex tensor, as a view."""
    return view(input, ("imag",), "SelectBackward0")


def _write_part(part: Any) -> Any:
    def write(self: Tensor, value: Any) -> None:
        part(self).copy_(value)

    return write


METHODS["real"] = property(real, _write_part(real))
METHODS["imag"] = property(imag, _write_part(imag))


@composite
def conj(input: Tensor) -> Tensor:
    """The complex conjugate, as a view; a real tensor itself."""
    return view(input, ("conj",), "ConjBackward0") if input.dtype in dtypes.COMPLEX else input


def _has_step(self: Tensor, kind: type) -> bool:
    return self._chain is not None and any(isinstance(step, kind) for step in self._chain.steps)


@composite
def is_conj(input: Tensor) -> bool:
    """Whether the tensor is a conjugate view.  (PyTorch keeps a bit; here it is a step of the view chain.)"""
    return _has_step(input, Conj)


@composite
def is_neg(input: Tensor) -> bool:
    """Whether the tensor is a negative view."""
    return _has_step(input, Neg)


@composite
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself, or a copy of a conjugate view."""
    return input.clone() if is_conj(input) else input


@composite
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself, or a copy of a negative view."""
    return input.clone() if is_neg(input) else input


@composite
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate, as a copy."""
    return conj(input).clone() if input.dtype in dtypes.COMPLEX else input


@composite
def positive(input: Tensor) -> Tensor:
    """The tensor itself.  Raises `RuntimeError` for bool."""
    if input.dtype == dtypes.bool:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


METHODS["__pos__"] = positive


@composite(method=False)
def detach(input: Tensor) -> Tensor:
    """An alias of the value outside of the graph."""
    return input.detach()


@composite
def alias(input: Tensor) -> Tensor:
    """A view of the whole tensor."""
    return view(input, ("alias",), "AliasBackward0")


@composite(function=False)
def contiguous(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself if its elements lie in row-major order, else a copy."""
    return input if input.is_contiguous() else input.clone()


# -- several views at once ---------------------------------------------------------------------------------------------


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
    dim, size = wrap_dim(dim, tensor.ndim), _index(split_size_or_sections)
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
    dim, sizes = wrap_dim(dim, input.ndim), tuple(_index(s) for s in split_sizes)
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


@composite(method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors, expanded to their common shape."""
    from .promotion import broadcast_shapes

    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], Sequence) else tensors
    shape = broadcast_shapes(*(tuple(x.shape) for x in given))
    return tuple(expand(x, shape) for x in given)


@composite("broadcast_shapes", method=False)
def broadcast_shapes_(*shapes: Any) -> Size:
    """The common shape of tensors of these shapes."""
    from .promotion import broadcast_shapes

    return Size(broadcast_shapes(*(tuple(s) if isinstance(s, Sequence) else (s,) for s in shapes)))


@composite(method=False)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids of 1-dim tensors, as expanded views; `indexing` is "ij" or "xy"."""
    given = list(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], Sequence) else tensors)
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    for x in given:
        if x.ndim > 1:
            raise RuntimeError(f"meshgrid: Expected 0D or 1D tensor in the tensor list but got: {list(x.shape)}")
    swap = indexing == "xy" and len(given) >= 2
    if swap:
        given[0], given[1] = given[1], given[0]
    shape = tuple(x.numel() for x in given)
    grids = []
    for i, x in enumerate(given):
        lying = tuple(n if j == i else 1 for j, n in enumerate(shape))
        grids.append(expand(view(x, ("view", *lying), "ViewBackward0"), shape))
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def _at_least(name: str, shape_of: Any) -> None:
    @composite(name, method=False)
    def at_least(*tensors: Any) -> Any:
        given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
        out = tuple(shape_of(x) for x in given)
        return out[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else out

    at_least.__doc__ = f"The tensors as views with at least {name[-2]} dimension(s)."


_at_least("atleast_1d", lambda x: x if x.ndim >= 1 else reshape(x, (1,)))
_at_least("atleast_2d", lambda x: x if x.ndim >= 2 else unsqueeze(x, 0) if x.ndim else reshape(x, (1, 1)))
_at_least(
    "atleast_3d",
    lambda x: x if x.ndim >= 3 else unsqueeze(x, -1) if x.ndim == 2 else reshape(x, (1, -1, 1)),
)

# -- in place ----------------------------------------------------------------------------------------------------------


def _inplace(name: str, node: str, key: Any) -> None:
    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return view_inplace(self, key(*args, **kwargs), node)

    change.__name__ = name
    change.__doc__ = f"In-place version of `{name[:-1]}`: the tensor moves to that view of its storage."
    METHODS[name] = change


_swap = lambda dim0, dim1: ("transpose", dim0, dim1)  # noqa: E731 - one entry of the table below, used three times
_inplace("t_", "TBackward0", lambda: ("t",))
for _name in ("transpose_", "swapaxes_", "swapdims_"):
    _inplace(_name, "TransposeBackward0", _swap)
_inplace("squeeze_", "SqueezeBackward0", lambda *dim: ("squeeze", *dim))
_inplace("unsqueeze_", "UnsqueezeBackward0", lambda dim: ("unsqueeze", dim))
_inplace(
    "as_strided_",
    "AsStridedBackward0",
    lambda size, stride, storage_offset=None: ("as_strided", tuple(size), tuple(stride), storage_offset),
)
