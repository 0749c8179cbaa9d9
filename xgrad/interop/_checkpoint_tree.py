"""Turns a tree of tensors into the tree that orbax stores in a checkpoint, and names leaves by paths, for orbax.py.

A path is the tuple of keys, as strings, that lead to a leaf: `("optimizer", "state", "0", "step")`.  Invariant: the
paths identify the saved values, so a tree fits a checkpoint if the paths and the values there agree: lists and tuples,
and JAX's other pytrees, need not be the same classes as when they were saved.

    leaf                           in the checkpoint
    Tensor, jax.Array, ndarray     an array; None if it has no elements, because orbax saves none of these
    Generator                      {"key": ..., "seed": ...}
    int, float, bool, str, None    itself, and so are np.float64 (a float) and np.str_ (a str)
    complex, other NumPy scalars   an array without dimensions
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ..base import dtypes
from ..random import Generator, is_key
from ..tensor import Tensor
from ..views.storage import Tracer, value_needed

Path = tuple[str, ...]
LEAVES = (Tensor, Generator, jax.Array, jax.ShapeDtypeStruct, np.ndarray, np.generic, bool, int, float, complex, str)


def name_of(path: Path) -> str:
    """Return the name of a path in errors and in orbax's files."""
    return ".".join(path)


def check_name(name: str) -> None:
    """Raise `ValueError` for a name that would lead out of the folder where names are files."""
    if name.startswith("/") or "\0" in name or {".", ".."} & set(name.split("/")):
        raise ValueError(f"{name!r} can't be the name of a leaf: orbax makes paths of names")


def children(node: Any) -> tuple[list[tuple[str, Any]], Callable[[list], Any]] | None:
    """Return the values directly below a node, by key, and a function that rebuilds it of others; None for a leaf."""
    if node is None or isinstance(node, LEAVES):
        return None
    kind: Any = type(node)
    if isinstance(node, dict):
        return [(str(key), value) for key, value in node.items()], lambda items: _dictionary(node, items)
    if isinstance(node, tuple) and hasattr(kind, "_fields"):
        return list(zip(kind._fields, node)), lambda items: kind(*items)
    if isinstance(node, (list, tuple)):
        return [(str(i), value) for i, value in enumerate(node)], kind
    below, structure = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda inner: inner is not node)
    if len(below) == 1 and below[0][1] is node:
        return None
    named = [(jax.tree_util.keystr(path, simple=True, separator="."), value) for path, value in below]
    return named, structure.unflatten


def _dictionary(node: dict, items: list) -> dict:
    new = copy.copy(node)
    for key, item in zip(node, items):
        new[key] = item
    return new


def leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield (path, leaf), in the order of the tree."""
    found = children(tree)
    if found is None:
        yield path, tree
        return
    for key, value in found[0]:
        yield from leaves(value, (*path, key))


def rebuilt(tree: Any, leaf: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """Return `tree` with `leaf(path, old)` in the place of each leaf."""
    found = children(tree)
    if found is None:
        return leaf(path, tree)
    below, build = found
    return build([rebuilt(value, leaf, (*path, key)) for key, value in below])


# -- saving -----------------------------------------------------------------------------------------------------------


def plain(tree: Any) -> Any:
    """Return the tree that orbax saves.  Raises `TypeError` or `ValueError`, with its name, for an unfit leaf."""
    known: dict[str, Path] = {}
    for path, leaf in leaves(tree):
        paths = [(*path, part) for part in ("key", "seed")] if isinstance(leaf, Generator) else [path]
        for full in paths:
            name = name_of(full)
            check_name(name)
            if name in known:
                raise ValueError(f"two leaves of the tree have the name '{name}': {known[name]} and {full}")
            known[name] = full
    if not known:
        raise ValueError("there is nothing to save: the tree has no leaves")
    return _plain(tree, ())


def _plain(tree: Any, path: Path) -> Any:
    found = children(tree)
    if found is None:
        return _stored(tree, path)
    if isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"):
        return [_plain(value, (*path, key)) for key, value in found[0]]
    return {key: _plain(value, (*path, key)) for key, value in found[0]}


def _stored(leaf: Any, path: Path) -> Any:
    if isinstance(leaf, Generator):
        seed = leaf.initial_seed()
        return {"key": np.asarray(leaf.get_state()), "seed": np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)}
    if leaf is None or isinstance(leaf, (bool, float, str)):
        return leaf
    if isinstance(leaf, int):
        if not -(1 << 63) <= leaf < 1 << 63:
            raise OverflowError(f"'{name_of(path)}' does not fit into 64 bits: {leaf}")
        return leaf
    if isinstance(leaf, Tensor):
        if leaf._sparse or leaf._level is not None:
            what = "a sparse tensor: save its to_dense()" if leaf._sparse else "a tensor inside of vmap"
            raise TypeError(f"'{name_of(path)}' is {what}")
        leaf = leaf._export()  # the background save reads it, so it may not be donated meanwhile
    if isinstance(leaf, jax.Array):
        return _stored_array(leaf, path)
    if isinstance(leaf, (np.ndarray, np.generic, complex)):
        array = np.array(leaf)  # a copy, for the background save
        if array.dtype not in dtypes.INTEGERS | dtypes.INEXACT | {dtypes.bool}:
            raise TypeError(f"'{name_of(path)}' is an array of {array.dtype}, not of numbers")
        return array if array.size else None
    hint = ": save its state_dict()" if hasattr(leaf, "state_dict") else ""
    hint = ": convert it by xgrad.interop.torch.from_torch" if type(leaf).__module__.startswith("torch") else hint
    raise TypeError(
        f"'{name_of(path)}' is a {type(leaf).__module__}.{type(leaf).__qualname__}, which a checkpoint can't hold{hint}"
    )


def _stored_array(array: jax.Array, path: Path) -> Any:
    if isinstance(array, Tracer):
        raise value_needed(array, f"'{name_of(path)}' is being traced (inside jax.jit, jax.vmap or jax.grad): no value")
    if is_key(array):
        array = jax.random.key_data(array)
    if not array.size:
        return None
    # With several processes each has such an array, and orbax lets the first one save it.
    return np.array(array) if jax.process_count() > 1 and array.is_fully_addressable else array


# -- the saved tree ---------------------------------------------------------------------------------------------------


def saved_leaves(metadata: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield (path, orbax's metadata) of a checkpoint; the metadata of a saved None are None."""
    if isinstance(metadata, dict):
        below = metadata.items()
    elif isinstance(metadata, (list, tuple)):
        below = ((str(i), value) for i, value in enumerate(metadata))
    else:
        yield path, metadata
        return
    for key, value in below:
        yield from saved_leaves(value, (*path, str(key)))


def saved_mapped(metadata: Any, leaf: Callable[[Path], Any], path: Path = ()) -> Any:
    """Return the tree of metadata with `leaf(path)` in the place of each leaf."""
    if isinstance(metadata, dict):
        return {key: saved_mapped(value, leaf, (*path, str(key))) for key, value in metadata.items()}
    if isinstance(metadata, (list, tuple)):
        return [saved_mapped(value, leaf, (*path, str(i))) for i, value in enumerate(metadata)]
    return leaf(path)
