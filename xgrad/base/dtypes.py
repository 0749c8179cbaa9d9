"""Names NumPy's and ml_dtypes' dtypes as PyTorch does, and applies PyTorch's rules of type promotion.

JAX has 64-bit types only while its x64 mode is on.  While it is off and one is asked for, integers of 64 bits become
integers of 32 (an `OverflowError` says where values at hand do not fit), float64 becomes float32 and complex128
complex64, with one warning in a process, or a `DtypeDisabledError` if `xgrad.config.narrow` is "error".
Invariant: all of it is decided in `as_dtype` and `narrowed`; what must keep its bits calls `exact_dtype`.
Promotion follows c10::promoteTypes and at::result_type: categories bool < integral < floating < complex; a 0-dim
tensor against a dimensioned one, and a Python number against any tensor, promotes only across categories.
"""

import builtins
import functools
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..config import settings
from ..errors import DtypeDisabledError
from .immutable import Immutable

__all__ = [
    "bfloat16", "bool", "cdouble", "cfloat", "complex64", "complex128", "double", "dtype", "float", "float16",
    "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "half", "int", "int16",
    "int32", "int64", "int8", "long", "short", "uint16", "uint32", "uint64", "uint8",
]  # fmt: skip

dtype = np.dtype
bool: np.dtype[Any] = np.dtype("bool")
uint8: np.dtype[Any]
uint16: np.dtype[Any]
uint32: np.dtype[Any]
uint64: np.dtype[Any]
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
int8: np.dtype[Any]
int16: np.dtype[Any]
int32: np.dtype[Any]
int64: np.dtype[Any]
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
float16: np.dtype[Any]
float32: np.dtype[Any]
float64: np.dtype[Any]
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
complex64: np.dtype[Any]
complex128: np.dtype[Any]
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")
bfloat16: np.dtype[Any] = np.dtype(jnp.bfloat16)
float8_e4m3fn: np.dtype[Any]
float8_e5m2: np.dtype[Any]
float8_e4m3fn, float8_e5m2 = np.dtype(jnp.float8_e4m3fn), np.dtype(jnp.float8_e5m2)
float8_e4m3fnuz: np.dtype[Any]
float8_e5m2fnuz: np.dtype[Any]
float8_e4m3fnuz, float8_e5m2fnuz = np.dtype(jnp.float8_e4m3fnuz), np.dtype(jnp.float8_e5m2fnuz)
half: np.dtype[Any]
float: np.dtype[Any]
double: np.dtype[Any]
half, float, double = float16, float32, float64
short: np.dtype[Any]
int: np.dtype[Any]
long: np.dtype[Any]
short, int, long = int16, int32, int64
cfloat: np.dtype[Any]
cdouble: np.dtype[Any]
cfloat, cdouble = complex64, complex128

FLOATS = frozenset([float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz])
COMPLEX = frozenset([complex64, complex128])
INEXACT = FLOATS | COMPLEX
INEXACT_KINDS = "fcV"  # the kinds of these and of no other dtype here: a test that costs half as much (bfloat16's is V)
SIGNED = (int8, int16, int32, int64)
INTEGERS = frozenset([*SIGNED, uint8, uint16, uint32, uint64])
WIDE: Any = {float64: "float32", complex128: "complex64", int64: "int32", uint64: "uint32"}

TORCH_NAMES: dict[Any, str] = {
    float16: "Half", bfloat16: "BFloat16", float32: "Float", float64: "Double", complex64: "ComplexFloat",
    complex128: "ComplexDouble", bool: "Bool", uint8: "Byte", int8: "Char", int16: "Short", int32: "Int",
    int64: "Long", uint16: "UInt16", uint32: "UInt32", uint64: "UInt64",
}  # fmt: skip


class Wrapper(Immutable):
    """The base class of `xgrad.dtype` (dtype_object.py): an object around a dtype of NumPy's."""

    __slots__ = ("dtype",)
    dtype: np.dtype[Any]


def torch_name(d: np.dtype) -> str:
    """Return a dtype's name in PyTorch's errors: "Float", "Long"."""
    return TORCH_NAMES.get(np.dtype(d), np.dtype(d).name)


def x64_enabled() -> "builtins.bool":
    """Return True while JAX has 64-bit types."""
    # jax makes its options attributes at run time.
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def as_dtype(spec: Any) -> np.dtype:
    """Return the dtype of a dtype, a NumPy or JAX scalar type, a Python type or a name; 64 bits only while x64 is on.

    While JAX's x64 mode is off, a dtype of 32 bits takes the place of one of 64; for floats with a warning, or
    `DtypeDisabledError` is raised, as `xgrad.config.narrow` says.  Raises `TypeError` for other values.
    """
    found = named_dtype(spec)
    return _narrow(found) if found in WIDE and not x64_enabled() else found


def exact_dtype(spec: Any) -> np.dtype:
    """Return the dtype as `as_dtype` does, where another would change the meaning: raises `DtypeDisabledError`."""
    found = named_dtype(spec)
    if found in WIDE and not x64_enabled():
        raise _disabled(found)
    return found


def named_dtype(spec: Any) -> np.dtype:
    """Return the dtype that is asked for; of 64 bits, whether JAX has it or not."""
    if isinstance(spec, np.dtype):
        return spec
    if isinstance(spec, Wrapper):
        return spec.dtype
    if spec is builtins.float:  # PyTorch: float64
        return float64 if x64_enabled() else settings.default_dtype
    if spec is builtins.int:
        return default_integer()
    if spec is builtins.complex:
        return complex128 if x64_enabled() else complex_of(settings.default_dtype)
    try:
        return np.dtype(spec)
    except TypeError:
        raise TypeError(f"expected a dtype such as xgrad.float32, but got {spec!r}") from None


_SWITCH = "Enable it before the first array is made: jax.config.update('jax_enable_x64', True), or set JAX_ENABLE_X64=1"


def _disabled(d: np.dtype) -> DtypeDisabledError:
    return DtypeDisabledError(
        f"{d.name} was asked for, but JAX's 64-bit mode is off and would narrow it to {WIDE[d]}. {_SWITCH}; or ask for "
        f"xgrad.{WIDE[d]}."
    )


def _narrow(d: np.dtype) -> np.dtype:
    """Return the dtype of 32 bits that takes the place of `d`, as `xgrad.config.narrow` says."""
    if d in INEXACT and settings.narrow == "error":
        raise _disabled(d)
    if d in INEXACT and (settings.warn_always or not settings.narrowing_said):
        warnings.warn(
            f"{d.name} was asked for, but JAX's 64-bit mode is off: it becomes {WIDE[d]}, here and from now on. "
            f"{_SWITCH}; xgrad.config.narrow = 'error' raises an error instead.",
            stacklevel=users_frame(),
        )
        settings.narrowing_said = True  # not if the warning was raised as an error
    return np.dtype(WIDE[d])


def users_frame() -> "builtins.int":
    """Return the `stacklevel`, for a warning of the caller, of the innermost frame that is not xgrad's."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level


def default_integer() -> np.dtype:
    """Return int64 while x64 is on, else int32."""
    return int64 if x64_enabled() else int32


def widen(d: np.dtype) -> str:
    """Return an error's hint for an integer that does not fit into `d`."""
    return " (jax.config.update('jax_enable_x64', True) gives int64)" if d == int32 else ""


def narrowed(array: np.ndarray) -> np.ndarray:
    """Return an array that JAX can have: without x64, 64-bit numbers as 32-bit ones.

    Raises `OverflowError` for numbers that don't fit, and, if `xgrad.config.narrow` is "error", `DtypeDisabledError`
    for floats.
    """
    dtype = array.dtype
    if dtype.kind not in "biufcV" or dtype.itemsize > 16:
        raise TypeError(f"can't convert np.ndarray of type numpy.{dtype.name}: expected bools, integers or floats")
    if dtype not in WIDE or x64_enabled():
        return array
    small = _narrow(dtype)
    if small in INEXACT:
        with np.errstate(over="ignore"):
            result = array.astype(small)
        if np.isinf(result).any() and not np.array_equal(np.isinf(result), np.isinf(array)):
            raise OverflowError(_too_large("a number", dtype, small))
        return result
    info = np.iinfo(small)
    if array.size and not (info.min <= array.min() and array.max() <= info.max):
        raise OverflowError(_too_large("an integer", dtype, small))
    return array.astype(small)


def _too_large(what: str, dtype: np.dtype, small: np.dtype) -> str:
    return (
        f"Overflow: {what} of a NumPy array of {dtype.name} does not fit into {small.name}, and JAX's 64-bit mode is "
        "off: enable it with jax.config.update('jax_enable_x64', True)"
    )


def get_default_dtype() -> np.dtype:
    """Return the dtype of floating-point tensors made from Python numbers (float32 unless set)."""
    return settings.default_dtype


def complex_of(d: np.dtype) -> np.dtype:
    """Return the complex dtype whose parts have dtype `d`."""
    return complex128 if d in (float64, complex128) else complex64


def real_of(d: np.dtype) -> np.dtype:
    """Return the dtype of the parts of a complex dtype; a real one itself."""
    return float32 if d == complex64 else float64 if d == complex128 else d


def converted(x: Any, dtype: np.dtype) -> Any:
    """Cast an array.

    XLA takes the product with a bool that was cast for a choice, which gives 0 for NaN and infinity times False.
    """
    if x.dtype == np.bool_ and dtype in INEXACT:
        return jnp.where(x, jnp.ones((), dtype), jnp.zeros((), dtype))
    return x.astype(dtype)


def category(d: np.dtype) -> "builtins.int":
    """Return 0 for bool, 1 for integral, 2 for floating, 3 for complex."""
    return 3 if d in COMPLEX else 2 if d in FLOATS else 0 if d == bool else 1


@functools.cache
def promote_types(a: np.dtype, b: np.dtype) -> np.dtype:
    """Return the smallest dtype to which both convert, by PyTorch's table."""
    a, b = np.dtype(a), np.dtype(b)
    if a == b:
        return a
    ca, cb = category(a), category(b)
    if ca == 3 or cb == 3:
        wide = float64 if float64 in (real_of(a), real_of(b)) else float32
        return complex_of(wide)
    if ca != cb:
        return a if ca > cb else b
    if ca == 2:
        if {a, b} == {float16, bfloat16}:
            return float32
        if a.itemsize == b.itemsize:
            raise TypeError(f"promotion of {a.name} and {b.name} is not defined; convert one of them")
        return a if a.itemsize > b.itemsize else b
    unsigned = [d for d in (a, b) if d.kind == "u"]
    if len(unsigned) == 1 and unsigned[0] != uint8:
        raise TypeError(f"promotion of {a.name} and {b.name} is not defined; convert one of them")
    if len(unsigned) == 1:  # uint8 with a signed integer
        signed = a if a.kind == "i" else b
        return int16 if signed == int8 else signed
    return a if a.itemsize > b.itemsize else b


@functools.cache
def result_dtype(operands: tuple[tuple[np.dtype, "builtins.int"], ...], default: np.dtype) -> np.dtype:
    """Return the dtype of an operation on operands (dtype, priority).

    Priority 2 is a tensor with dimensions, 1 a 0-dim tensor, 0 a Python number (whose dtype is its category's).  A
    lower priority counts only if its category is higher; it then contributes its dtype, or `default` for a number.
    """
    result: np.dtype | None = None
    for priority in (2, 1, 0):
        here: np.dtype | None = None
        for d, p in operands:
            if p == priority:
                if p == 0:
                    d = _number_dtype(d, default)
                here = d if here is None else promote_types(here, d)
        if here is not None:
            if result is None:
                result = here
            elif category(here) > category(result):
                # A complex number with floats: their precision stays.
                result = complex_of(result) if category(here) == 3 and category(result) == 2 else here
    assert result is not None
    return result


def _number_dtype(d: np.dtype, default: np.dtype) -> np.dtype:
    kind = category(d)
    return (d, d, default, complex_of(default))[kind]


def set_default_dtype(d: Any) -> None:
    """Set the dtype of floating-point tensors made from Python numbers, and of integer true division.

    Raises `TypeError` if `d` is not a floating-point dtype.  After a change JAX compiles all programs again.

    >>> import xgrad
    >>> xgrad.set_default_dtype(xgrad.float32)
    """
    found = as_dtype(d)
    if found not in FLOATS:
        raise TypeError(f"only floating-point types are supported as the default type, got {found.name}")
    if found != settings.default_dtype:
        settings.default_dtype = found
        jax.clear_caches()  # kernels read the default when they are traced


def __dir__() -> list[str]:
    return sorted(__all__)
