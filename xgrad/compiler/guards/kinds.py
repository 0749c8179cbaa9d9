"""Decides by an object's class if xgrad.compile's guards look into the object or skip it."""

import functools
import gc
import operator
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ...tensor import Tensor
from ...views.storage import Tracer
from .code import STATEFUL, is_library, is_our_class
from .containers import OfContext, OfDeque, OfMapping, OfSequence, OfSet, OfView, dict_of
from .guard import EqualBytes

# Methods of a class that are called without being named in code, and attributes of a class that guards ignore.
CALLED = {"forward", "backward", "setup_context", "jvp", "vmap"}
CACHED = {"__slotnames__"}  # attributes of a class that the standard library computes from the others: for copies
PLAIN = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__", "__slots__",
    "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__static_attributes__", "__firstlineno__",
    "__orig_bases__", "__parameters__", "__abstractmethods__", *CACHED,
}  # fmt: skip
IMMUTABLE = 1 << 8  # a flag of classes that C code defines: Py_TPFLAGS_IMMUTABLETYPE

SKIPPED: Any = (
    Tensor, types.BuiltinFunctionType, types.CodeType, types.FrameType, types.TracebackType,
    types.GeneratorType, np.ndarray, jax.Array, *EqualBytes.kinds,
)  # fmt: skip
NAMING = (operator.attrgetter, operator.methodcaller)
# What is in these, code asks for without naming it.
ITEMS: Any = (
    list, tuple, dict, set, frozenset, deque, types.MappingProxyType, np.ndarray, functools.partial,
    *OfContext.kinds, *OfView.kinds,
)  # fmt: skip
KINDS: tuple[Any, ...] = (
    (OfSequence, (list, tuple)),
    (OfMapping, (dict, types.MappingProxyType)),
    (OfDeque, deque),
    (OfSet, (set, frozenset)),
    (OfContext, OfContext.kinds),
    (OfView, OfView.kinds),
)


def holds_tensors(value: Any, counts: Callable[[Any], bool] = lambda tensor: True) -> bool:
    """Return True if a value contains a tensor or tracer for which `counts` is true.  Looks at 500 objects at most."""
    waiting, seen = [value], set()
    while waiting and len(seen) < 500:
        value = waiting.pop()
        kind = type(value)
        if issubclass(kind, (Tensor, Tracer)):
            if counts(value):
                return True
        elif id(value) not in seen and not issubclass(kind, (type, types.ModuleType)):
            seen.add(id(value))
            if issubclass(kind, types.FunctionType):  # not its globals
                waiting += [value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__]
            elif issubclass(kind, BaseException):  # not the frames that its traceback refers to
                waiting += [value.args, value.__dict__, value.__cause__, value.__context__]
            elif issubclass(kind, np.ndarray) and value.dtype.hasobject:  # the collector does not see into it
                waiting += value.ravel().tolist()
            else:
                waiting += gc.get_referents(value)
    return False


def is_module(value: Any) -> bool:
    return "_parameters" in (dict_of(value) or ())


@functools.lru_cache(maxsize=4096)
def is_library_class(kind: type[Any]) -> bool:
    """Return True if an installed library defines the class."""
    module = sys.modules.get(kind.__module__)
    return module is None or is_library(vars(module))


@functools.lru_cache(maxsize=4096)
def bases_of_ours(kind: type[Any]) -> tuple[type[Any], ...]:
    """Return the classes of xgrad's behind a class, whose code may read its objects."""
    return tuple(base for base in kind.__mro__ if base.__module__.startswith(STATEFUL))


@functools.lru_cache(maxsize=4096)
def is_read(kind: type[Any]) -> bool:
    """Return True if code of xgrad's that gets one of a class's objects reads all of its attributes."""
    return bool(bases_of_ours(kind)) and not any(hasattr(kind, f"__xgrad_{what}__") for what in ("reads", "guards"))


def may_change(kind: type[Any]) -> bool:
    """Return True if guards look into the class: it is not implemented in C, and not xgrad's, JAX's or NumPy's."""
    return not kind.__flags__ & IMMUTABLE and not is_our_class(kind)
