"""vmap: maps a function over a dimension of its arguments, all entries at once (PyTorch: torch/_functorch/vmap.py).

Inside, a tensor that is mapped over is a BatchedTensor (`batching/batched_tensor.py`), which has one entry's shape.
"""

import functools
from collections.abc import Callable
from typing import Any

from ..batching.batched_tensor import VmapLevel, add_batch, at_level, in_level, inner_value, remove_batch
from ..batching.trees import LEAF, flatten, name_of, spread, unflatten
from ..dispatch.tables import FUNCTIONS
from ..random import get_rng_state, set_rng_state
from ..tensor import Tensor

_RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that maps `func` over a dimension of its arguments, all entries at once.

    `in_dims`: for each argument (nested as the arguments are) the dimension to map over, None for one that is the same
    for all entries.  `out_dims`: the place of the new dimension in the results, None for a result without it.
    `randomness`: random operators inside raise ("error"), draw for each entry ("different") or once ("same").
    `chunk_size`: the most entries at a time, to save memory.

    An in-place write of a mapped value into a tensor that is not mapped over is a `RuntimeError`, because it has no
    room for a batch; so is reading a value (`item()`, `if x:`).  Raises `ValueError` for dimensions that don't fit.
    Gradients go through it, and may be computed inside of it (`vmap(grad(f))`: one for each entry).

    >>> import xgrad
    >>> from xgrad.func import grad, vmap
    >>> x = xgrad.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> vmap(xgrad.dot)(x, x)
    tensor([ 5., 25.])
    >>> vmap(grad(lambda row: (row * row).sum()))(x)
    tensor([[2., 4.],
            [6., 8.]])
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness!r}"
        )
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return _vmap(func, in_dims, out_dims, randomness, chunk_size, args, kwargs)

    return mapped


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """Return the tensor of all entries for a mapped tensor inside of vmap, to be looked at; any other tensor itself.

    `recurse`: below all levels of vmap.  Computing with the result inside of vmap mixes up the entries.

    >>> import xgrad
    >>> _ = xgrad.vmap(lambda row: print(xgrad.func.debug_unwrap(row)) or row)(xgrad.eye(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if tensor._level is None:
        return tensor
    return inner_value(tensor) if recurse else tensor._value


def _vmap(
    func: Callable, in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None, args: tuple, kwargs: dict
) -> Any:
    if any(not (d is None or isinstance(d, int)) for d in flatten(out_dims)[0]):
        raise ValueError(
            f"vmap({name_of(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection "
            "of ints representing where in the outputs the vmapped dimension should appear."
        )
    leaves, structure, dims = _inputs(func, in_dims, args)
    size = _batch_size([leaf.shape[d] for leaf, d in zip(leaves, dims, strict=True) if d is not None])

    def run(some: list, n: int) -> tuple[list, list, Any]:
        def entry(level: VmapLevel) -> tuple[list, list, Any]:
            entries = [a if d is None else add_batch(a, d, level) for a, d in zip(some, dims, strict=True)]
            outputs = func(*unflatten(structure, entries), **kwargs)
            return _outputs(func, outputs, out_dims, level)

        return in_level(entry, n, randomness)

    if chunk_size is None or chunk_size >= size:
        outputs, _, made = run(leaves, size)
        return unflatten(made, outputs)
    start = get_rng_state() if randomness == "same" else None
    parts, places, made = [], [], LEAF
    for first in range(0, size, chunk_size):
        n = min(chunk_size, size - first)
        if start is not None:  # in every chunk
            set_rng_state(start)
        some = [a if d is None else a.narrow(d, first, n) for a, d in zip(leaves, dims, strict=True)]
        outputs, places, made = run(some, n)
        parts.append(outputs)
    cat = FUNCTIONS[""]["cat"]
    joined = [
        column[0] if d is None else cat(list(column), d)
        for column, d in zip(zip(*parts, strict=True), places, strict=True)
    ]
    return unflatten(made, joined)


def _inputs(func: Callable, in_dims: Any, args: tuple) -> tuple[list, Any, list]:
    """Return the leaves of the arguments, their structure, and for each the dimension to map over, not negative."""
    start = f"vmap({name_of(func)}, in_dims={in_dims}, ...)(<inputs>): "
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{start}expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, "
            f"got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name_of(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to "
            "vmap over a function with no inputs. The latter is unsupported."
        )
    leaves, structure = flatten(args)
    dims = spread(in_dims, args)
    if dims is None:
        raise ValueError(
            f"{start}in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{flatten(in_dims)[1]} but inputs has structure {structure}."
        )
    for i, (leaf, d) in enumerate(zip(leaves, dims, strict=True)):
        if d is None:
            continue
        if not isinstance(d, int):
            raise ValueError(
                f"{start}Got in_dim={d} for an input but in_dim must be either an integer dimension or None."
            )
        if not isinstance(leaf, Tensor):
            raise ValueError(
                f"{start}Got in_dim={d} for an input but the input is of type {type(leaf)}. We cannot vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -leaf.ndim <= d < leaf.ndim:
            raise ValueError(
                f"{start}Got in_dim={d} for some input, but that input is a Tensor of dimensionality {leaf.ndim} so "
                f"expected in_dim to satisfy -{leaf.ndim} <= in_dim < {leaf.ndim}."
            )
        dims[i] = d % leaf.ndim
    return leaves, structure, dims


def _batch_size(sizes: list[int]) -> int:
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def _outputs(func: Callable, outputs: Any, out_dims: Any, level: VmapLevel) -> tuple[list, list, Any]:
    """Return the results without their batching, the batch dimension of each, and their structure."""
    leaves, structure = flatten(outputs)
    if isinstance(outputs, Tensor):
        one = out_dims if not isinstance(out_dims, tuple) else out_dims[0] if len(out_dims) == 1 else ...
        dims = None if one is ... or isinstance(one, (tuple, list, dict)) else [one]
    else:
        dims = spread(out_dims, outputs)
    name = name_of(func)
    if dims is None:
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
            f"`outputs`. out_dims has structure {flatten(out_dims)[1]} but outputs has structure {structure}."
        )
    found = []
    for leaf, d in zip(leaves, dims, strict=True):
        if d is None:
            if at_level(leaf, level):
                raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
            found.append(leaf)
        elif not isinstance(leaf, Tensor):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}. Did you mean to set "
                "out_dims= to None for output?"
            )
        else:
            found.append(remove_batch(leaf, d, level))
    return found, dims, structure
