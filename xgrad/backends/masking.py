"""masked: makes from a program at padded shapes a function with the values of the same program at the true shapes.

It is for `xgrad.Backend(shapes=...)`.  JAX traces the program at both shapes, and the two traces are read side by side:

    true      a:f32[5,3]   b = reduce_sum[axes=(0,)] a              c = div b 5.0
    padded    a:f32[8,3]   b = reduce_sum[axes=(0,)] a              c = div b 8.0
    masked    n, a         b = reduce_sum[axes=(0,)] where(i < n, a, 0)    c = div b n

A dimension is padded where the two differ.  Operations that compute each element, or each row, by itself stay; those
that combine along a padded dimension (sums, products, maxima, scatters) get the value there that changes nothing.  A
number that is larger in the padded trace is computed from the true sizes, which are an operand; so programs of other
sizes have the same text.  An operation without a rule, or with other parameters, is an `UnpaddedError`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..base.jax_compat import jaxprs

# Operations that compute each element of the results from the same element of the operands.
_ELEMENTWISE = frozenset([
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e",
    "bessel_i1e", "bitcast_convert_type", "cbrt", "ceil", "clamp", "clz", "complex", "conj", "convert_element_type",
    "copy", "copy_p", "cos", "cosh", "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1",
    "floor", "ge", "gt", "igamma", "igammac", "imag", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p",
    "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "optimization_barrier", "or",
    "polygamma", "population_count", "pow", "real", "reduce_precision", "regularized_incomplete_beta", "rem",
    "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin",
    "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor", "zeta",
])  # fmt: skip
# Operations that combine along `axes` or `axis`, with the value that changes nothing.
_COMBINING = {
    "reduce_sum": 0, "reduce_prod": 1, "reduce_max": "least", "reduce_min": "most", "reduce_and": -1, "reduce_or": 0,
    "argmax": "least", "argmin": "most",
    "cumsum": 0, "cumprod": 1, "cummax": "least", "cummin": "most", "cumlogsumexp": "least",
}  # fmt: skip
_CALLS = frozenset(
    ["pjit", "jit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
     "remat", "remat2", "checkpoint"]
)  # fmt: skip
# Parameters that hold sizes: the results' shapes show them.
_SIZES = frozenset(["shape", "new_sizes", "sharding", "slice_sizes", "limit_indices"])


class UnpaddedError(Exception):
    """A program whose values would depend on the padding; the text says why."""


def masked(exact: Any, padded: Any, sizes: dict[tuple[int, int], int]) -> Callable[..., list[Any]]:
    """Return a function of (true sizes, *padded operands) that returns the flat, padded results.

    `exact`, `padded`: closed jaxprs of one function.  `sizes`: by (true size, padded size), the place in the true
    sizes, which are a vector of int32.  The function raises `UnpaddedError` when it is traced.
    """

    def function(true: Any, *operands: Any) -> list[Any]:
        return _Walk(sizes, true).run(exact, padded, operands)

    return function


def padded_dims(exact: Any, padded: Any) -> list[int]:
    """Return the dimensions in which two shapes differ."""
    return [i for i, (n, m) in enumerate(zip(exact.shape, padded.shape, strict=True)) if n != m]


class _Walk:
    """Evaluates the padded trace, beside the exact one."""

    def __init__(self, sizes: dict[tuple[int, int], int], true: Any) -> None:
        self.sizes, self.true = sizes, true

    def run(self, exact: Any, padded: Any, operands: Sequence[Any]) -> list[Any]:
        core, values = jaxprs(), {}
        e, p = exact.jaxpr, padded.jaxpr
        if len(e.eqns) != len(p.eqns) or len(exact.consts) != len(padded.consts):
            raise UnpaddedError("it is another program at the padded sizes")
        for const, other, v in zip(exact.consts, padded.consts, p.constvars):
            if np.shape(const) != np.shape(other) or not np.array_equal(const, other):
                raise UnpaddedError("it holds an array of the true size")
            values[v] = other
        values.update(zip(p.invars, operands, strict=True))
        for ours, theirs in zip(e.eqns, p.eqns):
            name = theirs.primitive.name
            if ours.primitive.name != name or len(ours.outvars) != len(theirs.outvars):
                raise UnpaddedError("it is another program at the padded sizes")
            given = []
            for a, b in zip(ours.invars, theirs.invars, strict=True):
                given.append(self.number(name, a.val, b) if isinstance(b, core.Literal) else values[b])
            for a, b in zip(ours.outvars, theirs.outvars):
                self.known(name, a.aval, b.aval)
            out = self.equation(name, ours, theirs, given)
            values.update(zip(theirs.outvars, out if theirs.primitive.multiple_results else [out], strict=True))
        return [v.val if isinstance(v, core.Literal) else values[v] for v in p.outvars]

    def equation(self, name: str, exact: Any, padded: Any, given: list[Any]) -> Any:
        """Return the result of one operation, or results."""
        if name in _CALLS:
            return self.run(_within(exact.params), _within(padded.params), given)
        if (control := _CONTROL.get(name)) is not None:
            return control(self, exact.params, padded.params, given)
        same = {key: value for key, value in exact.params.items() if key not in _SIZES}
        if any(not _equal(value, padded.params[key]) for key, value in same.items()):
            raise UnpaddedError(f"'{name}' has the true size among its parameters")
        pairs = [*zip(exact.invars, padded.invars), *zip(exact.outvars, padded.outvars)]
        where = [padded_dims(a.aval, b.aval) for a, b in pairs]
        if name not in _ELEMENTWISE and any(where):
            rule = _RULES.get(name)
            if rule is None:
                raise UnpaddedError(f"'{name}' has a padded operand or result")
            given = rule(self, exact, padded, given, where) or given
        elif name not in _ELEMENTWISE and not _equal(exact.params, padded.params):
            raise UnpaddedError(f"'{name}' has the true size among its parameters")
        return padded.primitive.bind(*given, **padded.params)

    def known(self, name: str, exact: Any, padded: Any) -> None:
        """Raise `UnpaddedError` for a result with a size that no operand of the program has."""
        if len(exact.shape) != len(padded.shape):
            raise UnpaddedError("it is another program at the padded sizes")
        for i in padded_dims(exact, padded):
            if (exact.shape[i], padded.shape[i]) not in self.sizes:
                raise UnpaddedError(f"'{name}' makes a size of {exact.shape[i]}, which is not an operand's")

    def number(self, name: str, exact: Any, padded: Any) -> Any:
        """Return a number of the program; where the traces differ, computed from the true sizes."""
        old, new = np.asarray(exact), np.asarray(padded.val)
        if old.dtype == new.dtype and old.tobytes() == new.tobytes():
            return padded.val
        lacks = f"'{name}' has the number {exact}, which depends on the true size"
        real = any(jnp.issubdtype(old.dtype, kind) for kind in (jnp.floating, jnp.integer))
        if not real or not np.isfinite(old) or not np.isfinite(new):
            raise UnpaddedError(lacks)
        ways = []
        for chosen in (c for count in range(len(self.sizes)) for c in combinations(self.sizes, count + 1)):
            n, m = (prod(sizes) for sizes in zip(*chosen))
            factor = (float(new) - float(old)) / (m - n)
            whole = float(old) - factor * n, factor
            right = all(map(float.is_integer, whole)) and np.array(whole[0] + factor * n).astype(old.dtype) == old
            if right and factor and max(abs(float(old)), *map(abs, whole)) < 1 << 31:
                ways.append((abs(whole[0]), abs(factor), *map(int, whole), chosen))
        if not ways:
            raise UnpaddedError(lacks)
        *_, offset, factor, chosen = min(ways)  # the simplest one, which other sizes have too
        product = prod(self.true[self.sizes[pair]] for pair in chosen)
        return (product * np.int32(factor) + np.int32(offset)).astype(padded.aval.dtype)

    def filled(self, x: Any, exact: Any, dims: Sequence[int], value: Any) -> Any:
        """Return an array with a value where these dimensions are padded."""
        if not dims:
            return x
        inside: Any = True
        for i in dims:
            size = self.true[self.sizes[exact.shape[i], x.shape[i]]]
            inside &= lax.broadcasted_iota(jnp.int32, x.shape, i) < size
        return jnp.where(inside, x, np.asarray(_extreme(value, x.dtype)).astype(x.dtype))


def _within(params: dict[str, Any]) -> Any:
    """Return the program that an operation calls."""
    inner = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
    core = jaxprs()
    return inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, ())


def _equal(a: Any, b: Any) -> bool:
    """Return True for equal parameters; programs and functions among them are compared as text."""
    try:
        return bool(a == b) or str(a) == str(b)
    except (TypeError, ValueError):
        return str(a) == str(b)


def _extreme(value: Any, dtype: Any) -> Any:
    """Return a number of a dtype: the least or the most one where the value says so."""
    if not isinstance(value, str):
        return value
    least = value == "least"
    if dtype == np.bool_:
        return not least
    if jnp.issubdtype(dtype, jnp.inexact):
        return -jnp.inf if least else jnp.inf
    return jnp.iinfo(dtype).min if least else jnp.iinfo(dtype).max


# -- control: of (walk, parameters of the exact operation, of the padded one, operands) --------------------------------


def _branches(walk: _Walk, exact: dict[str, Any], padded: dict[str, Any], given: list[Any]) -> list[Any]:
    def branch(pair: tuple[Any, Any], *operands: Any) -> list[Any]:
        return walk.run(*pair, operands)

    pairs = zip(exact["branches"], padded["branches"], strict=True)
    return lax.switch(given[0], [partial(branch, pair) for pair in pairs], *given[1:])


def _scan(walk: _Walk, exact: dict[str, Any], padded: dict[str, Any], given: list[Any]) -> list[Any]:
    if exact["length"] != padded["length"]:
        raise UnpaddedError("a loop over a padded dimension")
    consts, count = padded["num_consts"], padded["num_carry"]

    def step(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        out = walk.run(exact["jaxpr"], padded["jaxpr"], [*given[:consts], *carry, *xs])
        return out[:count], out[count:]

    options = {name: padded[name] for name in ("length", "reverse", "unroll")}
    carry, ys = lax.scan(step, given[consts : consts + count], given[consts + count :], **options)
    return [*carry, *ys]


def _while(walk: _Walk, exact: dict[str, Any], padded: dict[str, Any], given: list[Any]) -> list[Any]:
    ours, theirs = padded["cond_nconsts"], padded["cond_nconsts"] + padded["body_nconsts"]

    def goes_on(carry: list[Any]) -> Any:
        return walk.run(exact["cond_jaxpr"], padded["cond_jaxpr"], [*given[:ours], *carry])[0]

    def body(carry: list[Any]) -> list[Any]:
        return walk.run(exact["body_jaxpr"], padded["body_jaxpr"], [*given[ours:theirs], *carry])

    return lax.while_loop(goes_on, body, given[theirs:])


_CONTROL = {"cond": _branches, "scan": _scan, "while": _while}


# -- rules: of (walk, exact operation, padded operation, operands, padded dimensions of operands and results) ----------
# They return other operands, or None, or raise `UnpaddedError`.


def _combines(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
    axes = padded.params.get("axes", (padded.params.get("axis"),))
    x, name = given[0], padded.primitive.name
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and isinstance(_COMBINING[name], str):
        raise UnpaddedError(f"'{name}' of complex numbers")
    return [walk.filled(x, exact.invars[0].aval, [i for i in where[0] if i in axes], _COMBINING[name])]


def _product(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
    contracted, _ = padded.params["dimension_numbers"]
    wide, found = padded.params["preferred_element_type"], []
    for x, v, dims, summed in zip(given, exact.invars, where, contracted):
        own = walk.filled(x, v.aval, [i for i in dims if i in summed], 0)
        # On a CPU jaxlib 0.7 has no product, in float32, of halves that are transposed and then masked.
        found.append(own if own is x or wide != np.float32 or x.dtype.itemsize != 2 else own.astype(wide))
    return found


def _convolution(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
    numbers = padded.params["dimension_numbers"]
    (batch, feature, *_), (out, summed, *_) = numbers.lhs_spec, numbers.rhs_spec
    grouped = padded.params["feature_group_count"] > 1 or padded.params["batch_group_count"] > 1
    rows, kernels = where[:2]
    spatial = [i for i in rows if i not in (batch, feature)] + [i for i in kernels if i not in (out, summed)]
    if spatial or (grouped and (kernels or feature in rows or padded.params["batch_group_count"] > 1)):
        raise UnpaddedError("a convolution along a padded dimension")
    return [
        walk.filled(x, v.aval, [i for i in dims if i == dim], 0)
        for x, v, dims, dim in zip(given, exact.invars, where, (feature, summed))
    ]


def _along(*names: str) -> Callable[..., None]:
    """Return the rule of an operation that works along the dimensions which these parameters name."""

    def rule(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
        for name in names:
            along = padded.params[name]
            along = along if isinstance(along, (tuple, list)) else (along,)
            if any(i in along for dims in where for i in dims):
                raise UnpaddedError(f"'{padded.primitive.name}' along a padded dimension")

    return rule


def _window(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    params = padded.params
    for i in {i for dims in where for i in dims}:
        dilated = any(params.get(name, (1,) * 9)[i] != 1 for name in ("base_dilation", "window_dilation"))
        if (params["window_dimensions"][i], params["window_strides"][i], (*params["padding"][i],)) != (
            1, 1, (0, 0),
        ) or dilated:  # fmt: skip
            raise UnpaddedError("a window along a padded dimension")


def _broadcasts(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    # An operand's dimension is padded as the result's is, or has one element: `known` has seen to the sizes.
    for i, to in enumerate(padded.params["broadcast_dimensions"]):
        if i in where[0] and to not in where[-1]:
            raise UnpaddedError("a broadcast along a padded dimension")


def _reshapes(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    """Padded dimensions are the same ones before and after, with as many elements between them."""
    if padded.params.get("dimensions") is not None:
        raise UnpaddedError("'reshape' in another order")

    def parts(v: Any, w: Any, dims: list[int]) -> list[Any]:
        shape, found, count = w.aval.shape, [], 1
        for i, m in enumerate(shape):
            if i in dims:
                found += [count, (v.aval.shape[i], m)]
                count = 1
            else:
                count *= m
        return [*found, count]

    before = parts(exact.invars[0], padded.invars[0], where[0])
    if before != parts(exact.outvars[0], padded.outvars[0], where[-1]):
        raise UnpaddedError("'reshape' merges or splits a padded dimension")


def _slices(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    strides = padded.params["strides"] or (1,) * len(padded.params["start_indices"])
    old, new = exact.params["limit_indices"], padded.params["limit_indices"]
    for i, (start, stride) in enumerate(zip(padded.params["start_indices"], strides)):
        whole = i in where[0] and i in where[-1] and (start, stride) == (0, 1)
        if not whole and old[i] != new[i]:
            raise UnpaddedError("'slice' of a padded dimension")


def _fills(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    if any((*padded.params["padding_config"][i],) != (0, 0, 0) for i in where[0]):
        raise UnpaddedError("'pad' of a padded dimension")


def _reads_rows(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    """`gather`: rows may be read at a padded number of indices, not along a padded dimension."""
    numbers = padded.params["dimension_numbers"]
    old, new = exact.params["slice_sizes"], padded.params["slice_sizes"]
    batching = numbers.operand_batching_dims
    for i, n in enumerate(old):
        whole = n == exact.invars[0].aval.shape[i] and new[i] == padded.invars[0].aval.shape[i]
        if (i in where[0] or n != new[i]) and not whole and i not in batching:
            raise UnpaddedError("'gather' along a padded dimension")
    if len(padded.invars[1].aval.shape) - 1 in where[1]:
        raise UnpaddedError("'gather' with padded indices")


def _adds_rows(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
    """`scatter-add`: nothing is added at indices that are padding."""
    numbers = padded.params["dimension_numbers"]
    indexed = {*numbers.inserted_window_dims, *numbers.scatter_dims_to_operand_dims}
    apart = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = [i for i in range(given[0].ndim) if i not in apart]
    partly = any(
        given[0].shape[i] != given[2].shape[j]
        for i, j in zip(window, numbers.update_window_dims)
        if i in where[0] or j in where[2]
    )
    if indexed & {*where[0]} or partly or len(padded.invars[1].aval.shape) - 1 in where[1]:
        raise UnpaddedError("'scatter-add' along a padded dimension")
    rows = [i for i in where[2] if i not in numbers.update_window_dims]
    return [*given[:2], walk.filled(given[2], exact.invars[2].aval, rows, 0)]


def _stays(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    """An operation that works on each padded dimension as it is."""


_RULES: dict[str, Callable[..., list[Any] | None]] = {
    **dict.fromkeys(_COMBINING, _combines),
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "broadcast_in_dim": _broadcasts,
    "reshape": _reshapes,
    **dict.fromkeys(["transpose", "squeeze", "expand_dims", "iota", "stack"], _stays),
    "rev": _along("dimensions"),
    "concatenate": _along("dimension"),
    "sort": _along("dimension"),
    "split": _along("axis"),
    "slice": _slices,
    "pad": _fills,
    "gather": _reads_rows,
    "scatter-add": _adds_rows,
    "scatter_add": _adds_rows,
    **dict.fromkeys(
        ["reduce_window_sum", "reduce_window_max", "reduce_window_min", "select_and_scatter_add",
         "select_and_gather_add"], _window,
    ),
}  # fmt: skip
