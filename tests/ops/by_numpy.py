"""Evaluate a traced JAX program by NumPy, so that a test of numbers compiles nothing.

`jax.make_jaxpr` writes down what a function computes; `evaluate` computes it, one equation after another.  A primitive
without a NumPy form here (a convolution, a factorization) is run by JAX.  Each result is checked against the shape that
the program states.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from .numpy_gather import INDEXING
from .numpy_linalg import LINALG

_lgamma = np.vectorize(math.lgamma, otypes=[float])


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _divide(a: Any, b: Any) -> Any:
    """XLA's division: that of integers is cut off at the point, and by 0 it sets all bits."""
    dtype = np.asarray(a).dtype
    if dtype.kind not in "iu":
        return np.divide(a, b)
    safe = np.where(np.equal(b, 0), 1, b)
    return np.where(np.equal(b, 0), np.invert(dtype.type(0)), np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)))


def _sign(x: Any) -> Any:
    return np.where(x == 0, 0, x / np.abs(x)) if np.iscomplexobj(x) else np.sign(x)


def _select(which: Any, *cases: Any) -> Any:
    found = cases[0]
    for i, case in enumerate(cases[1:], 1):
        found = np.where(which == i, case, found)
    return found


def _inner(a: Any) -> Any:
    return a.jaxpr if hasattr(a, "jaxpr") else a


# -- primitives: (arguments, parameters) ------------------------------------------------------------------------------

_POINTWISE: dict[str, Callable] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "add": np.add, "add_any": np.add, "and": np.bitwise_and,
    "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh,
    "cbrt": np.cbrt, "ceil": np.ceil, "complex": lambda a, b: a + 1j * b, "cos": np.cos, "cosh": np.cosh,
    "div": _divide, "eq": np.equal, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "floor": np.floor,
    "ge": np.greater_equal, "gt": np.greater, "imag": np.imag, "is_finite": np.isfinite, "le": np.less_equal,
    "log": np.log, "log1p": np.log1p, "logistic": _logistic, "lt": np.less, "max": np.maximum, "min": np.minimum,
    "lt_to": np.less, "mul": np.multiply, "ne": np.not_equal, "neg": np.negative, "nextafter": np.nextafter,
    "not": np.invert, "or": np.bitwise_or, "pow": np.power, "real": np.real, "rem": np.fmod,
    "rsqrt": lambda x: 1 / np.sqrt(x), "select_n": _select, "sign": _sign,
    "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square, "sub": np.subtract, "tan": np.tan,
    "tanh": np.tanh, "xor": np.bitwise_xor, "copy": lambda x: x, "copy_p": lambda x: x, "lgamma": _lgamma,
    "erf": np.vectorize(math.erf, otypes=[float]), "erfc": np.vectorize(math.erfc, otypes=[float]),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high), "conj": np.conj,
    "stop_gradient": lambda x: x, "optimization_barrier": lambda *x: x if len(x) > 1 else x[0],
}  # fmt: skip
_REAL_ONLY = {"lgamma", "erf", "erfc"}

# Without a NumPy form, and slow to compile: run by JAX on arrays of one shape.
_SLOW = {"bessel_i0e", "bessel_i1e", "digamma", "erf_inv", "igamma", "igamma_grad_a", "igammac", "polygamma", "zeta"}


def _by_jax(primitive: Any, operands: list, params: dict) -> Any:
    arrays = np.broadcast_arrays(*operands)
    chunks = range(0, arrays[0].size, 8)
    found = [
        primitive.bind(*[jnp.asarray(np.resize(a.ravel()[i : i + 8], 8)) for a in arrays], **params) for i in chunks
    ]
    return np.concatenate(found)[: arrays[0].size].reshape(arrays[0].shape)


_REDUCTIONS: dict[str, Callable] = {
    "reduce_sum": np.sum, "reduce_prod": np.prod, "reduce_max": np.max, "reduce_min": np.min, "reduce_and": np.all,
    "reduce_or": np.any,
}  # fmt: skip


def _broadcast(x: Any, *, shape: tuple, broadcast_dimensions: tuple, **_: Any) -> Any:
    full = [1] * len(shape)
    for d, n in zip(broadcast_dimensions, x.shape, strict=True):
        full[d] = n
    return np.broadcast_to(x.reshape(full), shape)


def _dot(a: Any, b: Any, *, dimension_numbers: tuple, **_: Any) -> Any:
    (ca, cb), (ba, bb) = dimension_numbers
    a, b = (x.astype(np.float32) if x.dtype.kind == "V" else x for x in (a, b))  # bfloat16: einsum has none
    fa = [d for d in range(a.ndim) if d not in (*ca, *ba)]
    fb = [d for d in range(b.ndim) if d not in (*cb, *bb)]
    of_a, of_b = [0] * a.ndim, [0] * b.ndim
    names = iter(range(52))
    out = []
    for places, dims in ((ba, bb), (ca, cb)):
        for i, j in zip(places, dims, strict=True):
            of_a[i] = of_b[j] = next(names)
            if places is ba:
                out.append(of_a[i])
    for letters, dims in ((of_a, fa), (of_b, fb)):
        for d in dims:
            letters[d] = next(names)
            out.append(letters[d])
    if a.dtype.kind == "V":  # bfloat16, for which NumPy has no einsum
        a, b = a.astype(np.float32), b.astype(np.float32)
    return np.einsum(a, of_a, b, of_b, out)


def _convolve(
    x: Any, w: Any, *, window_strides: tuple, padding: tuple, lhs_dilation: tuple, rhs_dilation: tuple,
    dimension_numbers: Any, feature_group_count: int, batch_group_count: int, **_: Any,
) -> Any:  # fmt: skip
    """A convolution: a product of the kernel with each window of the input, for each group of channels or examples."""
    n, kind = len(window_strides), np.result_type(x)
    x, w = (np.asarray(a, np.float32) if a.dtype.kind == "V" else a for a in (x, w))
    x, w = x.transpose(dimension_numbers.lhs_spec), w.transpose(dimension_numbers.rhs_spec)
    sides = [(low, high, d - 1) for (low, high), d in zip(padding, lhs_dilation, strict=True)]
    x = _pad(x, 0, padding_config=[(0, 0, 0)] * 2 + sides)
    w = _pad(w, 0, padding_config=[(0, 0, 0)] * 2 + [(0, 0, d - 1) for d in rhs_dilation])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], tuple(range(2, n + 2)))
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in window_strides))]
    groups = max(feature_group_count, batch_group_count)
    parts = np.split(windows, groups, axis=1 if feature_group_count > 1 else 0)
    of_window, of_kernel = (1, *range(n + 2, 2 * n + 2)), (1, *range(2, n + 2))
    pairs = zip(parts, np.split(w, groups), strict=True)
    found = [np.tensordot(p, kernel, (of_window, of_kernel)) for p, kernel in pairs]  # (batch, *space, out)
    out = np.moveaxis(np.concatenate(found, axis=-1), -1, 1).astype(kind)
    return out.transpose(np.argsort(dimension_numbers.out_spec))


def _slice(x: Any, *, start_indices: tuple, limit_indices: tuple, strides: tuple | None) -> Any:
    steps = strides or (1,) * x.ndim
    return x[tuple(slice(*s) for s in zip(start_indices, limit_indices, steps, strict=True))]


def _starts(starts: Sequence, shape: tuple, sizes: tuple) -> tuple:
    begin = [min(max(int(s), 0), n - m) for s, n, m in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(s, s + m) for s, m in zip(begin, sizes, strict=True))


def _update(x: Any, new: Any, *starts: Any) -> Any:
    x = np.array(x)
    x[_starts(starts, x.shape, new.shape)] = new
    return x


def _pad(x: Any, value: Any, *, padding_config: tuple) -> Any:
    inner = np.full([max(n + (n - 1) * i, 0) for n, (_, _, i) in zip(x.shape, padding_config)], value, x.dtype)
    inner[tuple(slice(None, None, i + 1) for _, _, i in padding_config)] = x
    wide = np.pad(inner, [(max(a, 0), max(b, 0)) for a, b, _ in padding_config], constant_values=value)
    return wide[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b, _) in zip(wide.shape, padding_config))]


def _fft(x: Any, *, fft_type: Any, fft_lengths: tuple) -> Any:
    return getattr(np.fft, f"{fft_type.name.lower()}n")(x, fft_lengths, range(x.ndim - len(fft_lengths), x.ndim))


def _cumulative(compute: Callable) -> Callable:
    def run(x: Any, *, axis: int, reverse: bool, **_: Any) -> Any:
        return np.flip(compute(np.flip(x, axis), axis=axis), axis) if reverse else compute(x, axis=axis)

    return run


def _extreme(compute: Callable) -> Callable:
    def run(x: Any, *, axes: tuple, index_dtype: Any, **_: Any) -> Any:
        return compute(x, axis=axes[0])  # a NaN is both the greatest and the smallest, as in XLA

    return run


_SHAPES: dict[str, Callable] = {
    "argmax": _extreme(np.argmax), "argmin": _extreme(np.argmin), "broadcast_in_dim": _broadcast,
    "conv_general_dilated": _convolve, "concatenate": lambda *x, dimension: np.concatenate(x, dimension),
    "convert_element_type": lambda x, *, new_dtype, **_: _converted(x, new_dtype),
    "cummax": _cumulative(np.maximum.accumulate), "cummin": _cumulative(np.minimum.accumulate),
    "cumprod": _cumulative(np.cumprod), "cumsum": _cumulative(np.cumsum), "dot_general": _dot,
    "dynamic_slice": lambda x, *starts, slice_sizes: x[_starts(starts, x.shape, slice_sizes)],
    "dynamic_update_slice": _update, "fft": _fft,
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, dimensions),
    "integer_pow": lambda x, *, y: np.power(x, float(y) if x.dtype.kind in "fc" else y), "pad": _pad,
    "iota": lambda *, dtype, shape, dimension, **_: np.broadcast_to(
        np.arange(shape[dimension]).reshape([-1 if d == dimension else 1 for d in range(len(shape))]), shape
    ),
    "reshape": lambda x, *, new_sizes, dimensions=None, **_: x.transpose(
        range(x.ndim) if dimensions is None else dimensions
    ).reshape(new_sizes),
    "rev": lambda x, *, dimensions: np.flip(x, dimensions),
    "round": lambda x, *, rounding_method: np.round(x) if int(rounding_method) else _from_zero(x), "slice": _slice,
    "split": lambda x, *, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
    "squeeze": lambda x, *, dimensions: np.squeeze(x, dimensions),
    "transpose": lambda x, *, permutation: np.transpose(x, permutation), **INDEXING, **LINALG,
}  # fmt: skip


def _converted(x: Any, dtype: Any) -> Any:
    return (x.real if np.iscomplexobj(x) and np.dtype(dtype).kind != "c" else x).astype(dtype)


def _from_zero(x: Any) -> Any:
    return np.trunc(x + np.copysign(0.5, x))


# -- programs ----------------------------------------------------------------------------------------------------------


def evaluate(program: Any, *arrays: Any) -> list[Any]:
    """The results of a program (`jax.make_jaxpr`) for these arguments."""
    with np.errstate(all="ignore"):
        return _run(program.jaxpr, program.consts, arrays)


def _run(jaxpr: Any, consts: Sequence, arrays: Sequence) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, arrays, strict=True))

    def read(v: Any) -> Any:
        return np.asarray(v.val, v.aval.dtype) if hasattr(v, "val") else values[v]

    for equation in jaxpr.eqns:
        found = _apply(equation, [read(v) for v in equation.invars])
        for v, value in zip(equation.outvars, found, strict=True):
            if isinstance(value, np.ndarray | np.generic):
                value = np.asarray(value, v.aval.dtype)
            assert value.shape == v.aval.shape, f"{equation}: {value.shape}"
            values[v] = value
    return [read(v) for v in jaxpr.outvars]


def _apply(equation: Any, operands: list) -> Sequence:
    name, params = equation.primitive.name, equation.params
    inner = params.get("jaxpr", params.get("call_jaxpr", params.get("fun_jaxpr")))
    if name == "while":
        return _while(params, operands)
    if name == "cond":
        return _run_closed(params["branches"][int(np.clip(operands[0], 0, len(params["branches"]) - 1))], operands[1:])
    if name == "scan":
        return _scan(equation, operands)
    if name == "custom_linear_solve":
        lengths = params["const_lengths"]
        before = lengths.matvec + lengths.vecmat
        consts = operands[before : before + lengths.solve]
        return _run_closed(params["jaxprs"].solve, [*consts, *operands[sum(lengths) :]])
    if inner is not None and name not in ("shard_map", "reduce", "custom_root"):
        return _run_closed(inner, operands)
    if all(0 in v.aval.shape for v in equation.outvars):
        return [np.zeros(v.aval.shape, v.aval.dtype) for v in equation.outvars]
    if name in _SLOW:
        return [_by_jax(equation.primitive, operands, params)]
    keys = any(str(v.aval.dtype).startswith("key") for v in (*equation.invars, *equation.outvars))
    if not keys:
        kinds = [np.asarray(x).dtype.kind for x in operands]
        if name in _POINTWISE and not (name in _REAL_ONLY and kinds[0] != "f"):
            found = _POINTWISE[name](*map(np.asarray, operands))
            return found if isinstance(found, tuple) else [found]
        if name in _REDUCTIONS:
            return [_REDUCTIONS[name](np.asarray(operands[0]), axis=params["axes"])]
        if name in _SHAPES:
            found = _SHAPES[name](*map(np.asarray, operands), **{k: v for k, v in params.items() if k != "sharding"})
            return found if isinstance(found, list) else [found]
    found = equation.primitive.bind(*[jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in operands], **params)
    return found if equation.primitive.multiple_results else [found]


def _run_closed(inner: Any, operands: Sequence) -> list:
    return _run(_inner(inner), getattr(inner, "consts", ()), operands)


def _chosen(on: Any, new: Any, old: Any) -> Any:
    on = on.reshape(on.shape + (1,) * (old.ndim - on.ndim))
    return np.where(on, new, old) if isinstance(old, np.ndarray) else jnp.where(on, new, old)  # keys


def _while(params: dict, operands: list) -> list:
    n, m = params["cond_nconsts"], params["body_nconsts"]
    state = operands[n + m :]
    while (on := np.asarray(_run_closed(params["cond_jaxpr"], [*operands[:n], *state])[0])).any():
        new = _run_closed(params["body_jaxpr"], [*operands[n : n + m], *state])
        # Under vmap each entry of a batch has a condition of its own.
        state = [_chosen(on, *pair) for pair in zip(new, state, strict=True)] if on.ndim else new
    return state


def _scan(equation: Any, operands: list) -> list:
    params, body = equation.params, equation.params["jaxpr"]
    # What is cut into slices has one dimension more than the body takes, what is stacked one more than it returns.
    # jax 0.12 no longer writes the numbers of constants and of carried values down.
    stacks = [v.aval.ndim > a.ndim for v, a in zip(equation.outvars, body.out_avals, strict=True)]
    slices = [v.aval.ndim > a.ndim for v, a in zip(equation.invars, body.in_avals, strict=True)]
    m = stacks.count(False)
    n = slices.count(False) - m
    consts, state, xs = operands[:n], operands[n : n + m], operands[n + m :]
    steps = range(params["length"])
    made: dict[int, list] = {}
    for i in reversed(steps) if params["reverse"] else steps:
        found = _run_closed(body, [*consts, *state, *[x[i] for x in xs]])
        state, made[i] = found[:m], found[m:]
    outs = body.out_avals[m:]
    stacked = [
        np.stack([made[i][j] for i in steps]) if made else np.zeros((0, *a.shape), a.dtype) for j, a in enumerate(outs)
    ]
    return [*state, *stacked]
