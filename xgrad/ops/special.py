"""Functions of torch.special that torch itself has under no other name, and the incomplete gamma functions.

All are `jax.scipy.special`'s; PyTorch's names, and its derivatives where jax's differ (PyTorch: torch/special).
"""

import math
from typing import Any

import jax.numpy as jnp
from jax.scipy import special as js

from .pointwise import unary
from .promotion import check_broadcast, promote_float, promote_together, require_floating
from .registry import FUNCTIONS, operator

_UNARY = {
    "entr": (js.entr, "-input * log(input); 0 at 0 and -inf of negative numbers."),
    "i0e": (js.i0e, "exp(-|input|) times the modified Bessel function of the first kind, of order 0."),
    "i1": (js.i1, "The modified Bessel function of the first kind, of order 1."),
    "i1e": (js.i1e, "exp(-|input|) times the modified Bessel function of the first kind, of order 1."),
    "log_ndtr": (js.log_ndtr, "The logarithm of the normal distribution function."),
    "ndtr": (js.ndtr, "The normal distribution function."),
    "ndtri": (js.ndtri, "The inverse of the normal distribution function."),
    "spherical_bessel_j0": (lambda x: jnp.sinc(x / math.pi), "The spherical Bessel function sin(x) / x, of order 0."),
}
if hasattr(js, "erfcx"):  # jax 0.7.2 has none
    _UNARY["erfcx"] = (js.erfcx, "exp(input**2) * erfc(input), without overflow.")

_declared = {
    name: unary(f"special_{name}", compute, doc, namespace="special", method=False)
    for name, (compute, doc) in _UNARY.items()
}
# jax differentiates |x| as 1 at 0, which is wrong there for i0e, and for the second derivative of i1.
_declared["i0e"].derivative(self=lambda grad, self, result: grad * (js.i1e(self) - jnp.sign(self) * result))
_declared["i1"].derivative(self=lambda grad, self, result: grad * _i1_slope(self, result))


def _i1_slope(x: Any, result: Any) -> Any:
    origin = x == 0
    x = jnp.where(origin, 1, x)
    return jnp.where(origin, 0.5, js.i0(x) - result / x)


@operator("special_xlog1py", namespace="special", method=False)
def xlog1py(self, other):
    """input * log1p(other); 0 where `input` is 0 and `other` is not NaN."""
    check_broadcast(self, other)
    return js.xlog1py(*promote_float(self, other))


@operator("special_zeta", namespace="special", method=False)
def zeta(self, other):
    """The Hurwitz zeta function of `input` at `other`."""
    check_broadcast(self, other)
    return js.zeta(*promote_float(self, other))


def _incomplete(name: str, compute: Any, alias: str, doc: str) -> None:
    def function(self, other):
        self, other = promote_together(self, other)
        require_floating(self, name)
        return compute(self, other)

    function.__doc__ = doc
    operator(name, inplace=True)(function)
    FUNCTIONS.setdefault("special", {})[alias] = FUNCTIONS[""][name]


_incomplete("igamma", js.gammainc, "gammainc", "The regularized lower incomplete gamma function P(input, other).")
_incomplete("igammac", js.gammaincc, "gammaincc", "The regularized upper incomplete gamma function Q(input, other).")
