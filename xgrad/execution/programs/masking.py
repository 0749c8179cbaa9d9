"""masked: makes from a program at padded shapes a function with the values of the same program at the true shapes.

It is for `xgrad.compile(dynamic=...)` and `xgrad.Backend(shapes=...)`.  JAX traces the program at both shapes, and the two traces are read side by side:

    true      a:f32[5,3]   b = reduce_sum[axes=(0,)] a              c = div b 5.0
    padded    a:f32[8,3]   b = reduce_sum[axes=(0,)] a              c = div b 8.0
    masked    n, a         b = reduce_sum[axes=(0,)] where(i < n, a, 0)    c = div b n

A dimension is padded where the two differ.  Operations that compute each element, or each row, by itself stay; those
that combine along a padded dimension (sums, products, maxima, scatters) get the value there that changes nothing.  A
number that is larger in the padded trace is computed from the true sizes, which are an operand; so programs of other
sizes have the same text.  An operation without a rule, or with other parameters, is an `UnpaddedError`.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import accumulate, combinations
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.jax_compat import jaxprs

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


_ANOTHER = "it is another program at the padded sizes"
# Promises about indices that padding may break.
_PROMISES = {"unique_indices": False, "indices_are_sorted": False}


class UnpaddedError(Exception):
    """A program whose values would depend on the padding; the text says why."""


def masked(exact: Any, padded: Any, sizes: dict[tuple[int, int], int]) -> Callable[..., list[Any]]:
    """Return a function of (true sizes, *padded operands) that returns the flat, padded results.

    `exact`, `padded`: closed jaxprs of one function.  `sizes`: by (true size, padded size), the place in the true
    sizes, which are a vector of int32.  The function raises `UnpaddedError` when it is traced.
    """

    def function(true: Any, *operands: Any) -> list[Any]:
        try:
            return _Walk(sizes, true).run(exact, padded, operands)
        except UnpaddedError:
            raise
        except (KeyError, TypeError, ValueError) as error:  # of JAX, where what is computed does not fit together
            raise UnpaddedError(f"{_ANOTHER} ({type(error).__name__})") from error

    return function


def key_of(value: Any) -> Any:
    """Return a key of a closed jaxpr, equal for programs that compute the same: variables are numbered.

    Its text would not do: JAX prints neither weak types nor which function a callback calls.
    """
    core = jaxprs()
    if isinstance(value, core.ClosedJaxpr):
        return key_of(value.jaxpr), tuple([(np.shape(x), str(x.dtype), np.asarray(x).tobytes()) for x in value.consts])
    if isinstance(value, core.Jaxpr):
        numbers: dict[Any, int] = {}

        def named(v: Any) -> Any:
            aval = v.aval
            if isinstance(v, core.Literal):
                return str(aval), aval.weak_type, np.asarray(v.val).tobytes()
            return numbers.setdefault(v, len(numbers)), str(aval), getattr(aval, "weak_type", False)

        heads = tuple([named(v) for v in (*value.constvars, *value.invars)])
        eqns = [
            (eqn.primitive.name, key_of(eqn.params), *map(named, eqn.invars), None, *map(named, eqn.outvars))
            for eqn in value.eqns
        ]
        return heads, tuple(eqns), tuple([named(v) for v in value.outvars])
    if isinstance(value, dict):
        return tuple([(name, key_of(part)) for name, part in sorted(value.items())])
    if isinstance(value, (tuple, list)):
        return tuple(map(key_of, value))
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.tobytes()
    return value if isinstance(value, Hashable) else str(value)


def padded_dims(exact: Any, padded: Any) -> list[int]:
    """Return the dimensions in which two shapes differ."""
    return [i for i, (n, m) in enumerate(zip(exact.shape, padded.shape, strict=True)) if n != m]


class _Walk:
    """Evaluates the padded trace, beside the exact one."""

    def __init__(self, sizes: dict[tuple[int, int], int], true: Any) -> None:
        self.sizes, self.true = sizes, true

    def run(self, exact: Any, padded: Any, operands: Sequence[Any]) -> list[Any]:
        e, p = exact.jaxpr, padded.jaxpr
        if len(e.eqns) != len(p.eqns) or len(exact.consts) != len(padded.consts):
            raise UnpaddedError(_ANOTHER)
        twins, values = dict(zip(p.invars, e.invars, strict=True)), dict(zip(p.invars, operands, strict=True))
        literal = jaxprs().Literal

        def read(what: str, ours: Any, theirs: Any) -> Any:
            if isinstance(theirs, literal) and isinstance(ours, literal):
                return self.number(what, ours.val, theirs.val)
            if isinstance(theirs, literal) or twins[theirs] is not ours:  # what it reads was computed elsewhere
                raise UnpaddedError(_ANOTHER)
            return values[theirs]

        for ours, theirs, const, other in zip(e.constvars, p.constvars, exact.consts, padded.consts):
            twins[theirs] = ours
            if np.shape(const) == np.shape(other) and np.array_equal(const, other):
                values[theirs] = other
            elif np.shape(const) or np.shape(other):
                raise UnpaddedError("it holds an array of the true size")
            else:
                values[theirs] = self.number("it", const, other)
        for ours, theirs in zip(e.eqns, p.eqns):
            name = theirs.primitive.name
            if ours.primitive is not theirs.primitive or len(ours.outvars) != len(theirs.outvars):
                raise UnpaddedError(_ANOTHER)
            given = [read(f"'{name}'", a, b) for a, b in zip(ours.invars, theirs.invars, strict=True)]
            for a, b in zip(ours.outvars, theirs.outvars):
                self.known(name, a.aval, b.aval)
            out = self.equation(name, ours, theirs, given)
            twins.update(zip(theirs.outvars, ours.outvars))
            values.update(zip(theirs.outvars, out if theirs.primitive.multiple_results else [out], strict=True))
        return [read("a result", a, b) for a, b in zip(e.outvars, p.outvars, strict=True)]

    def equation(self, name: str, exact: Any, padded: Any, given: list[Any]) -> Any:
        """Return the result of one operation, or results."""
        if name in _CALLS:
            return self.run(_within(exact.params), _within(padded.params), given)
        if (control := _CONTROL.get(name)) is not None:
            return control(self, exact.params, padded.params, given)
        same = {key: value for key, value in exact.params.items() if key not in _SIZES}
        if any(not _equal(value, padded.params[key]) for key, value in same.items()):
            raise UnpaddedError(f"'{name}' has the true size among its parameters")
        params = padded.params
        pairs = [*zip(exact.invars, padded.invars), *zip(exact.outvars, padded.outvars)]
        where = [padded_dims(a.aval, b.aval) for a, b in pairs]
        if name not in _ELEMENTWISE and any(where):
            rule = _RULES.get(name)
            if rule is None:
                raise UnpaddedError(f"'{name}' has a padded operand or result")
            given = rule(self, exact, padded, given, where) or given
            params = {**padded.params, **{key: value for key, value in _PROMISES.items() if key in padded.params}}
        elif name not in _ELEMENTWISE and not _equal(exact.params, padded.params):
            raise UnpaddedError(f"'{name}' has the true size among its parameters")
        return padded.primitive.bind(*given, **params)

    def known(self, name: str, exact: Any, padded: Any) -> None:
        """Raise `UnpaddedError` for a result with a size that no operand of the program has."""
        if len(exact.shape) != len(padded.shape) or exact.dtype != padded.dtype:
            raise UnpaddedError(_ANOTHER)
        for i in padded_dims(exact, padded):
            if self.rows(exact.shape[i], padded.shape[i]) is None:
                raise UnpaddedError(f"'{name}' makes a size of {exact.shape[i]}, which is not an operand's")

    def rows(self, n: int, m: int) -> Any:
        """Return a true size: an operand's, or a multiple of one, of rows that were joined; None for any other."""
        for (size, wide), place in self.sizes.items():
            if not n % size and n // size * wide == m:
                return self.true[place] * np.int32(n // size)
        return None

    def number(self, what: str, exact: Any, padded: Any) -> Any:
        """Return a number of the program; where the traces differ, computed from the true sizes."""
        old, new = np.asarray(exact), np.asarray(padded)
        if old.dtype == new.dtype and old.tobytes() == new.tobytes():
            return padded
        lacks = f"{what} has the number {exact}, which depends on the true size"
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
        return (product * np.int32(factor) + np.int32(offset)).astype(new.dtype)

    def filled(self, x: Any, exact: Any, dims: Sequence[int], value: Any) -> Any:
        """Return an array with a value where these dimensions are padded."""
        if not dims:
            return x
        inside: Any = True
        for i in dims:
            inside &= lax.broadcasted_iota(jnp.int32, x.shape, i) < self.rows(exact.shape[i], x.shape[i])
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
        infinite = np.asarray(-np.inf if least else np.inf).astype(dtype)
        most = jnp.finfo(dtype)
        return infinite if np.isinf(infinite) else most.min if least else most.max
    return jnp.iinfo(dtype).min if least else jnp.iinfo(dtype).max


# -- control: of (walk, parameters of the exact operation, of the padded one, operands) --------------------------------


def _branches(walk: _Walk, exact: dict[str, Any], padded: dict[str, Any], given: list[Any]) -> list[Any]:
    def branch(pair: tuple[Any, Any], *operands: Any) -> list[Any]:
        return walk.run(*pair, operands)

    pairs = zip(exact["branches"], padded["branches"], strict=True)
    return lax.switch(given[0], [partial(branch, pair) for pair in pairs], *given[1:])


def _scan(walk: _Walk, exact: dict[str, Any], padded: dict[str, Any], given: list[Any]) -> list[Any]:
    if any(exact[name] != padded[name] for name in ("length", "reverse", "num_consts", "num_carry")):
        raise UnpaddedError("a loop over a padded dimension")
    consts, count = padded["num_consts"], padded["num_carry"]

    def step(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        out = walk.run(exact["jaxpr"], padded["jaxpr"], [*given[:consts], *carry, *xs])
        return out[:count], out[count:]

    options = {name: padded[name] for name in ("length", "reverse", "unroll")}
    carry, ys = lax.scan(step, given[consts : consts + count], given[consts + count :], **options)
    return [*carry, *ys]


def _while(walk: _Walk, exact: dict[str, Any], padded: dict[str, Any], given: list[Any]) -> list[Any]:
    if any(exact[name] != padded[name] for name in ("cond_nconsts", "body_nconsts")):
        raise UnpaddedError(_ANOTHER)
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
    """Of dimensions that are merged or split only the first is padded: what is true stays in front."""
    pairs = [
        [pair for pair in zip(v.aval.shape, w.aval.shape) if pair != (1, 1)]
        for v, w in ((exact.invars[0], padded.invars[0]), (exact.outvars[0], padded.outvars[0]))
    ]
    before = [[*accumulate(shape, lambda a, b: (a[0] * b[0], a[1] * b[1]), initial=(1, 1))] for shape in pairs]
    shared = {*before[0]} & {*before[1]}  # where groups of dimensions with one product begin
    fits = all(
        n == m or first in shared for shape, firsts in zip(pairs, before) for (n, m), first in zip(shape, firsts)
    )
    if padded.params.get("dimensions") is not None or not fits or (0, 0) in shared:
        raise UnpaddedError("'reshape' merges or splits a padded dimension")


def _draws(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    """`random_bits`: those of threefry are functions of their place, counted through all dimensions."""
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    if given[0].ndim or where[-1] != [0] or str(given[0].dtype) != "key<fry>" or not partitionable:
        raise UnpaddedError("random numbers along a padded dimension")


def _slices(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    strides = padded.params["strides"] or (1,) * len(padded.params["start_indices"])
    old, new = exact.params["limit_indices"], padded.params["limit_indices"]
    for i, (start, stride) in enumerate(zip(padded.params["start_indices"], strides)):
        whole = i in where[0] and i in where[-1] and (start, stride) == (0, 1)
        if not whole and old[i] != new[i]:
            raise UnpaddedError("'slice' of a padded dimension")


def _parts(walk: _Walk, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
    """`dynamic_slice` and `dynamic_update_slice`: a part stays within what is true, as XLA does it at the true size."""
    writes = padded.primitive.name == "dynamic_update_slice"
    first = 1 + writes
    old, new = (v[1].aval.shape for v in (exact.invars, padded.invars)) if writes else (
        exact.params["slice_sizes"], padded.params["slice_sizes"]
    )  # fmt: skip
    found = [*given]
    for i, (n, m) in enumerate(zip(exact.invars[0].aval.shape, padded.invars[0].aval.shape)):
        if (old[i], new[i]) == (n, m):
            continue  # all of it
        if old[i] != new[i]:
            raise UnpaddedError(f"'{padded.primitive.name}' of a part that is padded")
        if n != m:
            start = found[first + i]
            found[first + i] = jnp.clip(start, 0, walk.rows(n, m) - old[i]).astype(start.dtype)
    return found


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
    whole, part = (zip(exact.invars[k].aval.shape, padded.invars[k].aval.shape) for k in (0, 2))
    whole, part = [*whole], [*part]  # sizes, true and padded
    partly = any(
        whole[i] != part[j] for i, j in zip(window, numbers.update_window_dims) if i in where[0] or j in where[2]
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
    "dynamic_slice": _parts,
    "dynamic_update_slice": _parts,
    "pad": _fills,
    "gather": _reads_rows,
    "scatter-add": _adds_rows,
    "scatter_add": _adds_rows,
    "random_bits": _draws,
    **dict.fromkeys(
        ["reduce_window_sum", "reduce_window_max", "reduce_window_min", "select_and_scatter_add",
         "select_and_gather_add"], _window,
    ),
}  # fmt: skip
