"""conj, real, imag, view_as_real, ...: operators that view complex tensors; resolve_conj, ...: that copy such views.

PyTorch marks conjugation and negation by bits of a tensor; here each is a step in a view's list (views/chain.py).
"""

from typing import Any

import jax.numpy as jnp

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite, internal
from ...dispatch.inplace import call_inplace
from ...dispatch.out import write_out
from ...dispatch.ruled_views import aliased
from ...dispatch.samples import COMPLEX, REAL
from ...dispatch.tables import METHODS
from ...dispatch.view import view
from ...tensor import Tensor
from ...views.value_ops import Conj, Neg


@composite
def view_as_real(input: Tensor) -> Tensor:
    """A complex tensor as a real one with a last dimension of size 2, as a view."""
    return view(input, ("view_as_real",), "ViewAsRealBackward0")


@composite
def view_as_complex(input: Tensor) -> Tensor:
    """A real tensor whose last dimension has size 2 as a complex one, as a view."""
    return view(input, ("view_as_complex",), "ViewAsComplexBackward0")


@composite(method=False)
def real(input: Tensor) -> Tensor:
    """The real part, as a view; a real tensor itself."""
    return view(input, ("real",), "SelectBackward0") if input.dtype in dtypes.COMPLEX else input


@composite(method=False)
def imag(input: Tensor) -> Tensor:
    """The imaginary part of a complex tensor, as a view."""
    return view(input, ("imag",), "SelectBackward0")


def _write_part(part: Any) -> Any:
    def write(self: Tensor, value: Any) -> None:
        aliased(part, self).copy_(value)

    return write


METHODS["real"] = property(real, _write_part(real))
METHODS["imag"] = property(imag, _write_part(imag))


@composite(aliases=("_conj",), method_aliases=("_conj",))
def conj(input: Tensor) -> Tensor:
    """The complex conjugate, as a view; a real tensor itself."""
    return view(input, ("conj",), "ConjBackward0") if input.dtype in dtypes.COMPLEX else input


@composite(method_aliases=("_neg_view",))
def _neg_view(input: Tensor) -> Tensor:
    """The negative, as a view for which `is_neg()` is True."""
    if input.dtype == dtypes.bool:
        raise RuntimeError("_neg_view: negation of a bool tensor is not supported: use ~ or logical_not()")
    return view(input, ("neg_view",), "NegViewBackward0")


def _has_step(self: Tensor, kind: type) -> bool:
    return self._chain is not None and any(isinstance(step, kind) for step in self._chain.steps)


@composite
def is_conj(input: Tensor) -> bool:
    """True if the tensor is a conjugate view.  (PyTorch has a bit for it; here it is a step of the view chain.)"""
    return _has_step(input, Conj)


@composite
def is_neg(input: Tensor) -> bool:
    """True if the tensor is a negative view."""
    return _has_step(input, Neg)


@composite
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself, or a copy of a conjugate view."""
    return input.clone() if is_conj(input) else input


@composite
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself, or a copy of a negative view."""
    return input.clone() if is_neg(input) else input


@internal("conj_physical", samples=REAL + COMPLEX)
def _conj_physical(self):
    return jnp.conj(self)


_conj_physical.derivative(self=lambda grad: jnp.conj(grad))


@composite
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex conjugate, as a copy; a real tensor itself."""
    result = call(_conj_physical.operator, (input,), ()) if input.dtype in dtypes.COMPLEX else input
    return result if out is None else write_out("conj_physical", result, out)


@composite("conj_physical_")
def conj_physical_(input: Tensor) -> Tensor:
    """In-place version of `conj_physical`."""
    return call_inplace(_conj_physical.operator, (input,), ()) if input.dtype in dtypes.COMPLEX else input
