"""Expected: compares one tensor of a call with the traced one, for xgrad.compile's guards.

It compares shape, dtype, sharding, requires_grad, being a leaf, hooks, the view of the storage.
"""

from typing import Any

from ...execution.pending import Pending, quietly
from ...execution.runner import evaluate_held
from ...tensor import Tensor
from ...views.storage import Tracer
from ..reached_tensors import is_plain
from .containers import INTERNAL
from .guard import is_scalar

# Attributes that need no closer look.
USUAL = frozenset({
    "_array", "_owned", "_storage", "_chain", "_cache", "_cache_generation", "_traced", "_version_counter",
    "_requires_grad", "_grad_fn", "_output_nr", "_grad", "_is_param", "_accumulator",
})  # fmt: skip
# The attributes of a tensor that has nothing but a value.
_VALUE = USUAL - {"_grad_fn", "_grad", "_is_param", "_accumulator"}
_UNUSUAL = ("_retains_grad", "_inference", "_grad_dtype", "_tangents", "_moved", "_level")

_HINTS = {
    "shape": " Keep shapes the same, pad, or give dynamic=.",
    "grad being None": " Set the grads to None inside of the function, before backward, and all calls are alike.",
}


class Expected:
    """The properties that one tensor of a call must have."""

    __slots__ = (
        "aval", "bare", "by_value", "chain", "grad", "kind", "leaf", "owner", "parameter", "rare", "requires_grad",
        "sharding", "simple", "source",
    )  # fmt: skip

    def __init__(self, tensor: Tensor, source: tuple[Any, ...], owner: int, grad_read: bool, by_value: bool) -> None:
        array = tensor._read() if by_value else tensor._held()
        self.by_value: bool = by_value  # True for a view that is only read: any tensor with such a value fits
        self.source: tuple[Any, ...] = (
            source  # ("found", i) by the guards, ("base", i) or ("grad", i) of tensor i, or ("held", tensor)
        )
        self.owner: int = owner  # the number of the first tensor on the same storage
        self.kind: type[Tensor] = type(tensor)
        self.aval: Any = array.aval
        self.sharding: Any = array.sharding
        self.chain: Any = None if by_value else _chain(tensor)
        self.requires_grad: bool = tensor._requires_grad
        self.leaf: bool = tensor._grad_fn is None
        self.parameter: bool = tensor._is_param
        self.grad: bool | None = (tensor._grad is None) if grad_read else None  # None: the function doesn't read it
        self.rare: Any = _rare(tensor)
        # True for a leaf that may have nothing but a value, and the names of its attributes when it fitted and had
        # nothing more: a leaf with attributes of the same names has nothing but a value either.
        self.simple: bool = self.leaf and not self.parameter and self.grad is not False
        self.bare: tuple[Any, ...] = ()

    def array(self, tensor: Tensor) -> Any:
        """Return the tensor's root (or its value, if `by_value`); None if the tensor does not look as expected."""
        if tensor.__class__ is not self.kind:
            return None
        if self.by_value:
            return quietly(self._value(tensor))
        attributes = tensor.__dict__
        get = attributes.get
        storage = get("_storage")
        if storage is None:
            array = get("_array")
            if array is None:
                array = tensor._held()
            elif array.__class__ is Pending:
                array = evaluate_held(tensor)
            if self.chain is not None:
                return None
        else:
            array = storage.array
            if array.__class__ is Pending:
                array = evaluate_held(storage)
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
        if self.rare is not None or not USUAL.issuperset(attributes) or _watched(get("_accumulator")):
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


def arrays_of(tensors: list[Tensor], expected: list[Expected]) -> list[Any] | None:
    """Return what `Expected.array` gives for each tensor, None if one does not fit or has an array that is pending.

    One loop for all, because in each call it takes half of what the method would.
    """
    arrays, usual, value = [], USUAL.issuperset, _VALUE.issuperset
    for t, e in zip(tensors, expected):
        if e.rare is not None:
            if (a := e.array(t)) is None:
                return None
            arrays.append(a)
            continue
        if t.__class__ is not e.kind:
            return None
        d = t.__dict__
        s = d.get("_storage")
        if s is None:
            a = d.get("_array")
            if a is None or e.chain is not None:
                return None
        else:
            a, chain = s._array, d["_chain"]
            if a is None or (chain is not e.chain and not (e.chain is None and chain.is_root)):
                return None
        if not (a.aval is e.aval and a.sharding is e.sharding) and not e.alike(a):
            return None
        if d.get("_requires_grad", False) is not e.requires_grad:
            return None
        arrays.append(a)
        if e.simple and tuple(d) == e.bare:
            continue
        if (
            (d.get("_grad_fn") is None) is not e.leaf
            or d.get("_is_param", False) is not e.parameter
            or (e.grad is not None and (d.get("_grad") is None) is not e.grad)
            or not usual(d)
            or _watched(d.get("_accumulator"))
        ):
            return None
        if e.simple and value(d):
            e.bare = tuple(d)
    return arrays


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
