"""Computes `grad_fn._saved_<name>` of views' autograd nodes (sizes, dims, ...), under PyTorch's names.

Nothing is saved for them: `VIEWS` says how they follow from the shape of the viewed tensor and the arguments of the
view operation (PyTorch: tools/autograd/derivatives.yaml).
"""

from collections.abc import Callable
from typing import Any

from ..views.chain import ViewChain

_LAST = 2**63 - 1  # PyTorch's end of a slice without one


def _select(shape: tuple, dim: int, index: int) -> dict:
    return {"dim": dim, "index": index, "self_sym_sizes": shape}


def _slice(shape: tuple, dim: int, start: int | None, end: int | None, step: int | None = 1) -> dict:
    end = _LAST if end is None else end
    return {"dim": dim, "start": start or 0, "end": end, "step": step or 1, "self_sym_sizes": shape}


def _getitem(shape: tuple, index: tuple) -> dict:
    """Describe the last view of an index: for several indices PyTorch makes several views, here there is one node."""
    told: dict = {}
    dim, sizes = 0, list(shape)
    taken = sum(i is not None and i is not Ellipsis for i in index)
    for i in index:
        before = tuple(sizes)
        if i is None:
            told = {"dim": dim}
            sizes.insert(dim, 1)
            dim += 1
        elif i is Ellipsis:
            dim += len(shape) - taken
        elif isinstance(i, int):
            told = _select(before, dim, i)
            del sizes[dim]
        else:
            _, start, stop, step = i
            if (start, stop, step) != (None, None, None):
                told = _slice(before, dim, start, stop, step)
                sizes[dim] = len(range(*slice(start, stop, step).indices(sizes[dim])))
            dim += 1
    return told


def _moved(shape: tuple, source: tuple, destination: tuple) -> dict:
    n = len(shape)
    places = {d % n: s % n for s, d in zip(source, destination, strict=True)}
    rest = iter(d for d in range(n) if d not in places.values())
    return {"dims": tuple(places[d] if d in places else next(rest) for d in range(n))}


def _squeezed(shape: tuple, *dim: Any) -> dict:
    told = {"self_sym_sizes": shape}
    if dim:
        told["dim"] = dim[0] if len(dim) == 1 else dim
    return told


def _swapped(shape: tuple) -> dict:
    return {"dim0": -2, "dim1": -1}


# view operation -> the function that computes its node's attributes
VIEWS: dict[str, Callable[..., dict[Any, Any]]] = {
    "T": lambda shape: {"dims": tuple(reversed(range(len(shape))))},
    "H": _swapped,
    "adjoint": _swapped,
    "as_strided": lambda shape, size, stride, offset: {"size": size, "stride": stride, "storage_offset": offset},
    "diagonal": lambda shape, offset, dim1, dim2: {
        "offset": offset,
        "dim1": dim1,
        "dim2": dim2,
        "self_sym_sizes": shape,
    },
    "expand": lambda shape, *size: {"self_sym_sizes": shape},
    "getitem": _getitem,
    "imag": lambda shape: _select((*shape, 2), len(shape), 1),
    "mH": _swapped,
    "mT": _swapped,
    "movedim": _moved,
    "narrow": lambda shape, dim, start, length: _slice(shape, dim, start, start + length),
    "permute": lambda shape, dims: {"dims": dims},
    "real": lambda shape: _select((*shape, 2), len(shape), 0),
    "reshape": lambda shape, *size: {"self_sym_sizes": shape},
    "select": _select,
    "slice": _slice,
    "squeeze": _squeezed,
    "transpose": lambda shape, dim0, dim1: {"dim0": dim0, "dim1": dim1},
    "unflatten": lambda shape, dim, sizes: {"self_sym_sizes": shape},
    "unfold": lambda shape, dimension, size, step: {
        "dimension": dimension, "size": size, "step": step, "self_sym_sizes": shape,
    },
    "unsqueeze": lambda shape, dim: {"dim": dim},
    "view": lambda shape, *size: {"self_sym_sizes": shape},
}  # fmt: skip


def of_view(name: str, chain: ViewChain, key: tuple[Any, ...] | None) -> dict[Any, Any]:
    """Return the attributes of the node called `name` of one view; `key` is None if its grad_fn was regenerated."""
    if name.startswith("AsStrided") and key is None:  # of the whole chain from the base
        seen = chain.geometry
        assert seen is not None  # a view without geometry has no as_strided
        return {"size": seen.sizes, "stride": seen.strides, "storage_offset": seen.offset}
    if key is None or key[0] not in VIEWS:
        return {}
    return VIEWS[key[0]](tuple(chain.root_shape), *key[1:])


def of_views(name: str, chain: ViewChain, keys: tuple[Any, ...] | None) -> dict[Any, Any]:
    """Return the attributes of the node called `name` of several views; `keys` has one view operation for each."""
    if keys is None:
        return {}
    first, sizes = keys[0], [key[-1] for key in keys]
    found: dict = {"dim": first[1]}
    if name == "SplitBackward0":
        found["split_size"] = sizes[0]
    elif name == "SplitWithSizesBackward0":
        found["split_sizes"] = tuple(sizes)
    if name != "UnbindBackward0":
        found["self_sym_sizes"] = tuple(chain.root_shape)
    return found
