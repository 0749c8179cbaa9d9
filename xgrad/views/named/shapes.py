"""view, reshape, flatten, squeeze, ...: check their arguments and append the view to a ViewChain's list of steps.

A ViewChain holds the steps from a storage to a view (../chain.py).  Each function checks its arguments as PyTorch does,
and returns the chain of the new view; `reshape` and `flatten` return None if only a copy has these sizes.
"""

from math import prod
from typing import Any

from ..chain import ViewChain
from ..view_ops import Expand, Reshape
from .arguments import infer_shape, sizes_of, without, wrap_dim
from .reinterpreted import view_dtype


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


def reshape(chain: ViewChain, *shape: Any) -> ViewChain | None:
    sizes = infer_shape(sizes_of(shape), prod(chain.shape))
    return None if chain.geometry.view_strides(sizes) is None else chain.then(Reshape(sizes))


def flatten(chain: ViewChain, start_dim: int = 0, end_dim: int = -1) -> ViewChain | None:
    shape = chain.shape
    start, end = wrap_dim(start_dim, len(shape)), wrap_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    return reshape(chain, shape[:start] + (prod(shape[start : end + 1]),) + shape[end + 1 :])


def unflatten(chain: ViewChain, dim: int, sizes: Any) -> ViewChain:
    if not chain.shape:
        raise RuntimeError("unflatten: Dimension specified as 0 but tensor has no dimensions")
    dim, sizes = wrap_dim(dim, len(chain.shape)), sizes_of((sizes,))
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


def squeeze(chain: ViewChain, *dims: Any) -> ViewChain:
    ndim = len(chain.shape)
    wrapped = [wrap_dim(d, ndim) for d in sizes_of(dims)] if dims else list(range(ndim))
    for d in wrapped:
        if wrapped.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return chain.then(Reshape(without(chain.shape, [d for d in wrapped if chain.shape[d : d + 1] == (1,)])))


def unsqueeze(chain: ViewChain, dim: int) -> ViewChain:
    dim = wrap_dim(dim, len(chain.shape) + 1)
    return chain.then(Reshape(chain.shape[:dim] + (1,) + chain.shape[dim:]))


def expand(chain: ViewChain, *sizes: Any) -> ViewChain:
    target, shape = sizes_of(sizes), chain.shape
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
