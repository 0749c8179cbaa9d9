"""Applies xgrad.compile's `in_shardings` and `out_shardings` to a function's tensors; finds other results' shardings.

A storage that the function writes, and the gradient of a tensor, keep their storage's sharding: XLA would choose
another.  A program on a mesh leaves arrays without a placement as a copy on each device.

Invariant: on JAX's devices no tensor of the caller's is moved: one that was placed elsewhere is an error, and one
without a placement goes in as a copy, which the function may not write.  A tensor of an `xgrad.Backend` is
moved, wherever it was.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from ..base.devices import device, kept, placement_of, same_placement, settled
from ..base.meshes import mesh
from ..config import Unrecorded, state
from ..errors import PlacementError
from ..execution.pending import declared_of, quietly
from ..ops.create.casts import move
from ..tensor import Tensor
from ..tensor_methods import pytrees
from ..views.storage import Tracer, place_of

_PLACES = (str, device, jax.Device, jax.sharding.Sharding, PartitionSpec)


class Shardings:
    """The `in_shardings` or `out_shardings` of a function: a prefix of the tree of its arguments, or of its result."""

    def __init__(self, name: str, prefix: Any) -> None:
        self.name: str = name
        self.prefix: Any = prefix
        self._mesh = state.mesh  # the mesh of the block in which the function was made
        self._of_trees: dict[Any, list] = {}

    def of(self, value: Any, tree: Any, what: str) -> list[tuple[Any, str]]:
        """Return (placement or None, name) for each leaf of `value`, whose tree is `tree`."""
        key = tree, state.mesh
        found = self._of_trees.get(key)
        if found is None:
            found = []
            here = state.mesh or self._mesh
            with nullcontext() if here is None else mesh(here):
                self._spread(self.prefix, value, what, found)
            self._of_trees[key] = found
        return found

    def _spread(self, prefix: Any, value: Any, path: str, found: list) -> None:
        if prefix is None or isinstance(prefix, _PLACES):
            where = None if prefix is None else placement_of(prefix)
            found += [(where, path + key) for key in _paths(value)]
            return
        if not isinstance(value, Tensor):
            below, tree = jax.tree_util.tree_flatten(value, is_leaf=lambda node: node is not value)
            try:
                if below and below[0] is not value:
                    for key, part, item in zip(_keys(value), tree.flatten_up_to(prefix), below, strict=True):
                        self._spread(part, item, path + key, found)
                    return
            except ValueError:  # it has another structure
                pass
        raise PlacementError(
            f"xgrad.compile: {self.name} does not fit: it has {prefix!r} for {path}, which is "
            f"{jax.tree_util.tree_structure(value, is_leaf=pytrees.is_tensor)}. Give a sharding, "
            "None, or a tree with the same structure."
        )


def _keys(value: Any) -> list[str]:
    """Return the paths of a container's parts as code writes them, such as "['a']" or "[0]"."""
    parts = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda node: node is not value)[0]
    return [jax.tree_util.keystr(path) for path, _ in parts]


def _paths(value: Any) -> list[str]:
    parts = jax.tree_util.tree_flatten_with_path(value, is_leaf=pytrees.is_tensor)[0]
    return [jax.tree_util.keystr(path) for path, _ in parts]


def _fitting(where: Any, shape: tuple, name: str, what: str) -> Any:
    try:
        return settled(where, shape)
    except PlacementError as error:
        raise PlacementError(f"xgrad.compile: {what} for {name}: {error}") from None


def put_in(
    shardings: Shardings, args: tuple[Any, ...], kwargs: dict[Any, Any]
) -> tuple[tuple[Any, ...], dict[Any, Any], list[Tensor]]:
    """Put the arguments at their `in_shardings`; return them, and the tensors that are copies.

    Raises `PlacementError` for an argument that was placed elsewhere, and for one that cannot be put there.
    """
    leaves, tree = pytrees.flatten((args, kwargs))
    positional = len(pytrees.leaves(args))
    wanted = shardings.of(args, tree, "args")
    copies: list[Tensor] = []
    changed = False
    for i, (leaf, (where, name)) in enumerate(zip(leaves[:positional], wanted, strict=True)):
        if where is None:
            continue
        new = _argument(leaf, where, name)
        if new is not leaf:
            leaves[i], changed = new, True
            if isinstance(new, Tensor):
                copies.append(new)
    return (*tree.unflatten(leaves), copies) if changed else (args, kwargs, copies)


def _argument(leaf: Any, where: Any, name: str) -> Any:
    if isinstance(leaf, Tensor):
        array: Any = leaf._read()
        if declared_of(array) is not None:
            where = kept(array.sharding, _fitting(where, array.shape, name, "in_shardings"))
            return move(leaf, where)
        array = quietly(array)
    elif isinstance(leaf, (jax.Array, np.ndarray)):
        array = leaf
    else:
        return leaf  # a number
    if not isinstance(array, jax.Array):
        return jax.device_put(array, _fitting(where, array.shape, name, "in_shardings"))
    if isinstance(array, Tracer):
        return leaf
    here = array.sharding
    if here is where or same_placement(here, where, array.ndim):
        return leaf
    where = _fitting(where, array.shape, name, "in_shardings")
    if array.committed and not same_placement(here, where, array.ndim):
        raise PlacementError(
            f"xgrad.compile: {name} was put at {here}, and in_shardings asks for {where}. Move it outside: x.to(...)."
        )
    return move(leaf, where) if isinstance(leaf, Tensor) else jax.device_put(leaf, where)


def put_out_of_backend(shardings: Shardings | None, value: Any) -> Any:
    """Put what a function gave on an `xgrad.Backend` at its `out_shardings`, if it has some; return it."""
    if shardings is None:
        return value
    leaves, tree = pytrees.flatten(value)
    for i, (leaf, (where, name)) in enumerate(zip(leaves, shardings.of(value, tree, "result"), strict=True)):
        if where is not None and isinstance(leaf, Tensor) and (here := leaf._placed()) is not None:
            leaves[i] = move(leaf, kept(here, _fitting(where, tuple(leaf.shape), name, "out_shardings")))
    return tree.unflatten(leaves)


def put_out(shardings: Shardings, value: Any) -> tuple[Any, list[tuple[Tensor, Any]]]:
    """Put a traced function's result at its `out_shardings`; return it, and its new tensors with their shardings.

    Tensors from outside of the function stay as they are.
    """
    leaves, tree = pytrees.flatten(value)
    made: list[tuple[Tensor, Any]] = []
    for i, (leaf, (where, name)) in enumerate(zip(leaves, shardings.of(value, tree, "result"), strict=True)):
        if where is None or not isinstance(leaf, (Tensor, Tracer)):
            continue
        where = _fitting(where, tuple(leaf.shape), name, "out_shardings")
        if not isinstance(where, jax.sharding.Sharding):
            where = SingleDeviceSharding(where)
        if not isinstance(leaf, Tensor):
            leaves[i] = jax.lax.with_sharding_constraint(leaf, where)
            continue
        if id(leaf) in state.trace.by_id:
            continue
        leaves[i] = _left(leaf, where)
        made.append((leaves[i], where))
    return tree.unflatten(leaves), made


def _left(tensor: Tensor, where: Any) -> Tensor:
    if tensor._grad_fn is not None:
        return move(tensor, where)
    with Unrecorded():
        return move(tensor, where).requires_grad_(tensor._requires_grad)


# -- shardings of storages and gradients ------------------------------------------------------------------------------


class Places:
    """The shardings of a program's results, by number, None where XLA chooses; and of its operands."""

    def __init__(self, trace: Any) -> None:
        self._trace = trace
        found = (place_of(root.array) for root in trace.roots if isinstance(root.array, jax.Array))
        meshes = (p.mesh for p in found if isinstance(p, NamedSharding) and len(p.device_set) > 1)
        one = next(meshes, None)
        self._copies = None if one is None else NamedSharding(one, PartitionSpec())
        self.places: dict[int, Any] = {}

    def _of_root(self, root: Any) -> Any:
        return place_of(root.array) or self._copies

    def _like(self, number: int) -> Any:
        """Return the sharding of the gradient of a tensor from outside: its root's."""
        reached = self._trace.reached[number]
        chain = reached.before.get("_chain")
        return self._of_root(reached.root) if chain is None or chain.is_root or reached.by_value else None

    def effects(self, effects: Any, recipes: list[Any]) -> None:
        """Set the shardings of written storages, and of gradients."""
        for _, array, root in effects.writes:
            self.places[array] = self._of_root(self._trace.roots[root])
        for i, reference in effects.grads:
            if reference is not None and reference[0]:
                recipe = recipes[reference[1]]
                if recipe.root >= 0 and (recipe.chain is None or recipe.chain.is_root):
                    self.places.setdefault(recipe.root, self._like(i))

    def results(self, made: list[tuple[Tensor, Any]], reference: Callable[..., Any], recipes: list[Any]) -> None:
        """Set the shardings of the tensors that `put_out` placed."""
        for tensor, where in made:
            recipe = recipes[reference(tensor)[1]]
            if recipe.root >= 0 and (recipe.chain is None or recipe.chain.is_root):
                self.places[recipe.root] = where

    def of_targets(self, targets: list[Any]) -> list[Any] | None:
        """Return the shardings of the gradients that a backward outside computes; None if XLA chooses all."""
        return _or_none([None if made else self._like(number) for (made, number), _ in targets])

    def operands(self, program: Any) -> tuple[Any, ...] | None:
        """Return the operands' shardings, None for a placed operand; None in all without a mesh."""
        if self._copies is None:
            return None
        roots = [self._trace.roots[number] for number in program.inputs]
        places = [None if place_of(root.array) else self._copies for root in roots]
        return tuple(places + [self._copies] * (program.with_one + len(program.arrays)))

    def all(self, count: int) -> list[Any] | None:
        """Return the shardings of all results; None if XLA chooses all."""
        return _or_none([self.places.get(number) for number in range(count)])


def _or_none(places: list) -> list | None:
    return places if any(place is not None for place in places) else None
