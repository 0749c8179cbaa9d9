"""Pending: stands in for a `jax.Array` that is not computed yet, in an `xgrad.lazy` block or on an `xgrad.Backend`.

    before the evaluation    `queue`, `number`: the result of a queued program
    after it                 `value`: the array

Shape, dtype, weak type and place are known from the start.  Most other attributes of a `jax.Array`, NumPy's and JAX's
protocols and all operators read the value, and so evaluate the queue.  Invariant: only `execution/` and `backends/`
look at `value`; other code calls `read`, `evaluated` or `quietly`.
"""

from contextlib import nullcontext
from typing import Any
from weakref import ref

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..base.declared import DeclaredPlace
from ..base.jax_compat import Tracer, in_trace
from ..base.platforms import local_devices
from ..config import state
from ..errors import LostValueError
from .references import is_deleted


class Aval:
    """The shape, dtype and weak type of an array.  Equal ones are one object, so that they are compared by identity."""

    __slots__ = ("__weakref__", "dtype", "ndim", "shape", "size", "struct", "weak_type")

    def __init__(self, shape: tuple[int, ...], dtype: Any, weak_type: bool) -> None:
        self.shape: tuple[int, ...] = shape
        self.dtype: Any = dtype
        self.weak_type: bool = weak_type
        self.struct: Any = jax.ShapeDtypeStruct(shape, dtype, weak_type=weak_type)
        self.ndim: int = len(shape)
        self.size: int = self.struct.size

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


_avals: dict[tuple[Any, ...], Aval] = {}
MOST_AVALS = 4096  # more than these, and twice those that were in use when they were counted last, are looked through
_most = MOST_AVALS


def aval_of(shape: tuple[int, ...], dtype: Any, weak_type: bool) -> Aval:
    """Return the one Aval of these."""
    key = shape, dtype, weak_type
    found = _avals.get(key)
    if found is None:
        found = _avals.setdefault(key, Aval(*key))
        if len(_avals) > _most:
            _drop_unused()
    return found


def _drop_unused() -> None:
    """Leave the avals that something refers to: pending arrays, programs, keys of compiled queues."""
    global _most
    found = [(key, ref(aval)) for key, aval in list(_avals.items())]
    _avals.clear()
    for key, used in found:
        aval = used()
        if aval is not None:
            _avals[key] = aval  # if another thread has made one again meanwhile, programs know this one
    _most = max(MOST_AVALS, 2 * len(_avals))


# Places: 0 is the default device, to which an array is not committed; the others count single-device shardings.
places: list[Any] = [None]
_numbers: dict[Any, int] = {}


def place_number(sharding: Any) -> int:
    """Return the number of a single-device sharding to which an array is committed."""
    found = _numbers.get(sharding)
    if found is None:
        places.append(sharding)
        found = _numbers[sharding] = len(places) - 1
    return found


def declared_of(x: Any) -> DeclaredPlace | None:
    """Return the declared backend's place that an operand of a program is at; None for any other operand."""
    if x.__class__ is Pending and x.place:
        where = places[x.place]
        return where if where.__class__ is DeclaredPlace else None  # never one with a layout: that is the value's
    if x.__class__ is tuple:
        for part in x:
            if (where := declared_of(part)) is not None:
                return where
    return None


def spread(x: Any) -> bool:
    """Return True for an array on several devices: its programs run at once."""
    return isinstance(x, jax.Array) and not isinstance(x, Tracer) and x.sharding.__class__ is not SingleDeviceSharding


def default_sharding() -> SingleDeviceSharding:
    """Return the sharding of arrays that are committed to no device."""
    default = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    if default is None or isinstance(default, str):
        default = local_devices(default)[0]
    return SingleDeviceSharding(default)


class Pending:
    """The array that a queued program will give."""

    place: int = 0
    owned: bool = True  # False if other code may have its array
    value: Any = None
    serial: int = 0  # its number for the clock of a declared backend (backends/clock.py); 0: none yet
    apart: Any = ()  # the copies that stand in place of views of it, or what it is a copy of: backends/events.py
    instead: Any = None  # if it was not computed, and a write had taken it out of its holder: what it replaced
    latest: Any = None  # of a root that waits: the view that was written last, and its value (backends/aliasing.py)

    def __init__(self, queue: Any, number: int, aval: Aval) -> None:
        self.queue = queue  # the Queue that has noted it; None once it has its value
        self.number = number  # of the result in the queue
        self.aval = aval
        self.shape: tuple[int, ...] = aval.shape
        self.dtype: Any = aval.dtype

    __array_priority__ = 100
    __hash__: Any = object.__hash__

    @property
    def weak_type(self) -> bool:
        return self.aval.weak_type

    @property
    def ndim(self) -> int:
        return self.aval.ndim

    @property
    def size(self) -> int:
        return self.aval.size

    @property
    def nbytes(self) -> int:
        return self.aval.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def sharding(self) -> Any:
        where = places[self.place]
        if where.__class__ is DeclaredPlace and where.several and spread(self.value):
            return where.laid(self.value.sharding)
        return where or default_sharding()

    @property
    def committed(self) -> bool:
        return self.place > 0

    @property
    def is_fully_addressable(self) -> bool:
        return True

    @property
    def is_fully_replicated(self) -> bool:
        return not self.place or self.sharding.is_fully_replicated

    def is_deleted(self) -> bool:
        return is_deleted(self.value)

    def devices(self) -> set[Any]:
        return self.sharding.device_set

    def unsafe_buffer_pointer(self) -> int:
        """Return the address of the array's memory.  Callers may not keep it: a write may donate the array."""
        return self.evaluated("an address").unsafe_buffer_pointer()

    def read(self, reason: str) -> Any:
        """Return the array for other code to keep; `reason` says in the metrics who asked for it."""
        self.owned = False
        array = self.evaluated(reason)
        where = declared_of(self)
        return array if where is None else where.runtime.sent(array, reason, self)

    def evaluated(self, reason: str) -> Any:
        """Return the array.  Evaluates the queue if it has none."""
        if self.value is None:
            queue = self.queue
            if queue is not None:
                queue.evaluate(reason, self)
            if self.value is None:
                raise LostValueError(
                    "this tensor has no value: the program that was to compute it, or to write it in place, failed "
                    "(its error then said why). Compute it again, or give it another value: x.data = ..."
                )
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name not in _PROTOCOLS:
            raise AttributeError(name)
        return getattr(self.read(_REASONS.get(name, name)), name)

    def __repr__(self) -> str:
        return f"Pending({self.aval!r})" if self.value is None else repr(self.value)

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        return np.asarray(self.read("a NumPy array"), *args, **options)

    def __jax_array__(self) -> Any:
        return self.read("a function of JAX's")

    def __reduce__(self) -> Any:
        return self.read("a pickle").__reduce__()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.read("a copy").__deepcopy__(memo)


# JAX's transformations take a Pending as the array that it stands for.
jax.tree_util.register_pytree_node(
    Pending, lambda pending: ((pending.read("a function of JAX's"),), None), lambda _, leaves: leaves[0]
)

_PROTOCOLS = {"__dlpack__", "__dlpack_device__", "__cuda_array_interface__"}
_REASONS = {"item": "item()", "tolist": "tolist()"}


def _operator(name: str, reason: str) -> Any:
    def method(self: Pending, *args: Any) -> Any:
        args = tuple([a.read(reason) if a.__class__ is Pending else a for a in args])
        return getattr(self.read(reason), name)(*args)

    method.__name__ = name
    return method


_READ_BY = {"__bool__": "bool()", "__int__": "int()", "__float__": "float()", "__complex__": "complex()",
            "__index__": "int()", "__len__": "len()", "__iter__": "a loop", "__getitem__": "an index",
            "__format__": "print"}  # fmt: skip
for _name, _reason in _READ_BY.items():
    setattr(Pending, _name, _operator(_name, _reason))
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or", "xor", "lshift",
           "rshift")  # fmt: skip
for _name in (
    *_BINARY, *(f"r{_name}" for _name in _BINARY), "lt", "le", "gt", "ge", "eq", "ne",
    "neg", "pos", "abs", "invert", "round",
):  # fmt: skip
    setattr(Pending, f"__{_name}__", _operator(f"__{_name}__", "arithmetic on an array"))


def give_up(results: Any) -> None:
    """Take results without a value off their queue: other results will take their numbers."""
    for p in results if results.__class__ is tuple else (results,):
        p.queue = None


def waits(array: Any) -> bool:
    """Return True for a Pending that has no value yet."""
    return array.__class__ is Pending and array.value is None


def only_shape(array: Any) -> bool:
    """Return True for a Pending that has a shape and will never have a value (shapes_only.py)."""
    return array.__class__ is Pending and array.queue is not None and array.queue.only_shapes


def quietly(array: Any) -> Any:
    """Return the array behind a Pending, or a tuple of such, for a program of ours that runs now.

    One that has a shape alone stays, and JAX raises its error; a trace needs no more than the shape.
    """
    if array.__class__ is tuple:
        return tuple([quietly(part) for part in array])
    if array.__class__ is Pending:
        if only_shape(array):
            return array
        # Within a trace, too, it is a value.  Elsewhere programs are compiled again for another setting of JAX's.
        with jax.ensure_compile_time_eval() if in_trace() else nullcontext():
            return array.evaluated("a program that runs at once" if state.trace is None else "a trace")
    return array
