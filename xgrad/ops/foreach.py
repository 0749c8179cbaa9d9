"""_foreach_add, _foreach_mul_, ...: apply an operation to each tensor of a list, if possible in one compiled program.

    _foreach_mul(tensors, 2.0)                  a number, or a 0-d tensor, for all
    _foreach_mul(tensors, [2.0, 3.0])           a number for each
    _foreach_mul_(tensors, others)              a tensor for each; with `_` in place, in the tensors' own memory

Each tensor gets an operation of its own where a gradient may be asked for, or where the tensors are not plain ones of
one floating-point dtype, or share memory that is written.  (PyTorch: native_functions.yaml.)
"""

import functools
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..config import state
from ..dispatch.multi_write import MultiWrite, holders_of
from ..dispatch.promotion import widen
from ..dispatch.tables import FUNCTIONS, METHODS
from ..execution.programs.programs import Program, jit_checked
from ..execution.runner import runner
from ..tensor import Tensor, from_array
from .pointwise import exponents
from .pointwise.ends import log1p, quotient


def _of_singles(compute: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a: compute(widen(a))


# The formulas over arrays of one floating-point dtype, and numbers.
UNARY: dict[str, Callable[..., Any]] = {
    **{n: _of_singles(getattr(exponents, n)) for n in ("cosh", "log10", "log2", "sinh")},
    "abs": jnp.abs, "acos": jnp.arccos, "asin": jnp.arcsin, "atan": jnp.arctan, "ceil": jnp.ceil, "cos": jnp.cos,
    "erf": lax.erf, "exp": jnp.exp, "expm1": jnp.expm1, "floor": jnp.floor, "log": jnp.log,
    "log1p": log1p, "neg": jnp.negative, "reciprocal": lambda a: 1 / a,
    "round": jnp.round, "rsqrt": lax.rsqrt, "sigmoid": lambda a: lax.logistic(a), "sign": jnp.sign, "sin": jnp.sin,
    "sqrt": jnp.sqrt, "tan": jnp.tan, "tanh": jnp.tanh, "trunc": jnp.trunc, "zero": jnp.zeros_like,
}  # fmt: skip
BINARY: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, alpha: a + alpha * b, "sub": lambda a, b, alpha: a - alpha * b, "mul": lambda a, b: a * b,
    "div": quotient, "maximum": jnp.maximum, "minimum": jnp.minimum, "clamp_min": jnp.maximum,
    "clamp_max": jnp.minimum, "pow": lambda a, b: jnp.power(a, b), "copy": lambda a, b: jnp.broadcast_to(b, a.shape),
}  # fmt: skip
TERNARY: dict[str, Callable[..., Any]] = {
    "addcmul": lambda a, b, c, value: a + value * b * c, "addcdiv": lambda a, b, c, value: a + value * b / c,
    "lerp": lambda a, b, weight: jnp.where(weight < 0.5, a + weight * (b - a), b - (b - a) * (1 - weight)),
}  # fmt: skip
FORMULAS = UNARY | BINARY | TERNARY
FOREACH: dict[str, Callable[..., Any]] = {}  # the public functions, by name
_ONLY_IN_PLACE, _KEYWORDS = {"zero", "copy"}, {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}


def _columns(name: str, tensors: Sequence[Tensor], others: Sequence[Any]) -> list[Any]:
    """Return for each further argument a list with an item for each tensor, or what is the same for all."""
    if not tensors:
        raise RuntimeError(f"_foreach_{name}: Tensor list must have at least one tensor.")
    columns = []
    for other in others:
        if isinstance(other, Tensor) and other.ndim == 1 and name in ("addcmul", "addcdiv"):
            other = list(other.unbind())
        if isinstance(other, (list, tuple)):
            if len(other) != len(tensors):
                raise RuntimeError(
                    f"_foreach_{name}: Tensor lists must have the same number of tensors, got {len(tensors)} and "
                    f"{len(other)}"
                )
            other = list(other)
        columns.append(other)
    return columns


def _plain(tensors: Sequence[Tensor], columns: list[Any]) -> bool:
    """Return True if one program can do it: nothing is recorded, and all are plain tensors of one real dtype."""
    dtype = tensors[0]._dtype
    if not jnp.issubdtype(dtype, jnp.floating) or state.forward_level >= 0 or state.operator_mode is not None:
        return False
    if not state.grad_enabled and _alike(tensors, columns):
        return True
    recording, shapes = state.grad_enabled, [t.shape for t in tensors]
    for column in (tensors, *columns):
        for a in column if isinstance(column, (list, tuple)) else (column,):
            if isinstance(a, Tensor):
                if a._interpreter is not None or a._dtype != dtype or (recording and a.requires_grad):
                    return False
            elif a.__class__ not in (int, float, bool):
                return False
    for column in columns:
        if isinstance(column, list):
            given = [a.shape if isinstance(a, Tensor) else () for a in column]
            if given != shapes and any(shape and shape != t for shape, t in zip(given, shapes)):
                return False
        elif isinstance(column, Tensor) and column.ndim and any(column.shape != t for t in shapes):
            return False
    return True


_ARRAY, _DTYPE, _SHAPE = map(attrgetter, ("_array", "aval.dtype", "aval.shape"))
_NUMBERS = {int, float, bool}


def _alike(tensors: Sequence[Tensor], columns: list[Any]) -> bool:
    """Return True if all tensors are plain ones of one dtype and, in a row, of one shape: asked by loops in C."""
    dtypes: set[int] = set()  # by their ids: NumPy takes 0.2 µs to hash one
    shapes = None
    for column in (tensors, *columns):
        if not isinstance(column, (list, tuple)):
            if column.__class__ not in _NUMBERS:
                return False
            continue
        if {*map(type, column)} <= _NUMBERS:
            continue
        holders = holders_of(column)
        arrays = [] if holders is None else [*map(_ARRAY, holders)]
        if not arrays or type(None) in {*map(type, arrays)}:
            return False
        dtypes.update(map(id, map(_DTYPE, arrays)))
        found = [*map(_SHAPE, arrays)]
        if shapes is not None and found != shapes:
            return False
        shapes = found
    return len(dtypes) == 1


@functools.lru_cache(maxsize=512)
def _function(name: str, count: int, each: tuple[bool, ...]) -> Callable[..., Any]:
    """Return the function over (arrays, operands) where `each` marks the arguments that have an item for each
    tensor."""
    formula = FORMULAS[name]

    def foreach(arrays: list[Any], operands: list[Any]) -> list[Any]:
        given, columns = iter(operands), []
        for many in each:
            columns.append([next(given) for _ in range(count)] if many else [next(given)] * count)
        return [formula(*row).astype(row[0].dtype) for row in zip(arrays, *columns)]

    foreach.__name__ = f"foreach_{name}"
    return foreach


@functools.lru_cache(maxsize=512)
def _in_place(name: str, count: int, each: tuple[bool, ...]) -> MultiWrite:
    return MultiWrite(_function(name, count, each), f"foreach_{name}")


@functools.lru_cache(maxsize=512)
def _out_of_place(name: str, count: int, each: tuple[bool, ...]) -> Program:
    function = _function(name, count, each)

    def flat(*values: Any) -> tuple[Any, ...]:
        return tuple(function(list(values[:count]), list(values[count:])))

    flat.__name__ = f"foreach_{name}"
    return jit_checked(flat)


def _run(name: str, in_place: bool, tensors: Sequence[Tensor], others: Sequence[Any]) -> Any:
    columns = _columns(name, tensors, others)
    if not _plain(tensors, columns):
        return _one_by_one(name, in_place, tensors, columns)
    each = tuple([isinstance(column, list) for column in columns])
    operands = [a for column in columns for a in (column if isinstance(column, list) else [column])]
    if in_place:
        written = _holders(tensors)
        if len(written) < len(tensors) or not written.isdisjoint(_holders(operands)):
            return _one_by_one(name, True, tensors, columns)
        _in_place(name, len(tensors), each)(tensors, operands)
        return tensors
    arrays = [a._read() if isinstance(a, Tensor) else a for a in (*tensors, *operands)]
    return tuple([from_array(a) for a in runner.run(_out_of_place(name, len(tensors), each), arrays)])


def _holders(operands: Sequence[Any]) -> set[int]:
    """Return the ids of what holds each operand's array: its storage, which others may share, or itself."""
    storages = [*map(getattr, operands, repeat("_storage"), repeat(None))]
    if {*map(type, storages)} <= {type(None)}:
        return {*map(id, operands)}
    return {id(a if storage is None else storage) for a, storage in zip(operands, storages)}


def _one_by_one(name: str, in_place: bool, tensors: Sequence[Tensor], columns: list[Any]) -> Any:
    """Do it by the ordinary operators."""
    function = METHODS[name + "_"] if in_place else FUNCTIONS[""][name]
    keyword = _KEYWORDS.get(name)
    results = []
    for i, t in enumerate(tensors):
        row = [column[i] if isinstance(column, list) else column for column in columns]
        options = {} if keyword is None else {keyword: row.pop()}
        if isinstance(options.get("value"), Tensor):
            options = {"value": options["value"].item()}
        results.append(function(t, *row, **options))
    return tensors if in_place else tuple(results)


def _norm(tensors: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """Return the norm of each tensor."""
    _columns("norm", tensors, ())
    if ord in (2, 2.0) and dtype is None and _plain(tensors, []):
        return tuple([from_array(a) for a in runner.run(_norms(len(tensors)), [t._read() for t in tensors])])
    return tuple([FUNCTIONS["linalg"]["vector_norm"](t, ord, dtype=dtype) for t in tensors])


@functools.lru_cache(maxsize=64)
def _norms(count: int) -> Program:
    def foreach_norm(*arrays: Any) -> tuple[Any, ...]:
        wide = [a.astype(jnp.promote_types(a.dtype, jnp.float32)) for a in arrays]
        return tuple([jnp.sqrt((w * w).sum()).astype(a.dtype) for w, a in zip(wide, arrays)])

    return jit_checked(foreach_norm)


def _declare(name: str, in_place: bool) -> None:
    """Add a function with PyTorch's parameters."""
    suffix = "_" * in_place

    def unary(self: Sequence[Tensor]) -> Any:
        return _run(name, in_place, self, ())

    def with_alpha(self: Sequence[Tensor], other: Any, *, alpha: Any = 1) -> Any:
        return _run(name, in_place, self, (other, alpha))

    def binary(self: Sequence[Tensor], other: Any, non_blocking: bool = False) -> Any:
        return _run(name, in_place, self, (other,))

    def lerp(self: Sequence[Tensor], tensors1: Any, weight: Any) -> Any:
        return _run(name, in_place, self, (tensors1, weight))

    def with_value(self: Sequence[Tensor], tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
        return _run(name, in_place, self, (tensor1, tensor2, value))

    function: Any = with_value
    for these, one in ((UNARY, unary), (("add", "sub"), with_alpha), (("lerp",), lerp), (BINARY, binary)):
        if name in these:
            function = one
            break
    function.__name__ = function.__qualname__ = f"_foreach_{name}{suffix}"
    function.__doc__ = f"{name} of each tensor of a list, as one program{', in place' * in_place}."
    function.__module__ = "xgrad"
    FOREACH[function.__name__] = function


for _name in FORMULAS:
    if _name not in _ONLY_IN_PLACE:
        _declare(_name, False)
    _declare(_name, True)
_norm.__name__ = _norm.__qualname__ = "_foreach_norm"
FOREACH["_foreach_norm"] = _norm
