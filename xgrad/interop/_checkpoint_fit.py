"""Compares a tree of tensors with an Orbax checkpoint, requests its arrays, makes tensors of them; for orbax.py.

Invariant: everything is compared before anything is read (orbax casts to another dtype without a word), and read
before anything is changed.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from orbax.checkpoint.metadata import ArrayMetadata, ScalarMetadata, StringMetadata

from ..base import dtypes
from ..base.devices import settled
from ..errors import PlacementError
from ..nn.parameter import Parameter
from ..nn.state_dict import refuse, size_mismatch
from ..random import Generator, is_key
from ..tensor import Tensor, from_foreign
from ..views.storage import place_of
from ._checkpoint_tree import Path, leaves, name_of, rebuilt
from ._loading import home_of

_SEED = ((2,), dtypes.uint32)


class Wanted(NamedTuple):
    """The value that a leaf of the user's tree needs at a path of a checkpoint."""

    kind: str  # "an array", "a number", "a string" or "nothing"
    shape: tuple[int, ...] = ()
    dtype: Any = None
    sharding: Any = None  # None: read as a NumPy array


def wanted(tree: Any) -> Iterator[tuple[Path, Wanted]]:
    """Yield (path, Wanted) of a tree's leaves; a leaf without elements needs "nothing"."""
    for path, leaf in leaves(tree):
        if isinstance(leaf, Generator):
            yield (*path, "key"), Wanted("an array", tuple(leaf.get_state().shape), dtypes.uint32)
            yield (*path, "seed"), Wanted("an array", *_SEED)
        elif leaf is None:
            yield path, Wanted("nothing")
        elif isinstance(leaf, str):
            yield path, Wanted("a string")
        elif isinstance(leaf, (bool, int, float)) and not isinstance(leaf, np.generic):
            yield path, Wanted("a number")
        elif isinstance(leaf, complex):
            yield path, Wanted("an array", (), np.asarray(leaf).dtype)
        elif not hasattr(leaf, "shape"):
            raise TypeError(f"'{name_of(path)}' is a {type(leaf).__qualname__}, which a checkpoint can't hold")
        else:
            try:
                yield path, _wanted_array(leaf)
            except PlacementError as error:
                raise PlacementError(f"'{name_of(path)}': {error}") from None


def _wanted_array(leaf: Any) -> Wanted:
    if is_key(leaf):
        leaf = jax.random.key_data(leaf)
    if 0 in leaf.shape:
        return Wanted("nothing", tuple(leaf.shape))
    sharding = _home(leaf)
    if sharding is not None and jax.process_count() > 1 and sharding.is_fully_addressable:
        sharding = None  # each process has its own array: orbax reads one for all
    return Wanted("an array", tuple(leaf.shape), np.dtype(leaf.dtype), settled(sharding, leaf.shape))


def _home(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return home_of(leaf)
    return place_of(leaf) if isinstance(leaf, jax.Array) else getattr(leaf, "sharding", None)


def kind_of(metadata: Any) -> str:
    """Return the kind of a value in a checkpoint, in the words of `Wanted.kind`."""
    if isinstance(metadata, ScalarMetadata):
        return "a number"
    if isinstance(metadata, ArrayMetadata):
        return "an array"
    return "a string" if isinstance(metadata, StringMetadata) else "nothing"


def fitting(tree: Any, saved: dict[Path, Any], what: str, strict: bool) -> dict[Path, Wanted]:
    """Return the values to be read for the tree.  Raises `RuntimeError`, which lists every key, if they don't fit.

    Not `strict`: keys that only one of the two has are skipped.
    """
    asked = dict(wanted(tree))
    missing = [name_of(path) for path, want in asked.items() if path not in saved and want.kind != "nothing"]
    unexpected = [name_of(path) for path, metadata in saved.items() if path not in asked and metadata is not None]
    problems, found = [], {}
    for path, want in asked.items():
        if path not in saved:
            continue
        name, metadata = name_of(path), saved[path]
        kind = kind_of(metadata)
        if kind != want.kind:
            problems.append(f"'{name}' is {kind} in the checkpoint and {want.kind} here")
        elif kind != "an array":
            found[path] = want
        elif tuple(metadata.shape) != want.shape:
            problems.append(size_mismatch(name, metadata.shape, want.shape))
        elif np.dtype(metadata.dtype) != want.dtype:
            problems.append(
                f"dtype mismatch for {name}: the checkpoint has {np.dtype(metadata.dtype).name}, the current tree "
                f"{want.dtype.name}"
            )
        else:
            found[path] = want
    refuse(f"{type(tree).__name__} from {what}", missing if strict else [], unexpected if strict else [], problems)
    return found


def answered(tree: Any, values: dict[Path, Any]) -> dict[Path, Any]:
    """Return {path of a leaf: its new value}, of the leaf's own kind; arrays for tensors."""
    new = {}
    for path, leaf in leaves(tree):
        if isinstance(leaf, Generator):
            if (*path, "key") in values:
                new[path] = (values[(*path, "key")], values[(*path, "seed")])
        elif path in values:
            new[path] = _answer(leaf, values[path])
    return new


def _answer(leaf: Any, value: Any) -> Any:
    if isinstance(leaf, (Tensor, jax.Array)):
        if 0 in leaf.shape:
            return leaf
        if isinstance(value, np.ndarray):
            value = jax.device_put(value, _home(leaf))
        if is_key(leaf):
            value = jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf))
        return value
    if isinstance(leaf, np.ndarray):
        return np.asarray(value) if leaf.size else leaf
    if isinstance(leaf, np.generic):
        return type(leaf)(value[()])
    return complex(value[()]) if isinstance(leaf, complex) else value


def renewed(tree: Any, new: dict[Path, Any]) -> Any:
    """Return a tree like `tree` with new leaves: leaf tensors keep `requires_grad`, Parameters stay Parameters."""

    def leaf(path: Path, old: Any) -> Any:
        if path not in new:
            return old.detach() if isinstance(old, Tensor) else old
        value = new[path]
        if isinstance(old, Generator):
            return seeded(Generator(old._device), *value)
        if not isinstance(old, Tensor):
            return value
        tensor = value.detach() if isinstance(value, Tensor) else from_foreign(value)
        if isinstance(old, Parameter):
            return Parameter(tensor, old.requires_grad)
        return tensor.requires_grad_() if old.is_leaf and old.requires_grad else tensor

    return rebuilt(tree, leaf)


def seeded(generator: Generator, key: Any, seed: Any) -> Generator:
    """Put the generator into a saved state, and return it."""
    low, high = (int(word) for word in np.asarray(seed))
    generator.set_state(from_foreign(np.asarray(key)))
    generator._seed = low | high << 32
    return generator
