"""eq, lt, isclose, isnan, isin, logical_and, bitwise_or, ...: compare, test or combine elements, without a gradient.

An in-place form on a tensor with a history makes the gradient zero.  (PyTorch: TensorCompare.cpp, BinaryOps.cpp.)
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ...base import dtypes
from ...base.dtypes import torch_name
from ...dispatch.declare import composite, internal, operator
from ...dispatch.promotion import as_float, check_broadcast, promote, promote_together, require_real
from ...dispatch.samples import BINARY, BINARY_WHOLE, COMPLEX, REAL, WHOLE, real, sample, whole
from ...tensor import Tensor

# -- two arrays -------------------------------------------------------------------------------------------------------


def _comparison(name: str, compute: Callable, alias: str | None, ordered: bool, doc: str) -> None:
    def function(self, other):
        self, other = promote_together(self, other)
        if ordered and self.dtype in dtypes.COMPLEX:
            raise NotImplementedError(f"\"{name}\" not implemented for '{torch_name(self.dtype)}': they have no order")
        return compute(self, other)

    function.__doc__ = doc
    # Python itself reflects comparisons: 1 < x asks x > 1.
    aliases = () if alias is None else (alias,)
    operator(name, inplace=True, differentiable=False, aliases=aliases, dunder=f"__{name}__",
        samples=BINARY + COMPLEX * (not ordered),
    )(function)  # fmt: skip


_comparison("eq", jnp.equal, None, False, "Whether the elements are equal.")
_comparison("ne", jnp.not_equal, "not_equal", False, "Whether the elements differ.")
_comparison("lt", jnp.less, "less", True, "Whether input < other.")
_comparison("le", jnp.less_equal, "less_equal", True, "Whether input <= other.")
_comparison("gt", jnp.greater, "greater", True, "Whether input > other.")
_comparison("ge", jnp.greater_equal, "greater_equal", True, "Whether input >= other.")


def _check_tolerances(args: tuple, statics: tuple) -> None:
    for name, tolerance in zip(("rtol", "atol"), args[2:], strict=True):
        if isinstance(tolerance, (int, float)) and tolerance < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {tolerance}")


@operator(
    signature="input, other, rtol=1e-05, atol=1e-08, equal_nan=False", differentiable=False, out=False,
    check=_check_tolerances, samples=BINARY[:4] + COMPLEX,
)  # fmt: skip
def isclose(self, other, rtol=1e-5, atol=1e-8, *, equal_nan=False):
    """True where |input - other| <= atol + rtol * |other|; NaN is close to NaN only with `equal_nan`.

    Raises `RuntimeError` for different dtypes and for negative tolerances.
    """
    if self.dtype != other.dtype:
        raise RuntimeError(
            f"{torch_name(self.dtype)} did not match {torch_name(other.dtype)}: isclose compares tensors of one dtype"
        )
    check_broadcast(self, other)
    same = self == other
    self, other = as_float(self), as_float(other)
    if equal_nan:
        same |= jnp.isnan(self) & jnp.isnan(other)
    difference = jnp.abs(self - other)
    return same | (jnp.isfinite(difference) & (difference <= atol + jnp.abs(rtol * other)))


@internal(
    "_all_close",
    differentiable=False,
    check=_check_tolerances,
    samples=tuple([sample(real(n, 3), real(3), 0.5, 0.5, equal_nan=n > 0) for n in (2, 0)]) + COMPLEX,
)
def _all_close(self, other, rtol, atol, *, equal_nan):
    return jnp.all(isclose(self, other, rtol, atol, equal_nan=equal_nan))


@composite
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """True if all elements are close, as a Python bool; see `isclose`.

    >>> import xgrad
    >>> xgrad.allclose(xgrad.tensor([1.0]), xgrad.tensor([1.0 + 1e-7]))
    True
    """
    return bool(_all_close.function(input, other, rtol, atol, equal_nan))


@internal("_all_equal", differentiable=False, samples=BINARY[:4] + COMPLEX)
def _all_equal(self, other):
    return jnp.all(jnp.equal(*promote_together(self, other)))


@composite
def equal(input: Tensor, other: Tensor) -> bool:
    """True if shapes and all elements are equal, as a Python bool."""
    return input.shape == other.shape and bool(_all_equal.function(input, other))


@operator(
    method=False, differentiable=False,
    signature="elements, test_elements, *, assume_unique=False, invert=False",
    samples=(sample(whole(-3, 4, 2, 3), whole(0, 3, 3)), sample(real(2, 3), real(3), invert=True)),
)  # fmt: skip
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """True for each of `elements` that is among `test_elements` (with `invert`: that is not)."""
    elements, test_elements = promote(elements, test_elements)
    return jnp.isin(elements, test_elements, assume_unique=assume_unique, invert=invert)


# -- tests of values --------------------------------------------------------------------------------------------------


def _test(name: str, compute: Callable, doc: str, samples: tuple = REAL + COMPLEX, **options: Any) -> None:
    def function(self):
        return compute(self)

    function.__doc__ = doc
    operator(name, differentiable=False, samples=samples, **options)(function)


def _refused_if_complex(name: str, compute: Callable) -> Callable:
    def function(x: Any) -> Any:
        if x.dtype in dtypes.COMPLEX:
            raise RuntimeError(f"{name} does not support complex inputs.")
        return compute(x)

    return function


_test("isnan", jnp.isnan, "Whether the elements are NaN.", out=False)
_test("isinf", jnp.isinf, "Whether the elements are infinite.", out=False)
_test("isfinite", jnp.isfinite, "Whether the elements are neither NaN nor infinite.", out=False)
_test("isreal", jnp.isreal, "Whether the imaginary part is 0.", out=False)
_test("isposinf", _refused_if_complex("isposinf", lambda x: x == jnp.inf), "Whether the elements are +inf.", REAL)
_test("isneginf", _refused_if_complex("isneginf", lambda x: x == -jnp.inf), "Whether the elements are -inf.", REAL)


# -- logic and bits ---------------------------------------------------------------------------------------------------


def _logic(name: str, compute: Callable, doc: str) -> None:
    def function(self, other):
        check_broadcast(self, other)
        return compute(jnp.asarray(self) != 0, jnp.asarray(other) != 0)

    function.__doc__ = doc
    operator(name, inplace=True, differentiable=False, samples=BINARY + BINARY_WHOLE + COMPLEX)(function)


_logic("logical_and", jnp.logical_and, "Whether both elements are true; all but 0 is true.")
_logic("logical_or", jnp.logical_or, "Whether one of the elements is true; all but 0 is true.")
_logic("logical_xor", jnp.logical_xor, "Whether exactly one of the elements is true; all but 0 is true.")


@operator(inplace=True, differentiable=False, samples=REAL + WHOLE + COMPLEX)
def logical_not(self):
    """True where the element is 0."""
    return self == 0


def _refuse_inexact(x: Any, name: str) -> None:
    if x.dtype in dtypes.INEXACT:
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{torch_name(x.dtype)}': only integers and bools have bits"
        )


def _bitwise(name: str, compute: Callable, dunder: str, doc: str) -> None:
    def function(self, other):
        self, other = promote_together(self, other)
        _refuse_inexact(self, name)
        return compute(self, other)

    function.__doc__ = doc
    operator(
        name, inplace=True, differentiable=False,
        dunder=f"__{dunder}__", rdunder=f"__r{dunder}__", idunder=f"__i{dunder}__",
        samples=BINARY_WHOLE,
    )(function)  # fmt: skip


def _shifted(compute: Callable, beyond: Callable) -> Callable:
    """Make a shift that is defined for any distance: below 0 and from the number of bits on it gives the limit."""

    def function(x: Any, by: Any) -> Any:
        require_real(x, compute.__name__)
        bits = x.dtype.itemsize * 8
        outside = (by < 0) | (by >= bits)
        return jnp.where(outside, beyond(x), compute(x, jnp.where(outside, 0, by)))

    return function


_left = _shifted(jnp.left_shift, jnp.zeros_like)
_right = _shifted(jnp.right_shift, lambda x: jnp.where(x < 0, -1, 0).astype(x.dtype))
_bitwise("bitwise_and", jnp.bitwise_and, "and", "The bits set in both integers; of bools, logical and.")
_bitwise("bitwise_or", jnp.bitwise_or, "or", "The bits set in one of the integers; of bools, logical or.")
_bitwise("bitwise_xor", jnp.bitwise_xor, "xor", "The bits set in exactly one of the integers; of bools, logical xor.")
_bitwise("bitwise_left_shift", _left, "lshift", "The bits of `input`, `other` places to the left.")
_bitwise("bitwise_right_shift", _right, "rshift", "The bits of `input`, `other` places to the right; the sign stays.")


@operator(inplace=True, differentiable=False, samples=WHOLE)
def bitwise_not(self):
    """The bits of the integers inverted; of bools, logical not."""
    _refuse_inexact(self, "bitwise_not")
    return jnp.invert(self)


@composite("__invert__", function=False)
def _invert(input: Tensor) -> Tensor:
    if input.dtype in dtypes.INEXACT:
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors, "
            f"not {torch_name(input._dtype)}"
        )
    return bitwise_not.function(input)
