"""The view operations of PyTorch that give one view of one tensor, as functions, methods and in-place methods.

Each is one line over `viewing.view`: PyTorch's arguments as the key of the view, and the name of its node.
"""

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..tensor import Size, Tensor
from .promotion import wrap_dim
from .registry import FUNCTIONS, METHODS, composite
from .sizes import int_of, sizes_of
from .viewing import bits_of, try_view, view, view_inplace


@composite
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The view at one index of one dimension; the dimension is gone.

    >>> import xgrad
    >>> xgrad.arange(6).reshape(2, 3).select(0, 1)
    tensor([3, 4, 5])
    """
    return view(input, ("select", dim, int_of(index)), "SelectBackward0")


@composite
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """The view of `length` elements from `start` on in one dimension."""
    return view(input, ("narrow", dim, int_of(start), length), "SliceBackward0")


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
        return bits_of(input, ("view_dtype", dtypes.as_dtype(shape[0])))
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
