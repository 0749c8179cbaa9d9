"""Rules of `masking.py`: for each operation of JAX's, when padding does no harm to it, and what masks it where it does.

A rule gets the walk, the operation in the exact trace and in the padded one, its operands, and the padded dimensions of
operands and results.  It returns other operands, or None for these; or it raises `UnpaddedError`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.jax_compat import INNER, scan_counts

# Operations that compute each element of the results from the same element of the operands.
ELEMENTWISE = frozenset([
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e",
    "bessel_i1e", "bitcast_convert_type", "cbrt", "ceil", "clamp", "clz", "complex", "conj", "convert_element_type",
    "copy", "copy_p", "cos", "cosh", "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1",
    "floor", "ge", "gt", "igamma", "igammac", "imag", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p",
    "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "optimization_barrier", "or",
    "polygamma", "polynomial", "population_count", "pow", "real", "reduce_precision", "regularized_incomplete_beta",
    "rem", "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin",
    "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor", "zeta",
])  # fmt: skip
# Operations that combine along `axes` or `axis`, with the value that changes nothing.
COMBINING = {
    "reduce_sum": 0, "reduce_prod": 1, "reduce_max": "least", "reduce_min": "most", "reduce_and": -1, "reduce_or": 0,
    "argmax": "least", "argmin": "most",
    "cumsum": 0, "cumprod": 1, "cummax": "least", "cummin": "most", "cumlogsumexp": "least",
}  # fmt: skip
CALLS = frozenset(
    ["pjit", "jit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "remat2", "checkpoint"]
)  # fmt: skip
# Parameters that hold sizes: the results' shapes show them.
SIZES = frozenset(["shape", "new_sizes", "sharding", "slice_sizes", "limit_indices"])
ANOTHER = "it is another program at the padded sizes"


class UnpaddedError(Exception):
    """A program whose values would depend on the padding; the text says why."""


def padded_dims(exact: Any, padded: Any) -> list[int]:
    """Return the dimensions in which two shapes differ."""
    return [i for i, (n, m) in enumerate(zip(exact.shape, padded.shape, strict=True)) if n != m]


# -- control: of (walk, exact operation, padded one, operands) ---------------------------------------------------------


def _branches(walk: Any, exact: Any, padded: Any, given: list[Any]) -> list[Any]:
    def branch(pair: tuple[Any, Any], *operands: Any) -> list[Any]:
        return walk.run(*pair, operands)

    pairs = zip(exact.params["branches"], padded.params["branches"], strict=True)
    return lax.switch(given[0], [partial(branch, pair) for pair in pairs], *given[1:])


def _scan(walk: Any, exact: Any, padded: Any, given: list[Any]) -> list[Any]:
    ours, theirs = exact.params, padded.params
    consts, count = scan_counts(padded)
    if any(ours[name] != theirs[name] for name in ("length", "reverse")) or scan_counts(exact) != (consts, count):
        raise UnpaddedError("a loop over a padded dimension")

    def step(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        out = walk.run(ours[INNER], theirs[INNER], [*given[:consts], *carry, *xs])
        return out[:count], out[count:]

    options = {name: theirs[name] for name in ("length", "reverse", "unroll")}
    carry, ys = lax.scan(step, given[consts : consts + count], given[consts + count :], **options)
    return [*carry, *ys]


def _while(walk: Any, exact: Any, padded: Any, given: list[Any]) -> list[Any]:
    exact, padded = exact.params, padded.params
    if any(exact[name] != padded[name] for name in ("cond_nconsts", "body_nconsts")):
        raise UnpaddedError(ANOTHER)
    ours, theirs = padded["cond_nconsts"], padded["cond_nconsts"] + padded["body_nconsts"]

    def goes_on(carry: list[Any]) -> Any:
        return walk.run(exact["cond_jaxpr"], padded["cond_jaxpr"], [*given[:ours], *carry])[0]

    def body(carry: list[Any]) -> list[Any]:
        return walk.run(exact["body_jaxpr"], padded["body_jaxpr"], [*given[ours:theirs], *carry])

    return lax.while_loop(goes_on, body, given[theirs:])


CONTROL = {"cond": _branches, "scan": _scan, "while": _while}


# -- rules ------------------------------------------------------------------------------------------------------------


def _combines(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
    axes = padded.params.get("axes", (padded.params.get("axis"),))
    x, name = given[0], padded.primitive.name
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and isinstance(COMBINING[name], str):
        raise UnpaddedError(f"'{name}' of complex numbers")
    return [walk.filled(x, exact.invars[0].aval, [i for i in where[0] if i in axes], COMBINING[name])]


def _product(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
    contracted, _ = padded.params["dimension_numbers"]
    wide, found = padded.params["preferred_element_type"], []
    for x, v, dims, summed in zip(given, exact.invars, where, contracted):
        own = walk.filled(x, v.aval, [i for i in dims if i in summed], 0)
        # On a CPU jaxlib 0.7 has no product, in float32, of halves that are transposed and then masked.
        found.append(own if own is x or wide != np.float32 or x.dtype.itemsize != 2 else own.astype(wide))
    return found


def _convolution(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
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

    def rule(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
        for name in names:
            along = padded.params[name]
            along = along if isinstance(along, (tuple, list)) else (along,)
            if any(i in along for dims in where for i in dims):
                raise UnpaddedError(f"'{padded.primitive.name}' along a padded dimension")

    return rule


def _window(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    params = padded.params
    for i in {i for dims in where for i in dims}:
        dilated = any(params.get(name, (1,) * 9)[i] != 1 for name in ("base_dilation", "window_dilation"))
        if (params["window_dimensions"][i], params["window_strides"][i], (*params["padding"][i],)) != (
            1, 1, (0, 0),
        ) or dilated:  # fmt: skip
            raise UnpaddedError("a window along a padded dimension")


def _broadcasts(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    (x, y), (out, wide) = (exact.invars[0].aval, padded.invars[0].aval), (exact.outvars[0].aval, padded.outvars[0].aval)
    for i, to in enumerate(padded.params["broadcast_dimensions"]):
        if i in where[0] and (x.shape[i], y.shape[i]) != (out.shape[to], wide.shape[to]):
            raise UnpaddedError("'broadcast_in_dim' repeats a padded dimension")


def _reshapes(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any] | None:
    """`reshape`: what is true stays in front if of merged or split dimensions the first is padded; else it is moved.

    (2, 3) padded to (2, 4)     a b c .  d e f .     moved to     a b c d  e f . .     (6,) padded to (8,)
    """
    shapes = [
        [*zip(v.aval.shape, w.aval.shape)]
        for v, w in zip((*exact.invars, *exact.outvars), (*padded.invars, *padded.outvars))
    ]
    ours, theirs = ([pair for pair in shape if pair != (1, 1)] for shape in shapes)
    if padded.params.get("dimensions") is not None or (0, 0) in (*ours, *theirs):
        raise UnpaddedError("'reshape' of an empty array, or in another order")
    before, after = ([*accumulate(shape, _times, initial=(1, 1))] for shape in (ours, theirs))
    shared = [product for product in before if product in after]  # where groups of dimensions with one product end
    x = given[0]
    for start, end in pairwise(shared):
        group = ours[before.index(start) : before.index(end)]
        into = theirs[after.index(start) : after.index(end)]
        if any(n != m for n, m in (*group[1:], *into[1:])):
            size = end[1] // start[1]
            rows = x.reshape(start[1], size, -1)
            x = jnp.take(rows, _places(walk, group, into, size), axis=1, mode="clip").reshape(x.shape)
    return [x]


def _times(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] * b[0], a[1] * b[1]


def _places(walk: Any, group: list[tuple[int, int]], into: list[tuple[int, int]], size: int) -> Any:
    """Return the place, in a group of dimensions, of each element of the dimensions into which it is reshaped."""
    place = lax.iota(jnp.int32, size)
    true = [[n if n == m else walk.rows(n, m) for n, m in dims] for dims in (group, into)]
    for parts, whole in (([m for _, m in into], true[1]), (true[0], [m for _, m in group])):
        indices = []
        for n in reversed(parts):
            indices.append(place % n)
            place = place // n
        place = jnp.zeros(size, jnp.int32)
        for n, index in zip(whole, reversed(indices)):
            place = place * n + index
    return place


def _draws(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    """`random_bits`: each of threefry's is a function of its place, counted through all dimensions."""
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    if given[0].ndim or where[-1] != [0] or str(given[0].dtype) != "key<fry>" or not partitionable:
        raise UnpaddedError("random numbers along a padded dimension")


def _slices(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    strides = padded.params["strides"] or (1,) * len(padded.params["start_indices"])
    old, new = exact.params["limit_indices"], padded.params["limit_indices"]
    for i, (start, stride) in enumerate(zip(padded.params["start_indices"], strides)):
        whole = i in where[0] and i in where[-1] and (start, stride) == (0, 1)
        if not whole and old[i] != new[i]:
            raise UnpaddedError("'slice' of a padded dimension")


def _parts(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
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


def _fills(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    if any((*padded.params["padding_config"][i],) != (0, 0, 0) for i in where[0]):
        raise UnpaddedError("'pad' of a padded dimension")


def _reads_rows(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
    """`gather`: single elements of a padded dimension may be read, at a padded number of indices too."""
    numbers = padded.params["dimension_numbers"]
    indexed = []
    old, new = exact.params["slice_sizes"], padded.params["slice_sizes"]
    batching = numbers.operand_batching_dims
    for i, n in enumerate(old):
        whole = n == exact.invars[0].aval.shape[i] and new[i] == padded.invars[0].aval.shape[i]
        if (i in where[0] or n != new[i]) and not whole and i not in batching:
            if not n == new[i] == 1 or i not in numbers.start_index_map:
                raise UnpaddedError("'gather' along a padded dimension")
            indexed.append(i)
    if len(padded.invars[1].aval.shape) - 1 in where[1]:
        raise UnpaddedError("'gather' with padded indices")
    return [given[0], _bounded(walk, exact, padded, given[1], indexed, numbers.start_index_map)]


def _bounded(walk: Any, exact: Any, padded: Any, indices: Any, dims: Sequence[int], places: Sequence[int]) -> Any:
    """Return indices that have the effect of the true size: what lies beyond it is dropped, or the last element."""
    mode = padded.params["mode"]
    if dims:
        indices = indices.astype(jnp.promote_types(indices.dtype, jnp.int32))  # a narrow dtype may lack the sizes
    for i in dims:
        old, new = (equation.invars[0].aval.shape[i] for equation in (exact, padded))
        size, column = walk.rows(old, new), indices[..., places.index(i)]
        promised = mode == lax.GatherScatterMode.PROMISE_IN_BOUNDS and padded.primitive.name == "gather"
        if promised or mode == lax.GatherScatterMode.CLIP:  # XLA reads the last element where a promise is broken
            column = jnp.minimum(column, size - 1)
        else:
            column = jnp.where(column < size, column, new)
        indices = indices.at[..., places.index(i)].set(column.astype(indices.dtype))
    return indices


def _adds_rows(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> list[Any]:
    """`scatter-add`: nothing is added at indices that are padding, to elements of a padded dimension neither."""
    numbers = padded.params["dimension_numbers"]
    indexed = [i for i in where[0] if i in (*numbers.inserted_window_dims, *numbers.scatter_dims_to_operand_dims)]
    single = {*numbers.inserted_window_dims} & {*numbers.scatter_dims_to_operand_dims}
    apart = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = [i for i in range(given[0].ndim) if i not in apart]
    whole, part = (zip(exact.invars[k].aval.shape, padded.invars[k].aval.shape) for k in (0, 2))
    whole, part = [*whole], [*part]  # sizes, true and padded
    partly = any(
        whole[i] != part[j] for i, j in zip(window, numbers.update_window_dims) if i in where[0] or j in where[2]
    )
    if not single.issuperset(indexed) or partly or len(padded.invars[1].aval.shape) - 1 in where[1]:
        raise UnpaddedError("'scatter-add' along a padded dimension")
    rows = [i for i in where[2] if i not in numbers.update_window_dims]
    indices = _bounded(walk, exact, padded, given[1], indexed, numbers.scatter_dims_to_operand_dims)
    return [given[0], indices, walk.filled(given[2], exact.invars[2].aval, rows, 0)]


def _stays(walk: Any, exact: Any, padded: Any, given: list[Any], where: list[list[int]]) -> None:
    """An operation that works on each padded dimension as it is."""


RULES: dict[str, Callable[..., list[Any] | None]] = {
    **dict.fromkeys(COMBINING, _combines),
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
