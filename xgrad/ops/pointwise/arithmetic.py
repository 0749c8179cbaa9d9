"""Arithmetic operators: + - * / // % and fused products, as functions, methods and Python's operators.

The operators save what PyTorch's save: sums nothing, products their factors.  `add`, `sub` and `div` are each two
operators under one name: one for the commonest form, two arrays and no option, which has the shortest call path, and
one for all others.  (PyTorch: BinaryOps.cpp, PointwiseOps.cpp.)
"""

from functools import partial
from operator import mul as times
from operator import truediv as over
from typing import Any

import jax
import jax.numpy as jnp

from ...base import dtypes
from ...base.dtypes import category
from ...dispatch.argument_names import MISSING, renamed, without_numpys
from ...dispatch.call import call
from ...dispatch.call_pair import call_pair
from ...dispatch.declare import composite, operator, variant
from ...dispatch.error_names import name_error
from ...dispatch.inplace import call_inplace
from ...dispatch.operator import Operator
from ...dispatch.out import call_out
from ...dispatch.promotion import (
    check_broadcast,
    conj,
    promote_float,
    promote_together,
    refuse_bool,
    require_floating,
    require_real,
    scalar,
)
from ...dispatch.samples import BINARY, COMPLEX, REAL, TERNARY, between, positive, real, sample
from ...dispatch.tables import METHODS
from ...tensor import Tensor
from . import bits
from .ends import beside_one, over_twice, quotient


def zero(grad: Any) -> Any:
    """Return zeros: the derivative of a function that is constant between its jumps."""
    return jnp.zeros_like(grad)


def run(op: Operator, args: tuple[Any, ...], out: Tensor | None, statics: tuple[Any, ...] = ()) -> Tensor:
    """Call an operator as its function form does: with `out=` if there is one, else by the shortest path."""
    try:
        if out is not None:
            return call_out(op, args, statics, out)
        return call(op, args, statics) if statics or len(args) != 2 else call_pair(op, *args)
    except Exception as error:
        name_error(error)
        raise


# -- sums -------------------------------------------------------------------------------------------------------------


def _scaled(other: Any, alpha: Any) -> Any:
    """`alpha` times `other`, in the dtype to which `other` was promoted."""
    kind, of_alpha = category(other.dtype), category(jnp.asarray(alpha).dtype)
    if of_alpha == 0 and kind:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if of_alpha >= 2 and kind < 2:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if of_alpha == 3 and kind < 3:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    return other * jnp.asarray(alpha).astype(other.dtype)


def _add(self, other, alpha=None):
    self, other = promote_together(self, other)
    return beside_one(jnp.add, self, other if alpha is None else _scaled(other, alpha))


def _sub(self, other, alpha=None):
    refuse_bool("Subtraction", jnp.asarray(self), jnp.asarray(other))
    self, other = promote_together(self, other)
    return beside_one(jnp.subtract, self, other if alpha is None else _scaled(other, alpha))


_plain: Any = partial(operator, function=False, inplace=True, pointwise=True, samples=BINARY + COMPLEX)


@_plain("add", dunder="__add__", rdunder="__radd__", idunder="__iadd__")
def _plain_add(self, other):
    return _add(self, other)


@_plain("sub", dunder="__sub__", rdunder="__rsub__", idunder="__isub__")
def _plain_sub(self, other):
    return _sub(self, other)


_SCALED = (sample(real(2, 3), real(3), 1.5), sample(real(), real(), 2.0)) + COMPLEX
_scaled_add = variant("add", _add, pointwise=True, samples=_SCALED)
_scaled_sub = variant("sub", _sub, pointwise=True, samples=_SCALED)
_plain_add.derivative(self=lambda grad: grad, other=lambda grad: grad)
_plain_sub.derivative(self=lambda grad: grad, other=lambda grad: -grad)
_scaled_add.derivative(self=lambda grad: grad, other=lambda grad, alpha: grad * conj(alpha))
_scaled_sub.derivative(self=lambda grad: grad, other=lambda grad, alpha: -grad * conj(alpha))


def _plus_minus(name: str, plain: Operator, scaled: Operator, aliases: tuple, doc: str) -> Any:
    """Declare the public forms with PyTorch's `alpha`.  There is a product, and a number to save, unless it is 1."""

    def chosen(input: Any, other: Any, alpha: Any) -> tuple[Operator, tuple]:
        if alpha.__class__ is int and alpha == 1:
            return plain, (input, other)
        return scaled, (input, other, alpha)

    # The names that are None are NumPy's, as in the functions that declare.py makes.
    def function(
        input: Any = MISSING, other: Any = MISSING, x: Any = None, a: Any = None, x1: Any = None, x2: Any = None, *,
        alpha: Any = 1, out: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if other is MISSING or x is not None or a is not None or x1 is not None or x2 is not None:
            return renamed(function, dict(input=input, other=other, x=x, a=a, x1=x1, x2=x2, alpha=alpha, out=out))
        return run(*chosen(input, other, alpha), out)

    def written(
        input: Any = MISSING, other: Any = MISSING, x: Any = None, a: Any = None, x1: Any = None, x2: Any = None, *,
        alpha: Any = 1,
    ) -> Tensor:  # fmt: skip
        if other is MISSING or x is not None or a is not None or x1 is not None or x2 is not None:
            return renamed(written, dict(input=input, other=other, x=x, a=a, x1=x1, x2=x2, alpha=alpha))
        return call_inplace(*chosen(input, other, alpha), ())

    function.__name__ = function.__qualname__ = name
    for form in (function, written):
        form.__signature__ = without_numpys(form)
    written.__name__ = written.__qualname__ = f"{name}_"
    function.__doc__, written.__doc__ = doc, f"In-place version of `xgrad.{name}`."
    composite(f"{name}_", function=False, aliases=tuple(f"{a}_" for a in aliases))(written)
    return composite(name, aliases=aliases)(function)


add: Any = _plus_minus(
    "add", _plain_add.operator, _scaled_add, (),
    """input + alpha * other, broadcast.

    >>> import xgrad
    >>> xgrad.add(xgrad.tensor([1.0, 2.0]), 10, alpha=0.5)
    tensor([6., 7.])
    """,
)  # fmt: skip
sub: Any = _plus_minus(
    "sub", _plain_sub.operator, _scaled_sub, ("subtract",),
    "input - alpha * other, broadcast.  Raises `RuntimeError` for bools.",
)  # fmt: skip


@composite(method=False)
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input, broadcast."""
    return sub(other, input, alpha=alpha)


@operator(inplace=True, aliases=("negative",), dunder="__neg__", pointwise=True, samples=REAL + COMPLEX)
def neg(self):
    """-input.  Raises `RuntimeError` for bools."""
    refuse_bool("Negation", self)
    return -self


neg.derivative(self=lambda grad: -grad)


# -- products and quotients -------------------------------------------------------------------------------------------


@operator(
    inplace=True, aliases=("multiply",), dunder="__mul__", rdunder="__rmul__", idunder="__imul__", pointwise=True,
    samples=BINARY + COMPLEX,
)  # fmt: skip
def mul(self, other):
    """input * other, broadcast.

    >>> import xgrad
    >>> xgrad.mul(xgrad.tensor([1.0, 2.0]), 3)
    tensor([3., 6.])
    """
    return _beside_number(jnp.multiply, self, other, *promote_together(self, other))


def _beside_number(compute: Any, a: Any, b: Any, *promoted: Any) -> Any:
    """Compute a product or quotient in the operands' common dtype.

    In half precision a number, or a 0-dim tensor of a wider dtype, keeps its own: 1e5 does not fit into float16, and
    the product of 0.1 with it does.  (PyTorch: opmath_t in BinaryOpsKernel.cpp.)
    """
    promoted = promoted or (a, b)
    dtype = promoted[0].dtype
    if dtype in (dtypes.float16, dtypes.bfloat16):
        kept = [jnp.ndim(x) == 0 and jnp.asarray(x).dtype != dtype for x in (a, b)]
        if any(kept):
            wide = [jnp.asarray(x if k else p).astype(jnp.float32) for x, k, p in zip((a, b), kept, promoted)]
            return compute(*wide).astype(dtype)
    return beside_one(compute, *promoted)


def _scale_gradient(compute: Any, grad: Any, number: Any) -> Any:
    """Apply `_beside_number` to a gradient; a sparse Tensor has operators of its own for it."""
    if isinstance(grad, Tensor):
        return compute(grad, number)
    return _beside_number(quotient if compute is over else compute, grad, number)


mul.derivative(
    self=lambda grad, other: _scale_gradient(times, grad, conj(other)),
    other=lambda grad, self: _scale_gradient(times, grad, conj(self)),
)


@_plain("div", aliases=("divide",), dunder="__truediv__", rdunder="__rtruediv__", idunder="__itruediv__")
def _div(self, other):
    check_broadcast(self, other)
    return _beside_number(quotient, self, other, *promote_float(self, other))


_div.derivative(
    self=lambda grad, other: _scale_gradient(over, grad, conj(other)),
    other=lambda grad, self, other: -grad * conj(_beside_number(over_twice, self, other)),
)


def _floored(a: Any, b: Any) -> Any:
    """floor(a / b), corrected for the rounding of the quotient (Python's float_divmod, as in c10::div_floor_floating).

    Where b is 0 it is the quotient itself, infinite or NaN; a zero has the sign of the quotient.
    """
    if a.dtype not in dtypes.INEXACT:
        return jnp.floor_divide(a, b)
    rest = jnp.fmod(a, b)
    exact = (a - rest) / b - ((rest != 0) & ((b < 0) != (rest < 0)))
    floor = jnp.floor(exact)
    floor = jnp.where(exact == 0, bits.copysign(0, a / b), floor + (exact - floor > 0.5)).astype(a.dtype)
    return jnp.where(b == 0, a / b, floor)


def _truncated(a: Any, b: Any) -> Any:
    return jnp.trunc(quotient(a, b)) if a.dtype in dtypes.INEXACT else jax.lax.div(*jnp.broadcast_arrays(a, b))


def _rounded_quotient(compute: Any, a: Any, b: Any) -> Any:
    """Compute a rounded quotient; of a half-precision array by one number in float32, with the number as it is.

    (PyTorch: opmath_t in div_floor_kernel and div_trunc_kernel of BinaryOpsKernel.cpp.)
    """
    number = jnp.asarray(b)
    a, b = promote_together(a, b)
    require_real(a, "div")
    if a.dtype in (dtypes.float16, dtypes.bfloat16) and jnp.size(number) == 1:
        return compute(a.astype(jnp.float32), number.astype(jnp.float32)).astype(a.dtype)
    return compute(a, b)


def _rounded_div(self, other, *, rounding_mode):
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found {rounding_mode!r}"
        )
    # Its tangent is 0, also where other is 0.
    return jax.lax.stop_gradient(_rounded_quotient(_floored if rounding_mode == "floor" else _truncated, self, other))


_rounded = variant(
    "div",
    _rounded_div,
    pointwise=True,
    samples=tuple([sample(real(2, 3), positive(3), rounding_mode=m) for m in ("floor", "trunc")]),
)
_rounded.derivative(self=zero, other=zero)


for _form in ("", "r", "i"):  # PyTorch kept Python 2's names
    METHODS[f"__{_form}div__"] = METHODS[f"__{_form}truediv__"]


@composite(aliases=("divide",))
def div(input: Any, other: Any, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """input / other, broadcast; integers are divided as floats unless `rounding_mode` is "trunc" or "floor".

    >>> import xgrad
    >>> xgrad.div(xgrad.tensor([-7, 7]), 2, rounding_mode="floor")
    tensor([-4,  3])
    """
    if rounding_mode is None:
        return run(_div.operator, (input, other), out)
    return run(_rounded, (input, other), out, (rounding_mode,))


@composite("div_", function=False, aliases=("divide_",))
def _div_inplace(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """In-place version of `xgrad.div`."""
    if rounding_mode is None:
        return call_inplace(_div.operator, (input, other), ())
    return call_inplace(_rounded, (input, other), (rounding_mode,))


@composite
def true_divide(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """input / other, broadcast; integers are divided as floats."""
    return run(_div.operator, (input, other), out)


@composite("true_divide_", function=False)
def _true_divide_inplace(input: Tensor, other: Any) -> Tensor:
    """In-place version of `xgrad.true_divide`."""
    return call_inplace(_div.operator, (input, other), ())


@operator(
    inplace=True, dunder="__floordiv__", rdunder="__rfloordiv__", idunder="__ifloordiv__",
    node="torch::autograd::NotImplemented", missing="aten::floor_divide",
    samples=BINARY,
)  # fmt: skip
def floor_divide(self, other):
    """floor(input / other), broadcast.  Its backward is an error; `div(rounding_mode="floor")` has a gradient of zeros.

    Division of an integer by 0 is not an error, which only the values could show; its quotient and remainder are
    undefined.
    """
    return _rounded_quotient(_floored, self, other)


_REMAINDERS = tuple(  # between two jumps
    [sample(between(-2.3, -2.1, *shape), between(0.8, 0.9, *shape[-1:])) for shape in ((2, 3), (), (0, 3))]
)


@operator(inplace=True, dunder="__mod__", rdunder="__rmod__", idunder="__imod__", samples=_REMAINDERS)
def remainder(self, other):
    """The remainder of input / other, with the sign of `other` (Python's %)."""
    self, other = promote_together(self, other)
    require_real(self, "remainder")
    return jnp.remainder(self, other)


@operator(inplace=True, samples=_REMAINDERS)
def fmod(self, other):
    """The remainder of input / other, with the sign of `input` (C's fmod)."""
    self, other = promote_together(self, other)
    require_real(self, "fmod")
    return jnp.fmod(self, other)


# The rounded quotients are constant between their jumps, for second derivatives too.
def _times_rounded(compute: Any) -> Any:
    return lambda grad, self, other: -grad * jax.lax.stop_gradient(compute(*promote_together(self, other)))


remainder.derivative(self=lambda grad: grad, other=_times_rounded(_floored))
fmod.derivative(self=lambda grad: grad, other=_times_rounded(_truncated))


# -- fused products ---------------------------------------------------------------------------------------------------


@operator(
    inplace=True,
    signature="input, tensor1, tensor2, *, value=1",
    samples=(*TERNARY, sample(real(2, 3), real(3), real(3), 2.5)) + COMPLEX,
)
def addcmul(self, tensor1, tensor2, value=1):
    """input + value * tensor1 * tensor2, broadcast."""
    self, tensor1, tensor2 = promote_together(self, tensor1, tensor2)
    return self + _scaled(tensor1 * tensor2, value)


@operator(
    inplace=True,
    signature="input, tensor1, tensor2, *, value=1",
    samples=(*TERNARY, sample(real(2, 3), real(3), real(3), 2.5)) + COMPLEX,
)
def addcdiv(self, tensor1, tensor2, value=1):
    """input + value * tensor1 / tensor2, broadcast.  Raises `RuntimeError` if both are integers."""
    if category(tensor1.dtype) < 2 and category(tensor2.dtype) < 2:
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported: divide with xgrad.div, which has a rounding_mode, "
            "and add the quotient, or convert tensor1 or tensor2 to a floating-point dtype."
        )
    self, tensor1, tensor2 = promote_together(self, tensor1, tensor2)
    return self + _scaled(quotient(tensor1, tensor2), value)


@operator(inplace=True, signature="input, end, weight", samples=(*TERNARY, sample(real(2, 3), real(3), 0.25)) + COMPLEX)
def lerp(self, end, weight):
    """input + weight * (end - input), broadcast.  Raises `RuntimeError` unless all tensors have one dtype."""
    for name, x in (("end", end), ("weight", weight)):
        if x.dtype != self.dtype and not getattr(x, "weak_type", False):
            raise RuntimeError(f"expected dtype {self.dtype.name} for `{name}` but got dtype {x.dtype.name}")
    require_floating(self, "lerp")
    check_broadcast(self, end, weight)
    if getattr(weight, "weak_type", True):
        scalar(self, weight, "weight")  # raises for a complex number
    # From the nearer end, so that weight 1 gives `end` exactly.
    near = jnp.abs(weight) < 0.5
    return jnp.where(near, self + weight * (end - self), end - (end - self) * (1 - weight))


addcmul.derivative(
    self=lambda grad: grad,
    tensor1=lambda grad, tensor2, value: grad * conj(tensor2 * value),
    tensor2=lambda grad, tensor1, value: grad * conj(tensor1 * value),
)
addcdiv.derivative(
    self=lambda grad: grad,
    tensor1=lambda grad, tensor2, value: grad * conj(quotient(value, tensor2)),
    tensor2=lambda grad, tensor1, tensor2, value: -grad * conj(over_twice(value * tensor1, tensor2)),
)
lerp.derivative(
    self=lambda grad, weight: grad * conj(1 - weight),
    end=lambda grad, weight: grad * conj(weight),
    weight=lambda grad, self, end: grad * conj(end - self),
)
