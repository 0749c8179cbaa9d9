"""Match: tests if a compiled program fits a call, by comparing the call with the one that was traced.

The guards (closure_guards.py) fetch the tensors.  `Expected` (tensor_guard.py) compares each with the traced one, and
`Match` which of them share a storage.  This runs in each call; a usual tensor takes a microsecond.
"""

from typing import Any

import jax
import numpy as np

from ...tensor import Tensor
from ...views.storage import place_of
from .guard import Guard
from .guard_code import quick_find
from .tensor_guard import Expected

_AS_TENSOR = " Give numbers that change as tensors, and each value runs the same program."


class Match:
    """The guards of one program."""

    def __init__(
        self,
        tree: Any,
        modes: tuple[Any, ...],
        orders: list[tuple[tuple[Any, ...], list[Any]]],
        arguments: list[tuple[int, Guard]],
        function: Guard,
        doubles: list[tuple[int, int]],
        count: int,
        expected: list[Expected],
        arrays: list[tuple[int, Any]],
        links: list[tuple[str, int, int]],
    ) -> None:
        self.tree: Any = tree
        self.modes: tuple[Any, ...] = modes
        self.orders = orders  # (path, keys) of dictionaries among the arguments
        self.arguments = arguments  # (place among the leaves, guard)
        self.function = function  # an `OfRoots`: the guard of the function, its globals and objects
        self.doubles = doubles  # pairs of places with the same tensor; all other places have different ones
        self.count = count  # the number of different tensors that the guards find
        self.expected = expected
        self.arrays = arrays  # bare arrays among the arguments: (place, aval)
        self.links = links  # (kind, i, j): tensor j is the "grad" or the "base" of tensor i, and found in another way
        self._storages = len({e.owner for e in expected if not e.by_value})
        # True if the guards find all tensors, and these are not linked and share no storage.
        self._apart = self._storages == len(expected) and all(e.source[0] == "found" for e in expected) and not links
        compared = expected if self._apart else None
        self._quick = quick_find(function, arguments, doubles, count, arrays, aval_of, compared)

    def order(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> str | None:
        """Return in words which dictionary argument has its keys in another order, or None.  A tree has them sorted."""
        for path, keys in self.orders:
            found: Any = (args, kwargs)
            for key in path:
                found = found[key]
            if list(found) != keys:
                return f"a dictionary among the arguments had its keys in the order {keys}, and has {list(found)}"
        return None

    def find(self, leaves: list[Any]) -> tuple[list[Any], list[Any]] | None:
        """Return the tensors and their roots if a call is like the one that was traced, else None."""
        try:
            found = self._quick(leaves)
        except AttributeError:  # a tracer of another trace has no sharding
            found = None
        if found is None:
            found = self._found(leaves)
            if found is None:
                return None
        elif self._apart:
            return found
        tensors: list[Any] = []
        arrays: list[Any] = []
        holders, values = set(), set()
        for expected in self.expected:
            kind, which = expected.source
            tensor = found[which] if kind == "found" else _fetch(kind, which, tensors)
            array = None if tensor is None else expected.array(tensor)
            if tensor is None or array is None:
                return None
            tensors.append(tensor)
            arrays.append(array)
            storage = tensor._storage
            (values if expected.by_value else holders).add(id(tensor if storage is None else storage))
        if len(holders) != self._storages or (self._storages != len(tensors) and not self._alike(tensors)):
            return None
        if values and not values.isdisjoint(holders):
            return None
        if any(_fetch(kind, i, tensors) is not tensors[j] for kind, i, j in self.links):
            return None
        return tensors, arrays

    def _found(self, leaves: list) -> list | None:
        """Return the tensors that the guards find, or None if a guard finds a difference."""
        found: list[Any] = []
        for place, guard in self.arguments:
            if guard.check(leaves[place], found) is not None:
                return None
        if self.function.check(self.function.value, found) is not None:
            return None
        for place, aval in self.arrays:
            if aval_of(leaves[place]) != aval:
                return None
        for i, j in self.doubles:
            if found[i] is not found[j]:
                return None
        return found if len(set(map(id, found))) == self.count else None

    def _alike(self, tensors: list) -> bool:
        """Return True if the same tensors as before share storages."""
        owners: dict[int, int] = {}
        for expected, tensor in zip(self.expected, tensors):
            if expected.by_value:
                continue
            storage = tensor._storage
            if owners.setdefault(id(tensor if storage is None else storage), expected.owner) != expected.owner:
                return False
        return len(set(map(id, tensors))) == len(tensors)

    def tensors(self, leaves: list[Any]) -> list[Any]:
        """Return the tensors of a call that was traced just now, without their arrays; None for one that has gone."""
        found, tensors = self._found(leaves), []
        for kind, which in (expected.source for expected in self.expected):
            if kind == "found":
                tensors.append(None if found is None else found[which])
            else:
                tensors.append(_fetch(kind, which, tensors) if kind == "held" or tensors[which] is not None else None)
        return tensors

    def why(self, leaves: list[Any]) -> str:
        """Return in words why a call does not fit."""
        found: list[Any] = []
        for place, guard in self.arguments:
            reason = guard.check(leaves[place], found)
            if reason is not None:
                return f"argument {place}{reason}.{_AS_TENSOR}"
        reason = self.function.check(self.function.value, found)
        if reason is not None:
            return f"{reason.strip()}.{_AS_TENSOR}"
        for place, aval in self.arrays:
            if aval_of(leaves[place]) != aval:
                return f"the array of argument {place} was {aval}, and is {aval_of(leaves[place])}."
        for i, j in self.doubles:
            if found[i] is not found[j]:
                return "two places that had the same tensor have two"
        if len(set(map(id, found))) != self.count:
            return "two places that had two tensors have the same one"
        tensors: list[Any] = []
        for expected in self.expected:
            kind, which = expected.source
            tensor = found[which] if kind == "found" else _fetch(kind, which, tensors)
            if tensor is None:
                return f"the {kind} of tensor {which} is gone"
            if expected.array(tensor) is None:
                held = "a tensor that the function keeps"
                name = {"found": f"tensor {which}", "held": held}.get(kind, f"the {kind} of tensor {which}")
                return name + expected.why(tensor)
            tensors.append(tensor)
        return "tensors are the same, or share storages, in another way"


def links_of(reached: list[Any], expected: list[Expected]) -> list[tuple[str, int, int]]:
    """Return (kind, i, j) where tensor j is also the gradient or the base of tensor i, by which it is not found."""
    numbers = {id(r.tensor): r.number for r in reached}
    found = []
    for r in reached:
        view, grad = r.before.get("_view"), r.before.get("_grad")
        base = None if view is None or r.by_value else view.base
        for kind, tensor in (("base", base), ("grad", grad if r.grad_read else None)):
            other = None if tensor is None else numbers.get(id(tensor))
            if other is not None and expected[other].source != (kind, r.number):
                found.append((kind, r.number, other))
    return found


def _fetch(kind: str, which: Any, tensors: list) -> Tensor | None:
    if kind == "held":
        return which
    tensor = tensors[which]
    if kind == "grad":
        return tensor._grad
    view = tensor._view
    return None if view is None else view.base


def aval_of(array: Any) -> Any:
    """Return a bare array's aval (shape and dtype), with its sharding if it was placed."""
    aval = getattr(array, "aval", None)
    if aval is None:
        return array.shape, array.dtype
    place = place_of(array)
    return aval if place is None else (aval, place)


def is_array(value: Any) -> bool:
    """Return True for a bare array that is an input of the program."""
    return isinstance(value, jax.Array) or (isinstance(value, np.ndarray) and value.dtype.kind not in "OSUMm")
