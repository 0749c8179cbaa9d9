"""select, narrow, slice, basic indexing, diagonal, unfold: check their arguments and append the view to a `ViewChain`.

A ViewChain is a view's list of steps (slices, permutes, reshapes, ...) from its storage (../chain.py).  Each function
takes the chain of a tensor and returns the chain of the view.
"""

from typing import Any

from ..chain import ViewChain
from ..view_ops import Diagonal, Reshape, Slice, Unfold
from .arguments import clamped, int_of, require_dim, without, wrap_dim


def _cut(chain: ViewChain, dim: int, start: int, size: int, step: int = 1) -> ViewChain:
    shape = chain.shape
    return chain.then(
        Slice(
            tuple(start if d == dim else 0 for d in range(len(shape))),
            tuple(size if d == dim else n for d, n in enumerate(shape)),
            tuple(step if d == dim else 1 for d in range(len(shape))),
        )
    )


def select(chain: ViewChain, dim: int, index: int) -> ViewChain:
    require_dim(chain.shape, "select")
    dim, index = wrap_dim(dim, len(chain.shape)), int_of(index)
    n = chain.shape[dim]
    if not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(chain.shape)} at dimension {dim}"
        )
    cut = _cut(chain, dim, index % n, 1)
    return cut.then(Reshape(without(cut.shape, (dim,))))


def narrow(chain: ViewChain, dim: int, start: int, length: int) -> ViewChain:
    require_dim(chain.shape, "narrow", RuntimeError)
    start, length = int_of(start), int_of(length)
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


def slice_(
    chain: ViewChain, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> ViewChain:
    require_dim(chain.shape, "slice")
    dim, step = wrap_dim(dim, len(chain.shape)), int_of(step)
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    start, size = clamped(start, end, step, chain.shape[dim])
    return _cut(chain, dim, start, size, step)


def getitem(chain: ViewChain, index: Any) -> ViewChain:
    """Basic indexing: `index` is a tuple of integers, None, Ellipsis and ("slice", start, stop, step).

    The first Ellipsis stands for all dimensions that are not named; PyTorch takes more of them, which stand for none.
    """
    is_row = len(index) == 1 and index[0].__class__ is int
    if is_row and (row := chain.row(index[0])) is not None:
        return row
    shape = chain.shape
    used = sum(1 for i in index if i is not None and i is not Ellipsis)
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
            left, used = len(shape) - used, len(shape)
            for _ in range(left):
                n = shape[len(starts)]
                starts.append(0)
                sizes.append(n)
                steps.append(1)
                result.append(n)
        elif isinstance(i, tuple):
            step = 1 if i[3] is None else int_of(i[3])
            if step == 0:
                raise ValueError("slice step cannot be zero")
            if step < 0:
                raise ValueError("step must be greater than zero")
            start, size = clamped(i[1], i[2], step, n)
            starts.append(start)
            sizes.append(size)
            steps.append(step)
            result.append(size)
        else:
            i = int_of(i)
            if not -n <= i < n:
                raise IndexError(f"index {i} is out of bounds for dimension {len(starts)} with size {n}")
            starts.append(i % n)
            sizes.append(1)
            steps.append(1)
    view = chain.then(Slice(tuple(starts), tuple(sizes), tuple(steps))).then(Reshape(tuple(result)))
    if is_row:
        chain.first_row(view)
    return view


def diagonal(chain: ViewChain, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ViewChain:
    first, second = wrap_dim(dim1, len(chain.shape)), wrap_dim(dim2, len(chain.shape))
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return chain.then(Diagonal(int_of(offset), first, second))


def unfold(chain: ViewChain, dimension: int, size: int, step: int) -> ViewChain:
    dim, size, step = wrap_dim(dimension, len(chain.shape)), int_of(size), int_of(step)
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
