"""PyTorch's names for views, with PyTorch's arguments, defaults and errors, put into canonical view steps.

Invariant: whatever is wrong with the arguments raises here, before anything is changed; the steps that come out are in
bounds.  The messages keep the phrases of aten/src/ATen/native/TensorShape.cpp.
"""

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from .chain import ViewChain
from .geometry import Shape, TensorGeometry, check_bounds
from .view_ops import (
    _PARTS,
    _WHOLE,
    AsStrided,
    BitCast,
    Conj,
    Diagonal,
    Expand,
    Imag,
    Neg,
    Permute,
    Real,
    Reshape,
    Slice,
    Unfold,
    ViewAsComplex,
    ViewAsReal,
)

_VIEWS: dict[str, Callable[..., Any]] = {}


def build(chain: ViewChain, name: str, *args: Any) -> Any:
    """The view of `chain` that PyTorch calls `name`: a chain, or None for a `reshape` that would have to copy.

    Raises what PyTorch raises: IndexError for a dimension or an index out of range, RuntimeError for sizes that do not
    fit, ValueError for the step of a slice.

    >>> build(ViewChain.root((4, 6), np.dtype("float32")), "select", 0, -1).geometry.offset
    18
    """
    view = _VIEWS.get(name)
    if view is None:
        raise ValueError(f"unknown view operation {name!r}: expected one of {', '.join(sorted(_VIEWS))}")
    return view(chain, *args)


def _view(function: Callable[..., Any]) -> Callable[..., Any]:
    _VIEWS[function.__name__.lstrip("_")] = function
    return function


# ---------------------------------------------------------------- arguments


def wrap_dim(dim: Any, ndim: int) -> int:
    """A dimension counted from 0; a 0-dim tensor has dimensions 0 and -1."""
    dim, bound = operator.index(dim), max(ndim, 1)
    if not -bound <= dim < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")
    return dim + bound if dim < 0 else dim


def _ints(args: Sequence[Any]) -> Shape:
    """`f(2, 3)` and `f((2, 3))` alike."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    return tuple(operator.index(a) for a in args)


def _require_dim(chain: ViewChain, name: str, error: type[Exception] = IndexError) -> None:
    if not chain.shape:
        raise error(f"{name}() cannot be applied to a 0-dim tensor.")


def infer_shape(shape: Sequence[int], numel: int) -> Shape:
    """`shape` with its -1 worked out for `numel` elements."""
    for i, n in enumerate(shape):
        if n < -1:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(shape)}")
    unknown = [i for i, n in enumerate(shape) if n == -1]
    if len(unknown) > 1:
        raise RuntimeError("only one dimension can be inferred")
    known = prod(n for n in shape if n != -1)
    if unknown and known == 0 and numel == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 "
            "can be any value and is ambiguous"
        )
    if (numel != known) if not unknown else (known == 0 or numel % known != 0):
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return tuple(numel // known if n == -1 else n for n in shape)


# ---------------------------------------------------------------- slices


def _cut(chain: ViewChain, dim: int, start: int, size: int, step: int = 1) -> ViewChain:
    shape = chain.shape
    return chain.then(
        Slice(
            tuple(start if d == dim else 0 for d in range(len(shape))),
            tuple(size if d == dim else n for d, n in enumerate(shape)),
            tuple(step if d == dim else 1 for d in range(len(shape))),
        )
    )


def _drop(chain: ViewChain, dims: Sequence[int]) -> ViewChain:
    return chain.then(Reshape(tuple(n for d, n in enumerate(chain.shape) if d not in dims)))


def _bounds(start: Any, end: Any, step: int, n: int) -> tuple[int, int]:
    """Start and number of elements of a slice of `n`, clamped as Python does."""
    start = 0 if start is None else operator.index(start)
    end = n if end is None else operator.index(end)
    start = min(max(start + n if start < 0 else start, 0), n)
    end = min(max(end + n if end < 0 else end, start), n)
    return start, (end - start + step - 1) // step


@_view
def select(chain: ViewChain, dim: int, index: int) -> ViewChain:
    _require_dim(chain, "select")
    dim, index = wrap_dim(dim, len(chain.shape)), operator.index(index)
    n = chain.shape[dim]
    if not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(chain.shape)} at dimension {dim}"
        )
    return _drop(_cut(chain, dim, index % n, 1), (dim,))


@_view
def narrow(chain: ViewChain, dim: int, start: int, length: int) -> ViewChain:
    _require_dim(chain, "narrow", RuntimeError)
    start, length = operator.index(start), operator.index(length)
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    dim = wrap_dim(dim, len(chain.shape))
    n = chain.shape[dim]
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    start = start + n if start < 0 else start
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return _cut(chain, dim, start, length)


@_view
def _slice(
    chain: ViewChain, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> ViewChain:
    _require_dim(chain, "slice")
    dim, step = wrap_dim(dim, len(chain.shape)), operator.index(step)
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    start, size = _bounds(start, end, step, chain.shape[dim])
    return _cut(chain, dim, start, size, step)


@_view
def getitem(chain: ViewChain, index: Any) -> ViewChain:
    """Basic indexing: `index` is a tuple of integers, None, Ellipsis and ("slice", start, stop, step)."""
    shape = chain.shape
    used = sum(1 for i in index if i is not None and i is not Ellipsis)
    if sum(1 for i in index if i is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if not shape and any(isinstance(i, tuple) for i in index):
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    if not shape and used:
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a Python number"
        )
    if used > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    if Ellipsis not in index:
        index = (*index, Ellipsis)
    starts, sizes, steps, result = [], [], [], []
    for i in index:
        n = shape[len(starts)] if len(starts) < len(shape) else 0
        if i is None:
            result.append(1)
        elif i is Ellipsis:
            for _ in range(len(shape) - used):
                n = shape[len(starts)]
                starts.append(0)
                sizes.append(n)
                steps.append(1)
                result.append(n)
        elif isinstance(i, tuple):
            step = 1 if i[3] is None else operator.index(i[3])
            if step == 0:
                raise ValueError("slice step cannot be zero")
            if step < 0:
                raise ValueError("step must be greater than zero")
            start, size = _bounds(i[1], i[2], step, n)
            starts.append(start)
            sizes.append(size)
            steps.append(step)
            result.append(size)
        else:
            i = operator.index(i)
            if not -n <= i < n:
                raise IndexError(f"index {i} is out of bounds for dimension {len(starts)} with size {n}")
            starts.append(i % n)
            sizes.append(1)
            steps.append(1)
    return chain.then(Slice(tuple(starts), tuple(sizes), tuple(steps))).then(Reshape(tuple(result)))


@_view
def diagonal(chain: ViewChain, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ViewChain:
    first, second = wrap_dim(dim1, len(chain.shape)), wrap_dim(dim2, len(chain.shape))
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return chain.then(Diagonal(operator.index(offset), first, second))


@_view
def unfold(chain: ViewChain, dimension: int, size: int, step: int) -> ViewChain:
    dim, size, step = wrap_dim(dimension, len(chain.shape)), operator.index(size), operator.index(step)
    n = chain.shape[dim] if chain.shape else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not chain.shape:
        return _cut(chain.then(Reshape((1,))), 0, 0, size)
    return chain.then(Unfold(dim, size, step))


# ---------------------------------------------------------------- transpositions


@_view
def permute(chain: ViewChain, *dims: Any) -> ViewChain:
    order, ndim = _ints(dims), len(chain.shape)
    if len(order) != ndim:
        raise RuntimeError(
            "permute(): number of dimensions in the tensor input does not match the length of the desired ordering of "
            f"dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(order)}"
        )
    wrapped = tuple(wrap_dim(d, ndim) for d in order)
    if len(set(wrapped)) != ndim:
        raise RuntimeError(f"permute(): duplicate dims are not allowed, repeated dim in {list(order)}.")
    return chain.then(Permute(wrapped))


@_view
def transpose(chain: ViewChain, dim0: int, dim1: int) -> ViewChain:
    dim0, dim1 = wrap_dim(dim0, len(chain.shape)), wrap_dim(dim1, len(chain.shape))
    dims = list(range(len(chain.shape)))
    if dims:
        dims[dim0], dims[dim1] = dim1, dim0
    return chain.then(Permute(tuple(dims)))


_VIEWS["swapaxes"] = _VIEWS["swapdims"] = transpose


@_view
def t(chain: ViewChain) -> ViewChain:
    if len(chain.shape) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(chain.shape)}D")
    return T(chain)


@_view
def T(chain: ViewChain) -> ViewChain:
    return chain.then(Permute(tuple(reversed(range(len(chain.shape))))))


def _matrices(chain: ViewChain, what: str) -> ViewChain:
    if len(chain.shape) == 1:
        raise RuntimeError(f"tensor.{what} is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return transpose(chain, -2, -1) if chain.shape else chain


@_view
def mT(chain: ViewChain) -> ViewChain:
    return _matrices(chain, "mT")


@_view
def mH(chain: ViewChain) -> ViewChain:
    return conj(_matrices(chain, "mH"))


@_view
def adjoint(chain: ViewChain) -> ViewChain:
    return conj(_matrices(chain, "adjoint()"))


@_view
def H(chain: ViewChain) -> ViewChain:
    ndim = len(chain.shape)
    if ndim not in (0, 2):
        more = " For batches of matrices, consider using tensor.mH" if ndim > 2 else ""
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {ndim}-D tensor.{more}")
    return conj(T(chain))


@_view
def movedim(chain: ViewChain, source: Any, destination: Any) -> ViewChain:
    sources, destinations = _ints([source]), _ints([destination])
    if len(sources) != len(destinations):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(sources)} dims) should contain the same "
            f"number of dims as destination ({list(destinations)} dims)"
        )
    ndim = len(chain.shape)
    src = [wrap_dim(d, ndim) for d in sources]
    dst = [wrap_dim(d, ndim) for d in destinations]
    for dims, given, name in ((src, sources, "source"), (dst, destinations, "destination")):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(given)})")
    rest = iter([d for d in range(ndim) if d not in src])
    placed = dict(zip(dst, src))
    return chain.then(Permute(tuple(placed[d] if d in placed else next(rest) for d in range(ndim))))


_VIEWS["moveaxis"] = movedim


# ---------------------------------------------------------------- shapes


@_view
def view(chain: ViewChain, *shape: Any) -> ViewChain:
    if len(shape) == 1 and not isinstance(shape[0], (tuple, list)) and not hasattr(shape[0], "__index__"):
        return view_dtype(chain, shape[0])
    found = reshape(chain, *shape)
    if found is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    return found


@_view
def reshape(chain: ViewChain, *shape: Any) -> ViewChain | None:
    sizes = infer_shape(_ints(shape), prod(chain.shape))
    return None if chain.geometry.view_strides(sizes) is None else chain.then(Reshape(sizes))


@_view
def flatten(chain: ViewChain, start_dim: int = 0, end_dim: int = -1) -> ViewChain | None:
    shape = chain.shape
    start, end = wrap_dim(start_dim, len(shape)), wrap_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    return reshape(chain, shape[:start] + (prod(shape[start : end + 1]),) + shape[end + 1 :])


@_view
def unflatten(chain: ViewChain, dim: int, sizes: Any) -> ViewChain:
    if not chain.shape:
        raise RuntimeError("unflatten: Dimension specified as 0 but tensor has no dimensions")
    dim, sizes = wrap_dim(dim, len(chain.shape)), _ints([sizes])
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    n = chain.shape[dim]
    try:
        inferred = infer_shape(sizes, n)
    except RuntimeError as error:
        if "is invalid" not in str(error):
            raise
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({n}) in the input "
            "tensor"
        ) from None
    return view(chain, chain.shape[:dim] + inferred + chain.shape[dim + 1 :])


@_view
def squeeze(chain: ViewChain, *dims: Any) -> ViewChain:
    ndim = len(chain.shape)
    wrapped = [wrap_dim(d, ndim) for d in _ints(dims)] if dims else list(range(ndim))
    for d in wrapped:
        if wrapped.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return _drop(chain, [d for d in wrapped if chain.shape[d : d + 1] == (1,)])


@_view
def unsqueeze(chain: ViewChain, dim: int) -> ViewChain:
    dim = wrap_dim(dim, len(chain.shape) + 1)
    return chain.then(Reshape(chain.shape[:dim] + (1,) + chain.shape[dim:]))


@_view
def expand(chain: ViewChain, *sizes: Any) -> ViewChain:
    target, shape = _ints(sizes), chain.shape
    new = len(target) - len(shape)
    if new < 0:
        raise RuntimeError(
            f"expand(tensor of size {list(shape)}, size={list(target)}): the number of sizes provided ({len(target)}) "
            f"must be greater or equal to the number of dimensions in the tensor ({len(shape)})"
        )
    result = []
    for d, n in enumerate(target):
        if d < new:
            if n < 0:
                raise RuntimeError(
                    f"The expanded size of the tensor ({n}) isn't allowed in a leading, non-existing dimension {d}"
                )
        elif n == -1:
            n = shape[d - new]
        elif n != shape[d - new] and (shape[d - new] != 1 or n < 0):
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({shape[d - new]}) at "
                f"non-singleton dimension {d}.  Target sizes: {list(target)}.  Tensor sizes: {list(shape)}"
            )
        result.append(n)
    return chain.then(Expand(tuple(result)))


@_view
def as_strided(chain: ViewChain, size: Any, stride: Any, storage_offset: int | None = None) -> ViewChain:
    sizes, strides = _ints([size]), _ints([stride])
    offset = chain.geometry.offset if storage_offset is None else operator.index(storage_offset)
    if len(sizes) != len(strides):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(n < 0 for n in sizes):
        raise RuntimeError(f"as_strided: sizes must not be negative, got {list(sizes)}")
    if any(s < 0 for s in strides):
        raise RuntimeError(
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(strides)}"
        )
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    values = [step for step in chain.steps if isinstance(step, (Conj, Neg))]
    storage = _storage_as(chain)
    check_bounds(TensorGeometry(sizes, strides, offset), prod(storage.shape), storage.dtype.itemsize)
    strided = storage.then(AsStrided(sizes, strides, offset))
    for step in values:
        strided = strided.then(step)
    return strided


def _storage_as(chain: ViewChain) -> ViewChain:
    """The whole root of `chain`, in elements of the chain's dtype."""
    root = ViewChain.root(chain.root_shape, chain.root_dtype)
    if root.dtype == chain.dtype:
        return root
    numel = prod(root.shape)
    if _PARTS.get(root.dtype) == chain.dtype:
        return root.then(ViewAsReal())
    if _WHOLE.get(root.dtype) == chain.dtype and numel % 2 == 0:
        return root.then(Reshape((numel // 2, 2))).then(ViewAsComplex())
    if numel * root.dtype.itemsize % chain.dtype.itemsize:
        raise RuntimeError(
            f"as_strided: a storage of {numel} elements of {root.dtype.name} is no whole number of {chain.dtype.name}"
        )
    return root.then(Reshape((numel,))).then(BitCast(chain.dtype))


# ---------------------------------------------------------------- values and dtypes


@_view
def alias(chain: ViewChain) -> ViewChain:
    return chain


@_view
def conj(chain: ViewChain) -> ViewChain:
    return chain.then(Conj()) if chain.dtype.kind == "c" else chain


@_view
def neg_view(chain: ViewChain) -> ViewChain:
    return chain.then(Neg())


@_view
def real(chain: ViewChain) -> ViewChain:
    return chain.then(Real()) if chain.dtype.kind == "c" else chain


@_view
def imag(chain: ViewChain) -> ViewChain:
    if chain.dtype.kind != "c":
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return chain.then(Imag())


@_view
def view_as_real(chain: ViewChain) -> ViewChain:
    if chain.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return chain.then(ViewAsReal())


@_view
def view_as_complex(chain: ViewChain) -> ViewChain:
    if chain.dtype not in _WHOLE:
        raise RuntimeError(
            "view_as_complex is only supported for float and double tensors, but got a tensor of dtype "
            f"{chain.dtype.name}"
        )
    if not chain.shape:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if chain.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    seen = chain.geometry
    if seen.strides[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for n, s in zip(seen.sizes[:-1], seen.strides) if n > 1):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if seen.offset % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    return chain.then(ViewAsComplex())


@_view
def view_dtype(chain: ViewChain, dtype: Any) -> ViewChain:
    try:
        new = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"view(): expected sizes or a dtype, but got {dtype!r}") from None
    old, seen = chain.dtype, chain.geometry
    if new == old:
        return chain
    if any(isinstance(step, (Conj, Neg)) for step in chain.steps):
        raise RuntimeError(
            "view(dtype) is not supported for conjugate or negative views: they have no bytes of their own. clone() "
            "the tensor first."
        )
    if new.itemsize != old.itemsize:
        what = f"to view {old.name} as {new.name} (different element sizes)"
        if not chain.shape:
            raise RuntimeError(f"self.dim() cannot be 0 {what}")
        if seen.sizes[-1] > 1 and seen.strides[-1] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 {what}, but got {seen.strides[-1]}")
        ratio = new.itemsize // old.itemsize
        if ratio > 1:
            if seen.sizes[-1] % ratio:
                raise RuntimeError(f"self.size(-1) must be divisible by {ratio} {what}, but got {seen.sizes[-1]}")
            if seen.offset % ratio:
                raise RuntimeError(f"self.storage_offset() must be divisible by {ratio} {what}, but got {seen.offset}")
            for d, (n, s) in enumerate(zip(seen.sizes[:-1], seen.strides)):
                if n > 1 and s % ratio:
                    raise RuntimeError(f"self.stride({d}) must be divisible by {ratio} {what}, but got {s}")
    return chain.then(BitCast(new))
