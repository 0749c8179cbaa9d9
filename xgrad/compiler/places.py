"""Where a compiled program takes and leaves its arrays: `in_shardings`, `out_shardings`, and what stays where it was.

A storage that the function writes, and the gradient of a tensor, are left as their storage is sharded: XLA would choose
by itself.  Where a program runs on a mesh, what nobody asked a place for is left as a copy on each device.

Invariants: a tensor of the caller's is not moved behind his back: one that was put somewhere else is an error, and one
that nobody has placed goes in as a copy, to which nothing may be written.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from ..config import state
from ..devices import device, mesh, placement_of, same_placement, settled
from ..errors import PlacementError
from ..ops import pytrees
from ..ops.casts import move
from ..tensor import Tensor
from ..views.storage import Tracer, place_of

_PLACES = (str, device, jax.Device, jax.sharding.Sharding, PartitionSpec)


class Shardings:
    """The `in_shardings` or `out_shardings` of a function: a prefix of the tree of its arguments, or of its result."""

    def __init__(self, name: str, prefix: Any) -> None:
        self.name, self.prefix = name, prefix
        self._mesh = state.mesh  # of the block in which the function was made
        self._of_trees: dict[Any, list] = {}

    def of(self, value: Any, tree: Any, what: str) -> list[tuple[Any, str]]:
        """For each leaf of `value`, whose tree is `tree`: (its placement or None, its name)."""
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
    """How the parts of a container are reached, as they are written."""
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


def put_in(shardings: Shardings, args: tuple, kwargs: dict) -> tuple[tuple, dict, list[Tensor]]:
    """The arguments where they are to be, and the tensors among them that are copies.

    Raises `PlacementError` for one that was put somewhere else, and for one that cannot be put there.
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
        array = leaf._read()
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


def put_out(shardings: Shardings, value: Any) -> tuple[Any, list[tuple[Tensor, Any]]]:
    """The result of a function, in its trace, sharded as asked for; and the tensors that are, with their shardings.

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
    enabled, state.grad_enabled = state.grad_enabled, False
    try:
        return move(tensor, where).requires_grad_(tensor._requires_grad)
    finally:
        state.grad_enabled = enabled


# -- what stays where it was ------------------------------------------------------------------------------------------


class Places:
    """The shardings of a program's results, by their numbers, None where XLA chooses; and of its operands."""

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
        """Where the gradient of a tensor from outside belongs."""
        reached = self._trace.reached[number]
        chain = reached.before.get("_chain")
        return self._of_root(reached.root) if chain is None or chain.is_root or reached.by_value else None

    def effects(self, effects: Any, recipes: list) -> None:
        """Storages that are written, and gradients."""
        for _, array, root in effects.writes:
            self.places[array] = self._of_root(self._trace.roots[root])
        for i, reference in effects.grads:
            if reference is not None and reference[0]:
                recipe = recipes[reference[1]]
                if recipe.given is None and (recipe.chain is None or recipe.chain.is_root):
                    self.places.setdefault(recipe.root, self._like(i))

    def results(self, made: list[tuple[Tensor, Any]], reference: Callable, recipes: list) -> None:
        """What `put_out` has put."""
        for tensor, where in made:
            recipe = recipes[reference(tensor)[1]]
            if recipe.given is None and (recipe.chain is None or recipe.chain.is_root):
                self.places[recipe.root] = where

    def of_targets(self, targets: list) -> list | None:
        """Those of the gradients that a backward outside gives."""
        return _or_none([None if made else self._like(number) for (made, number), _ in targets])

    def operands(self, program: Any) -> tuple | None:
        """Those of the operands: None for one that was placed, and for all without a mesh."""
        if self._copies is None:
            return None
        roots = [self._trace.roots[number] for number in program.inputs]
        places = [None if place_of(root.array) else self._copies for root in roots]
        return tuple(places + [self._copies] * (program.with_one + len(program.arrays)))

    def all(self, count: int) -> list | None:
        """Those of all results; None if all are None."""
        return _or_none([self.places.get(number) for number in range(count)])


def _or_none(places: list) -> list | None:
    return places if any(place is not None for place in places) else None
