"""Match: compares a call with the one that was traced.

The guards of the surroundings (closure_guards.py) fetch tensors.  `Expected` compares them, as far as the trace depends
on them, with the traced ones: shape, dtype, sharding, requires_grad, being a leaf, hooks, the view of the storage, and
which tensors share a storage.  This runs in each call; a usual tensor takes a microsecond.
"""

from typing import Any

from ..tensor import Tensor
from ..views.storage import Tracer, place_of
from .containers import INTERNAL
from .guard_code import quick_find
from .guards import Guard, is_scalar
from .reached_tensors import is_plain

# Attributes that need no closer look.
_USUAL = frozenset({
    "_array", "_owned", "_storage", "_chain", "_cache", "_cache_generation", "_traced", "_version_counter",
    "_requires_grad", "_grad_fn", "_output_nr", "_grad", "_is_param", "_accumulator",
})  # fmt: skip
_UNUSUAL = ("_retains_grad", "_inference", "_grad_dtype", "_tangents", "_moved", "_level")

_HINTS = {
    "shape": " Keep shapes the same, pad, or give dynamic=.",
    "grad being None": " Set the grads to None inside of the function, before backward, and all calls are alike.",
}
_AS_TENSOR = " Give numbers that change as tensors, and each value runs the same program."


class Expected:
    """The properties that one tensor of a call must have."""

    __slots__ = (
        "aval", "bare", "by_value", "chain", "grad", "kind", "leaf", "owner", "parameter", "rare", "requires_grad",
        "sharding", "source",
    )  # fmt: skip

    def __init__(self, tensor: Tensor, source: tuple, owner: int, grad_read: bool, by_value: bool) -> None:
        array = tensor._read() if by_value else tensor._held()
        self.by_value = by_value  # True for a view that is only read: any tensor with such a value fits
        self.source = source  # ("found", i) by the guards, ("base", i) or ("grad", i) of tensor i, or ("held", tensor)
        self.owner = owner  # the number of the first tensor on the same storage
        self.kind, self.aval, self.sharding = type(tensor), array.aval, array.sharding
        self.chain = None if by_value else _chain(tensor)
        self.requires_grad = tensor._requires_grad
        self.leaf = tensor._grad_fn is None
        self.parameter = tensor._is_param
        self.grad = (tensor._grad is None) if grad_read else None  # None: the function doesn't read it
        self.rare = _rare(tensor)
        self.bare: tuple = ()  # attribute names of the last leaf that fitted and had nothing but a value

    def array(self, tensor: Tensor) -> Any:
        """Return the tensor's root (or its value, if `by_value`); None if the tensor does not look as expected."""
        if tensor.__class__ is not self.kind:
            return None
        if self.by_value:
            return self._value(tensor)
        attributes = tensor.__dict__
        get = attributes.get
        storage = get("_storage")
        if storage is None:
            array = get("_array")
            if array is None:
                array = tensor._held()
            if self.chain is not None:
                return None
        else:
            array = storage.array
            chain = attributes["_chain"]
            if chain is not self.chain and not (self.chain is None and chain.is_root):
                return None
        if (
            not self.alike(array)
            or get("_requires_grad", False) is not self.requires_grad
            or (get("_grad_fn") is None) is not self.leaf
            or get("_is_param", False) is not self.parameter
            or (self.grad is not None and (get("_grad") is None) is not self.grad)
        ):
            return None
        if self.rare is not None or not _USUAL.issuperset(attributes) or _watched(get("_accumulator")):
            return array if _rare(tensor) == self.rare else None
        return array

    def alike(self, array: Any) -> bool:
        """Return True if an array has the shape, dtype and sharding of the traced one."""
        if isinstance(array, Tracer):  # another trace's: it has no sharding
            return False
        aval, sharding = array.aval, array.sharding
        if aval is not self.aval and _kind_of(aval) != _kind_of(self.aval):
            return False
        if sharding is not self.sharding and sharding != self.sharding:
            return False
        self.aval, self.sharding = aval, sharding  # the next array likely has the same objects, which `is` finds
        return True

    def _value(self, tensor: Tensor) -> Any:
        """Return a tensor's value if it may replace a view that was only read; None if it is more than a value."""
        if not is_plain(tensor.__dict__) or tensor.requires_grad or not tensor.is_contiguous():
            return None
        array = tensor._read()
        return array if self.alike(array) else None

    def why(self, tensor: Tensor) -> str:
        """Return the tensor's difference in words."""
        array = tensor._read() if self.by_value else tensor._held()
        for name, was, now in (
            ("shape", self.chain.shape if self.chain else self.aval.shape, tuple(tensor.shape)),
            ("shape of its storage", self.aval.shape, array.shape),
            ("dtype", self.aval.dtype, array.dtype),
            ("sharding", self.sharding, getattr(array, "sharding", None)),
            ("type", self.kind.__name__, type(tensor).__name__),
            ("view of its storage", self.chain, None if self.by_value else _chain(tensor)),
            ("requires_grad", self.requires_grad, tensor._requires_grad),
            ("being a Parameter", self.parameter, tensor._is_param),
            ("being a leaf", self.leaf, tensor._grad_fn is None),
            ("grad being None", self.grad, tensor._grad is None if self.grad is not None else None),
        ):
            if was != now:
                return f" has another {name}: it was {was}, and is {now}.{_HINTS.get(name, '')}"
        return " has other hooks, flags or attributes, or is a view of another kind"


def _kind_of(aval: Any) -> tuple:
    """Return the part of an aval that a program depends on.

    Not its sharding, over an abstract mesh: it differs between equal arrays that were made in different ways.
    """
    return aval.shape, aval.dtype, aval.weak_type


def _chain(tensor: Tensor) -> Any:
    chain = tensor.__dict__.get("_chain")
    return None if chain is None or chain.is_root else chain


def _watched(accumulator: Any) -> Any:
    """Return a leaf's accumulator, from the leaf's weak reference to it, if it has hooks; else None."""
    node = None if accumulator is None else accumulator()
    return node if node is not None and node._hooks else None


def _rare(tensor: Tensor) -> tuple | None:
    """Return a tensor's rare attributes in a form that can be compared; None if it has none."""
    attributes = tensor.__dict__
    found: list[Any] = [(name, attributes[name]) for name in _UNUSUAL if attributes.get(name)]
    for name in ("_hooks", "_post_accumulate_hooks"):
        if attributes.get(name):
            found.append((name, tuple(attributes[name].values())))
    node = _watched(attributes.get("_accumulator"))
    if node is not None:
        found.append(("accumulator", tuple(node._hooks.pre.values()), tuple(node._hooks.post.values())))
    if not INTERNAL.issuperset(attributes):
        own = sorted(name for name in attributes if name not in INTERNAL)
        found.append(("attributes", *((name, _comparable(attributes[name])) for name in own)))
    view: Any = attributes.get("_view")
    if view is not None:
        stale = attributes.get("_grad_fn") is not None and view.attr_version != tensor._version
        found.append(("view", view.chain, view.creation_meta, view.tracking, view.name, stale))
    return tuple(found) or None


def _comparable(value: Any) -> Any:
    """Return a scalar's type and text; None for other attributes, which have guards (containers.py)."""
    return (type(value), repr(value)) if is_scalar(value) else None


class Match:
    """The guards of one program."""

    def __init__(
        self,
        tree: Any,
        modes: tuple,
        orders: list[tuple[tuple, list]],
        arguments: list[tuple[int, Guard]],
        function: Guard,
        doubles: list[tuple[int, int]],
        count: int,
        expected: list[Expected],
        arrays: list[tuple[int, Any]],
    ) -> None:
        self.tree, self.modes = tree, modes
        self.orders = orders  # (path, keys) of dictionaries among the arguments
        self.arguments = arguments  # (place among the leaves, guard)
        self.function = function  # an `OfRoots`: the guard of the function, its globals and objects
        self.doubles = doubles  # pairs of places with the same tensor; all other places have different ones
        self.count = count  # the number of different tensors that the guards find
        self.expected = expected
        self.arrays = arrays  # bare arrays among the arguments: (place, aval)
        self._storages = len({e.owner for e in expected if not e.by_value})
        # True if the guards find all tensors, and no two share a storage.
        self._apart = self._storages == len(expected) and all(e.source[0] == "found" for e in expected)
        compared = expected if self._apart else None
        self._quick = quick_find(function, arguments, doubles, count, arrays, _aval, compared, _USUAL)

    def order(self, args: tuple, kwargs: dict) -> str | None:
        """Return in words which dictionary argument has its keys in another order, or None.  A tree has them sorted."""
        for path, keys in self.orders:
            found: Any = (args, kwargs)
            for key in path:
                found = found[key]
            if list(found) != keys:
                return f"a dictionary among the arguments had its keys in the order {keys}, and has {list(found)}"
        return None

    def find(self, leaves: list) -> tuple[list, list] | None:
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
            if _aval(leaves[place]) != aval:
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

    def why(self, leaves: list) -> str:
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
            if _aval(leaves[place]) != aval:
                return f"the array of argument {place} was {aval}, and is {_aval(leaves[place])}."
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


def _fetch(kind: str, which: Any, tensors: list) -> Tensor | None:
    if kind == "held":
        return which
    tensor = tensors[which]
    if kind == "grad":
        return tensor._grad
    view = tensor._view
    return None if view is None else view.base


def _aval(array: Any) -> Any:
    """Return a bare array's aval (shape and dtype), with its sharding if it was placed."""
    aval = getattr(array, "aval", None)
    if aval is None:
        return array.shape, array.dtype
    place = place_of(array)
    return aval if place is None else (aval, place)
