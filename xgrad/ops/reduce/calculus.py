"""gradient, trapezoid, cumulative_trapezoid: approximate derivatives by differences, and integrals by sums.

(PyTorch: aten/src/ATen/native/Integration.cpp, and gradient of ReduceOps.cpp; `diff` is with the scans.)
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.lax import slice_in_dim

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite, internal, operator
from ...dispatch.promotion import check_broadcast, promote_float, wrap_dims
from ...dispatch.samples import COMPLEX, real, sample
from ...tensor import Tensor
from ...views.named.arguments import own_dim

# -- integrals --------------------------------------------------------------------------------------------------------


def _panels(y: Any, x: Any, dx: Any, dim: int, name: str) -> Any:
    """The areas between neighbours along `dim`."""
    n = y.shape[dim]
    if dtypes.bool in (y.dtype, getattr(x, "dtype", None)):
        raise RuntimeError(f"{name}: received a bool input for `x` or `y`, but bool is not supported")
    if x is None:
        width = dx
    else:
        if x.ndim == 1:
            if x.shape[0] != n:
                raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
            x = x.reshape([-1 if d == dim else 1 for d in range(y.ndim)])
        elif x.ndim < y.ndim:
            x = x.reshape((1,) * (y.ndim - x.ndim) + x.shape)
        width = jnp.diff(x, axis=dim)
    left, right = slice_in_dim(y, 0, max(n - 1, 0), axis=dim), slice_in_dim(y, min(1, n), n, axis=dim)
    check_broadcast(left, width)
    both, width = promote_float(left + right, width)
    return both * width / 2


def _integral(name: str, doc: str, combine: Any, aliases: tuple = ()) -> None:
    @operator(
        name,
        function=False,
        method=False,
        samples=(sample(real(2, 4), real(4)), sample(real(2, 4), None, 0.5, dim=0)) + COMPLEX,
    )
    def run(y, x=None, dx=None, *, dim=-1):
        dim = own_dim(dim, y.ndim)
        if name == "trapezoid" and not y.shape[dim]:
            return jnp.sum(y, axis=dim, dtype=y.dtype)
        return combine(_panels(y, x, dx, dim, name), dim)

    def public(y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1) -> Tensor:
        if x is not None and dx is not None:
            raise TypeError(f"{name}(): give the places x or the distance dx, not both")
        if isinstance(dx, (bool, complex)):
            raise RuntimeError(f"{name}: Currently, we only support dx as a real number.")
        return call(run.operator, (y, x, 1 if x is None and dx is None else dx), (dim,))

    public.__name__ = public.__qualname__ = name
    public.__doc__ = doc
    composite(name, method=False, aliases=aliases)(public)


_integral(
    "trapezoid",
    """The integral of samples `y` along `dim` by the trapezoidal rule: at the places `x`, or `dx` (1) apart.

    >>> import xgrad
    >>> xgrad.trapezoid(xgrad.tensor([1.0, 2.0, 4.0]))
    tensor(4.5000)
    """,
    lambda panels, dim: jnp.sum(panels, axis=dim),
    ("trapz",),
)
_integral(
    "cumulative_trapezoid",
    "The running integral of samples `y` along `dim` by the trapezoidal rule, one shorter than `y`.",
    lambda panels, dim: jnp.cumsum(panels, axis=dim),
)


# -- the derivative of samples ----------------------------------------------------------------------------------------


@internal(
    "gradient",
    node="GradientBackward0",
    samples=(sample(real(2, 4), 0.5, dim=1, edge_order=1), sample(real(2, 4), real(4), dim=1, edge_order=2)) + COMPLEX,
)
def _slope(self, spacing, *, dim, edge_order):
    """Differences along `dim`, central inside and one-sided at the ends; `spacing`: one distance, or the places."""
    if self.dtype == dtypes.bool:
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported.")
    if self.dtype == dtypes.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    f = jnp.moveaxis(promote_float(self)[0], dim, -1)
    n = f.shape[-1]
    if spacing.ndim:
        (h,) = promote_float(jnp.diff(spacing))
    else:
        h = jnp.broadcast_to(spacing.astype(f.dtype), (n - 1,))
    step = jnp.diff(f, axis=-1) / h
    if spacing.ndim:
        inside = (step[..., 1:] * h[:-1] + step[..., :-1] * h[1:]) / (h[:-1] + h[1:])
    else:
        inside = (f[..., 2:] - f[..., :-2]) / (2 * h[1:])
    first, last = step[..., :1], step[..., -1:]
    if edge_order == 2:  # the slopes of parabolas through three samples
        first = first - (step[..., 1:2] - first) * h[0] / (h[0] + h[1])
        last = last + (last - step[..., -2:-1]) * h[-1] / (h[-1] + h[-2])
    return jnp.moveaxis(jnp.concatenate([first, inside, last], axis=-1), -1, dim)


@composite(method=False)
def gradient(
    input: Tensor, *, spacing: Any = None, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The derivatives of samples along each dimension in `dim` (all by default), by differences of second order.

    `spacing`: the distance of the samples, one for each dimension, or their places as vectors.  At the ends the
    differences are one-sided, of the order `edge_order` (1 or 2).

    >>> import xgrad
    >>> xgrad.gradient(xgrad.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    """
    spacing = 1 if spacing is None else spacing
    dims = wrap_dims(dim, input.ndim)
    if dim is not None:
        if not input.ndim:
            own_dim(dim if isinstance(dim, int) else dim[0], 0)
        elif not isinstance(dim, int) and not len(dim):
            return ()
    several = isinstance(spacing, Sequence)
    if several and len(spacing) != len(dims):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to the number of "
            f"dimensions ({len(dims)}), but got a list of length {len(spacing)}"
        )
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    for d in dims:
        if input.shape[d] < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    found = []
    for d, h in zip(dims, spacing if several else [spacing] * len(dims)):
        if isinstance(h, Tensor) and (h.ndim != 1 or h.shape[0] != input.shape[d]):
            raise RuntimeError(
                "torch.gradient expected each element of a list of spacing tensors to be a vector with one place for "
                f"each sample: {input.shape[d]} in dimension {d}, but got shape {list(h.shape)}"
            )
        found.append(call(_slope.operator, (input, h), (d, edge_order)))
    return tuple(found)
