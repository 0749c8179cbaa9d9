"""PyTorch's view operations that return one tensor (select, transpose, reshape, ...), as functions and methods.

Most are one call of `dispatch/view.py`: PyTorch's arguments as the key of the view, and the name of its node.
`reshape`, `reshape_as`, `ravel`, `flatten` and `contiguous` may return a copy; `positive` returns the tensor itself,
`flatten` and `contiguous` may.
"""

from collections.abc import Sequence
from typing import Any

from ...base import dtypes
from ...dispatch.declare import composite
from ...dispatch.tables import FUNCTIONS, METHODS
from ...dispatch.view import bits_of, try_view, view, view_inplace
from ...tensor import Size, Tensor
from ...views.named.arguments import int_of, sizes_of, variadic, wrap_dim
from ...views.storage import UNTRACKED


@composite
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The view at one index of one dimension; the dimension is gone.

    >>> import xgrad
    >>> xgrad.arange(6).reshape(2, 3).select(0, 1)
    tensor([3, 4, 5])
    """
    return view(input, ("select", int_of(dim), int_of(index)), "SelectBackward0")


@composite
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """The view of `length` elements from `start` on in one dimension."""
    if isinstance(start, Tensor) and (start.ndim or start.dtype not in dtypes.INTEGERS):
        raise RuntimeError("narrow(): start must be an 0-dim integral Tensor.")
    return view(input, ("narrow", int_of(dim), int_of(start), int_of(length)), "SliceBackward0")


@composite("slice", function=False, method=False)
def slice_(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """The view `input[start:end:step]` in one dimension."""
    start, end = (None if bound is None else int_of(bound) for bound in (start, end))
    return view(input, ("slice", int_of(dim), start, end, int_of(step)), "SliceBackward0")


@composite
def permute(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """The view with its dimensions in the order `dims`."""
    return view(input, ("permute", variadic("permute", "dims", dims, named)), "PermuteBackward0")


@composite(aliases=("swapdims",))
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """The view with two dimensions swapped."""
    return view(input, ("transpose", int_of(dim0), int_of(dim1)), "TransposeBackward0")


@composite
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """The view with two dimensions swapped."""
    return transpose(input, axis0, axis1)


@composite
def t(input: Tensor) -> Tensor:
    """The transpose of a tensor with at most two dimensions, as a view."""
    return view(input, ("t",), "TBackward0")


@composite(aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """The view with dimensions `source` moved to the places `destination`."""
    return view(input, ("movedim", sizes_of((source,)), sizes_of((destination,))), "PermuteBackward0")


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
def view_(input: Tensor, *size: Any, **named: Any) -> Tensor:
    """The view with another shape (one size may be -1), or, given a dtype, the same bits as that dtype.

    Raises `RuntimeError` if the layout of a view of `input` does not allow it: use `reshape` then.
    """
    if not size and set(named) == {"dtype"}:
        size, named = (named["dtype"],), {}
    if len(size) == 1 and not isinstance(size[0], (int, Sequence)) and not hasattr(size[0], "__index__"):
        return bits_of(input, ("view_dtype", dtypes.exact_dtype(size[0])))
    return view(input, ("view", *variadic("view", "size", size, named)), "ViewBackward0")


@composite(function=False)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """`input.view(other.size())`."""
    return view(input, ("view", *other.shape), "ViewBackward0")


@composite
def reshape(input: Tensor, *shape: Any, **named: Any) -> Tensor:
    """The tensor with another shape: a view exactly where PyTorch's strides would allow one, else a copy.

    >>> import xgrad
    >>> xgrad.arange(6).reshape(2, -1).shape
    xgrad.Size([2, 3])
    """
    size = variadic("reshape", "shape", shape, named)
    out = try_view(input, ("reshape", *size), "ViewBackward0")
    if out is None:
        out = view(input.clone(), ("reshape", *size), "UnsafeViewBackward0")
        if out._level is not None:
            return out
        out._array = out._read()  # the result is a copy with its own storage, and no view
        out._view = out._storage = out._cache = None
        out._version_counter = UNTRACKED if out._inference else None
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
    return view(input, ("unflatten", int_of(dim), sizes_of((sizes,))), "ViewBackward0")


def _squeezed(dim: tuple, named: dict[str, Any], first: int = 0) -> tuple[tuple, str]:
    """(key, node's name) of a view without one dimension, or several, or all that have size 1.

    PyTorch numbers its nodes in this order, the nodes of the in-place forms from `first` = 3 on.
    """
    if not dim:
        if not named:
            return ("squeeze",), f"SqueezeBackward{first}"
        if set(named) == {"dim"}:
            dim, named = (named["dim"],), {}
    dims = variadic("squeeze", "dim", dim, named)
    one = len(dim) == 1 and (dim[0].__class__ is int or not isinstance(dim[0], Sequence))
    return ("squeeze", *dims) if dims else ("squeeze", ()), f"SqueezeBackward{first + (1 if one else 2)}"


@composite
def squeeze(input: Tensor, *dim: Any, **named: Any) -> Tensor:
    """The view without the dimensions of size 1 (all, or those in `dim` that have it)."""
    return view(input, *_squeezed(dim, named))


@composite
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """The view with a new dimension of size 1 at `dim`."""
    return view(input, ("unsqueeze", int_of(dim)), "UnsqueezeBackward0")


@composite(namespace=("", "linalg"))
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The view of a diagonal of two dimensions, as the last dimension."""
    return view(input, ("diagonal", int_of(offset), int_of(dim1), int_of(dim2)), "DiagonalBackward0")


def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The view of a diagonal of the last two dimensions."""
    return diagonal(A, offset, dim1, dim2)


FUNCTIONS["linalg"]["diagonal"] = linalg_diagonal


@composite(function=False)
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """The view of all slices of `size` elements, `step` apart, of one dimension, as a new last dimension."""
    return view(input, ("unfold", int_of(dimension), int_of(size), int_of(step)), "UnfoldBackward0")


def _strided(size: Any, stride: Any, storage_offset: Any = None) -> tuple:
    offset = None if storage_offset is None else int_of(storage_offset)
    for name, value in (("size", size), ("stride", stride)):
        if not isinstance(value, Sequence):
            raise TypeError(f"as_strided(): argument '{name}' must be tuple of ints, not {type(value).__name__}")
    return "as_strided", sizes_of(tuple(size)), sizes_of(tuple(stride)), offset


@composite
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """The view of the storage with the given geometry, emulated on a device without strides.

    Raises `RuntimeError` if it would read outside of the storage.
    """
    return view(input, _strided(size, stride, storage_offset), "AsStridedBackward0")


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


@composite("detach_", method=False)
def _detach_inplace(input: Tensor) -> Tensor:
    """Take a tensor out of the graph, in place.  Raises `RuntimeError` for a view."""
    return input.detach_()


@composite
def alias(input: Tensor) -> Tensor:
    """A view of the whole tensor."""
    return view(input, ("alias",), "AliasBackward0")


@composite(function=False)
def contiguous(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself if its elements lie in row-major order, else a copy."""
    return input if input.is_contiguous() else input.clone()


# -- in place ----------------------------------------------------------------------------------------------------------


def _inplace(name: str, key: Any) -> None:
    """Declare the method that makes a tensor its own view; `key` returns (key of the view, node's name)."""

    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return view_inplace(self, *key(*args, **kwargs))

    change.__name__ = name
    change.__doc__ = f"In-place version of `{name[:-1]}`: the tensor moves to that view of its storage."
    METHODS[name] = change


_inplace("t_", lambda: (("t",), "TBackward1"))
for _name in ("transpose_", "swapdims_"):
    _inplace(_name, lambda dim0, dim1: (("transpose", int_of(dim0), int_of(dim1)), "TransposeBackward1"))
_inplace("swapaxes_", lambda axis0, axis1: (("transpose", int_of(axis0), int_of(axis1)), "TransposeBackward1"))
_inplace("squeeze_", lambda *dim, **named: _squeezed(dim, named, 3))
_inplace("unsqueeze_", lambda dim: (("unsqueeze", int_of(dim)), "UnsqueezeBackward1"))
_inplace(
    "as_strided_",
    lambda size, stride, storage_offset=None: (_strided(size, stride, storage_offset), "AsStridedBackward1"),
)
