"""Products: a jaxpr pass that rounds operands of matmuls and convolutions as `xgrad.Backend(products=...)` says.

    dot_general, conv_general_dilated of float32        operands ──► bfloat16 ──► product, summed in float32 ──► float32

Gradients are products too, and go through it like everything else that runs on the backend.
"""

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..base import dtypes
from ..base.platforms import traced_for
from ..errors import DtypeDisabledError
from .passes import rewrite

PRODUCTS = ("dot_general", "conv_general_dilated")
FORMATS = ("float32", "tf32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float64")
SUMS = ("float32", "float64", "bfloat16", "float16")


class Products:
    """The pass that rounds operands to the format `products`, and sums in `accumulate`; None: as they are."""

    def __init__(self, products: str | None, accumulate: str | None) -> None:
        self._format = products
        self._sums = None if accumulate is None else np.dtype(getattr(dtypes, accumulate))

    def __call__(self, closed: Any) -> Any:
        """Return the closed jaxpr of a program with its products in these formats."""
        return rewrite(closed, {"dot_general": self._dot, "conv_general_dilated": self._convolution})

    def _dot(self, params: dict[str, Any], a: Any, b: Any) -> Any:
        return self._product(lax.dot_general_p, _in_order, params, a, b)

    def _convolution(self, params: dict[str, Any], a: Any, b: Any) -> Any:
        return self._product(lax.conv_general_dilated_p, _by_patches, params, a, b)

    def _product(self, primitive: Any, in_order: Any, params: dict[str, Any], a: Any, b: Any) -> Any:
        """Return a product in these formats; `in_order`: the one that sums term by term."""
        if a.dtype not in dtypes.INEXACT or b.dtype not in dtypes.INEXACT:
            return None
        result = np.dtype(params["preferred_element_type"] or jnp.result_type(a, b))
        if result.kind == "c":  # its sums are as ever
            return primitive.bind(*[self._parts(x) for x in (a, b)], **params)
        sums = jnp.promote_types(result, jnp.float32) if self._sums is None else self._sums
        if sums.itemsize == 8 and not dtypes.x64_enabled():
            raise DtypeDisabledError(
                "accumulate='float64' needs JAX's x64 mode: jax.config.update('jax_enable_x64', True)"
            )
        a, b = (self._rounded(x) for x in (a, b))
        if sums.itemsize < 4:
            return in_order(params, a, b, sums).astype(result)
        # XLA's CPU compiler lacks some products of halves with sums in float32.
        if traced_for() == "cpu" or a.dtype != b.dtype or a.dtype.itemsize > sums.itemsize:
            a, b = a.astype(sums), b.astype(sums)
        precision = None if a.dtype.itemsize < 4 else (lax.Precision.HIGHEST,) * 2
        return primitive.bind(a, b, **{**params, "precision": precision, "preferred_element_type": sums}).astype(result)

    def _rounded(self, x: Any) -> Any:
        """Return an operand in the format of products, in a dtype that has its numbers."""
        if self._format is None:
            return x
        if self._format == "tf32":
            return x if x.dtype.itemsize < 4 else lax.reduce_precision(x.astype(jnp.float32), 8, 10)
        wanted = np.dtype(getattr(dtypes, self._format))
        return x if x.dtype.itemsize < wanted.itemsize else x.astype(wanted)

    def _parts(self, x: Any) -> Any:
        """Return a complex operand whose parts are rounded."""
        if x.dtype.kind != "c":
            return x
        parts = [lax.optimization_barrier(self._rounded(part)).astype(part.dtype) for part in (x.real, x.imag)]
        return lax.complex(*parts)


def _term_by_term(a: Any, b: Any, sums: Any) -> Any:
    """Return the products of (batch, m, k) and (batch, n, k), as (batch, m, n), where each sum so far is rounded."""

    def step(so_far: Any, terms: Any) -> Any:
        x, y = (t.astype(jnp.float32) for t in terms)
        return (so_far + x[:, :, None] * y[:, None, :]).astype(sums), None

    start = jnp.zeros((a.shape[0], a.shape[1], b.shape[1]), sums)
    return lax.scan(step, start, (jnp.moveaxis(a, 2, 0), jnp.moveaxis(b, 2, 0)))[0]


def _in_order(params: dict[str, Any], a: Any, b: Any, sums: Any) -> Any:
    """Return a `dot_general` that is summed term by term."""
    contracted, batch = params["dimension_numbers"]
    flat, shapes = [], []
    for x, over, each in zip((a, b), contracted, batch):
        free = [d for d in range(x.ndim) if d not in (*over, *each)]
        x = x.transpose(*each, *free, *over)
        shape, n = x.shape, len(each)
        shapes.append((shape[:n], shape[n : n + len(free)]))
        flat.append(x.reshape(prod(shape[:n]), prod(shapes[-1][1]), prod(shape[n + len(free) :])))
    return _term_by_term(flat[0], flat[1], sums).reshape(*shapes[0][0], *shapes[0][1], *shapes[1][1])


def _by_patches(params: dict[str, Any], a: Any, b: Any, sums: Any) -> Any:
    """Return a convolution that is summed term by term, as products of patches."""
    numbers = params["dimension_numbers"]
    batches, groups = params["batch_group_count"], params["feature_group_count"]
    a, b = a.transpose(numbers.lhs_spec), b.transpose(numbers.rhs_spec)
    patches = lax.conv_general_dilated_patches(
        a.astype(jnp.float32), b.shape[2:], params["window_strides"], params["padding"],
        params["lhs_dilation"], params["rhs_dilation"], precision=lax.Precision.HIGHEST,
    )  # fmt: skip
    n, where, terms = a.shape[0] // batches, patches.shape[2:], prod(b.shape[1:])
    patches = patches.reshape(batches, n, groups, terms, prod(where)).transpose(0, 2, 1, 4, 3)
    kernels = b.reshape(batches * groups, b.shape[0] // (batches * groups), terms)
    out = _term_by_term(patches.reshape(batches * groups, n * prod(where), terms), kernels, sums)
    out = out.reshape(batches * groups, n, *where, kernels.shape[1])
    out = jnp.moveaxis(jnp.moveaxis(out, -1, 1), 2, 0).reshape(n, b.shape[0], *where)
    return out.transpose(np.argsort(numbers.out_spec))


def formats_named(backend: str, products: Any, accumulate: Any) -> None:
    """Check the formats of a declaration.  Raises `ValueError` for others."""
    for name, value, known in (("products", products, FORMATS), ("accumulate", accumulate, SUMS)):
        if value is not None and value not in known:
            raise ValueError(
                f"Backend '{backend}': {name} is the name of a number format, one of {', '.join(known)}, but got "
                f"{value!r}"
            )


def multiplies(function: Any, *operands: Any) -> bool:
    """Return True if a function of arrays contains a product."""
    found = []
    rewrite(jax.make_jaxpr(function)(*operands), dict.fromkeys(PRODUCTS, lambda params, *_: found.append(params)))
    return bool(found)
