"""Arithmetic: + - * / // % **, roots and fused products, as functions, methods and Python's operators.

What is saved is what PyTorch saves: sums save nothing, products their factors, roots and reciprocals their result.
`add`, `sub`, `div` and `pow` are each two operators under one name: the commonest form, two arrays and no option, which
takes the shortest call path, and the general one.  (PyTorch: BinaryOps.cpp, PointwiseOps.cpp, Pow.cpp.)
"""

from typing import Any

import jax
import jax.numpy as jnp

from .. import dtypes
from ..dtypes import as_dtype, category
from ..tensor import Tensor
from .call import call, call_inplace, call_out
from .pair import call_pair
from .promotion import as_float, check_broadcast, conj, promote_float, promote_together, require_floating, require_real
from .registry import Operator, composite, operator


def zero(grad: Any) -> Any:
    """The derivative of a function that is constant between its jumps."""
    return jnp.zeros_like(grad)


def _refuse_bool(x: Any, what: str, instead: str) -> None:
    if x.dtype == bool:
        raise RuntimeError(
            f"{what}, the `-` operator, with a bool tensor is not supported. Use the {instead} operator instead."
        )


def _run(op: Operator, args: tuple, out: Tensor | None, statics: tuple = ()) -> Tensor:
    if out is not None:
        return call_out(op, args, statics, out)
    return call(op, args, statics) if statics or len(args) != 2 else call_pair(op, *args)


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
    return self + (other if alpha is None else _scaled(other, alpha))


def _sub(self, other, alpha=None):
    self, other = promote_together(self, other)
    _refuse_bool(self, "Subtraction", "`^` or `logical_xor()`")
    return self - (other if alpha is None else _scaled(other, alpha))


@operator("add", function=False, dunder="__add__", rdunder="__radd__", idunder="__iadd__", inplace=True, pointwise=True)
def _plain_add(self, other):
    return _add(self, other)


@operator("sub", function=False, dunder="__sub__", rdunder="__rsub__", idunder="__isub__", inplace=True, pointwise=True)
def _plain_sub(self, other):
    return _sub(self, other)


_scaled_add, _scaled_sub = Operator("add", _add, pointwise=True), Operator("sub", _sub, pointwise=True)
_plain_add.derivative(self=lambda grad: grad, other=lambda grad: grad)
_plain_sub.derivative(self=lambda grad: grad, other=lambda grad: -grad)
_scaled_add.derivative(self=lambda grad: grad, other=lambda grad, alpha: grad * conj(alpha))
_scaled_sub.derivative(self=lambda grad: grad, other=lambda grad, alpha: -grad * conj(alpha))


def _plus_minus(name: str, plain: Operator, scaled: Operator, aliases: tuple, doc: str) -> Any:
    """The public forms, with PyTorch's `alpha`: a product, and a number to save, only where there is one."""

    def chosen(input: Any, other: Any, alpha: Any) -> tuple:
        if alpha.__class__ is int and alpha == 1:
            return plain, (input, other)
        return scaled, (input, other, alpha)

    def function(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
        return _run(*chosen(input, other, alpha), out)

    def written(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
        return call_inplace(*chosen(input, other, alpha), ())

    function.__name__, function.__doc__ = name, doc
    written.__name__, written.__doc__ = f"{name}_", f"In-place version of `xgrad.{name}`."
    composite(f"{name}_", function=False, aliases=tuple(f"{a}_" for a in aliases))(written)
    return composite(name, aliases=aliases)(function)


add = _plus_minus(
    "add", _plain_add.operator, _scaled_add, (),
    """input + alpha * other, broadcast.

    >>> import xgrad
    >>> xgrad.add(xgrad.tensor([1.0, 2.0]), 10, alpha=0.5)
    tensor([6., 7.])
    """,
)  # fmt: skip
sub = _plus_minus(
    "sub", _plain_sub.operator, _scaled_sub, ("subtract",),
    "input - alpha * other, broadcast.  Raises `RuntimeError` for bools.",
)  # fmt: skip


@composite(method=False)
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input, broadcast."""
    return sub(other, input, alpha=alpha)


@operator(inplace=True, aliases=("negative",), dunder="__neg__", pointwise=True)
def neg(self):
    """-input.  Raises `RuntimeError` for bools."""
    _refuse_bool(self, "Negation", "`~` or `logical_not()`")
    return -self


neg.derivative(self=lambda grad: -grad)


# -- products and quotients -------------------------------------------------------------------------------------------


@operator(
    inplace=True, aliases=("multiply",), dunder="__mul__", rdunder="__rmul__", idunder="__imul__", pointwise=True
)  # fmt: skip
def mul(self, other):
    """input * other, broadcast.

    >>> import xgrad
    >>> xgrad.mul(xgrad.tensor([1.0, 2.0]), 3)
    tensor([3., 6.])
    """
    self, other = promote_together(self, other)
    return self * other


mul.derivative(self=lambda grad, other: grad * conj(other), other=lambda grad, self: grad * conj(self))


@operator(
    "div", function=False, inplace=True, aliases=("divide",),
    dunder="__truediv__", rdunder="__rtruediv__", idunder="__itruediv__", pointwise=True,
)  # fmt: skip
def _div(self, other):
    check_broadcast(self, other)
    self, other = promote_float(self, other)
    return self / other


_div.derivative(
    self=lambda grad, other: grad / conj(other),
    other=lambda grad, self, other: -grad * conj((self / other) / other),
)


def _rounded_quotient(self, other, *, rounding_mode):
    self, other = promote_together(self, other)
    require_real(self, "div", allow_bool=False) if False else None
    return _floored(self, other) if rounding_mode == "floor" else _truncated(self, other)
