"""zeros, full, arange, linspace, eye, ...: make tensors from sizes and numbers; also the `_like` and `new_` forms.

Cached programs make and place the results; the host makes the first constants (host_first.py).  xgrad owns them, so
the first in-place write needs no copy, and no large tensor is made on one device and transferred to another.
"""

import warnings
from collections.abc import Callable
from math import ceil, isfinite
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding

from ...base import dtypes
from ...base.declared import DeclaredPlace
from ...base.devices import Devices, replicated
from ...base.limits import check_bytes, x64_for_now
from ...batching.batched_tensor import batch_like
from ...config import settings
from ...dispatch.argument_kinds import require_no_grad
from ...dispatch.call import call
from ...dispatch.declare import composite, internal
from ...dispatch.out import write_out
from ...dispatch.samples import sample
from ...execution.donation import sent
from ...tensor import Tensor, from_array
from ...views.named.arguments import int_of, sizes_of, variadic
from ..pointwise.ends import quotient
from .from_data import filled, finish, number_dtype, place, placement
from .host_first import is_early
from .scalars import fill_value

_DOUBLE = dict(dtype=dtypes.float64, placement=None)  # of samples


@internal(
    differentiable=False, samples=(sample(value=1.5, size=(2, 3), **_DOUBLE), sample(value=1.5, size=(0, 3), **_DOUBLE))
)
def _constant(*, value, size, dtype, placement):
    """Fill with `value`, a constant of the program: zeros and ones are made all the time."""
    return place(jnp.full(size, value, dtype), placement)


def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype in which a range is computed: floats of 16 bits and fewer would round."""
    return dtypes.float32 if dtype.itemsize < 4 and dtype in dtypes.FLOATS else dtype


@internal(differentiable=False, samples=(sample(1, 0.5, n=3, **_DOUBLE), sample(1, 0.5, n=0, **_DOUBLE)))
def _range(start, step, *, n, dtype, placement):
    wide = _wide(dtype)
    return place((start.astype(wide) + step.astype(wide) * jnp.arange(n, dtype=wide)).astype(dtype), placement)


def spaced(start: Any, end: Any, steps: int, dtype: Any) -> Any:
    """linspace computed from both ends, as PyTorch's; of integers in float64, so that none falls below a whole one."""
    wide = jnp.float64 if dtype not in dtypes.INEXACT else _wide(dtype)
    start, end = start.astype(wide), end.astype(wide)
    i = jnp.arange(steps)
    step = quotient(end - start, jnp.asarray(max(steps - 1, 1), wide))
    points = jnp.where(i < steps // 2, start + step * i, end - step * (steps - 1 - i))
    return jnp.full((1,), start) if steps == 1 else points


@internal(
    differentiable=False,
    samples=(sample(1.0, 3.0, None, steps=4, **_DOUBLE), sample(0.0, 2.0, 10.0, steps=4, **_DOUBLE)),
)
def _spaced(start, end, base, *, steps, dtype, placement):
    """linspace or logspace; integers are truncated, not rounded."""
    with x64_for_now(dtypes.x64_enabled() or dtype not in dtypes.INEXACT):
        points = spaced(start, end, steps, dtype)
        found = (points if base is None else jnp.power(base.astype(points.dtype), points)).astype(dtype)
    return place(found, placement)


@internal(differentiable=False, samples=(sample(n=2, m=3, **_DOUBLE), sample(n=0, m=3, **_DOUBLE)))
def _eye(*, n, m, dtype, placement):
    return place(jnp.eye(n, m, dtype=dtype), placement)


def checked_sizes(size: Any) -> tuple[int, ...]:
    """Check the sizes of a new tensor.  Raises `RuntimeError` for a negative one."""
    found = sizes_of((size,))
    if any(n < 0 for n in found):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(found)}: {list(found)}")
    return found


def made(result: Tensor, requires_grad: bool = False, out: Tensor | None = None, name: str = "") -> Tensor:
    return finish(result, requires_grad) if out is None else write_out(name, result, out)


def like(input: Tensor, same_shape: bool = True) -> Sharding | None:
    """The placement of a tensor made like `input`; on a mesh one of another shape is replicated."""
    where = input._placed()
    if where is None:
        return None
    if where.__class__ is DeclaredPlace:
        if where.layout is None or same_shape:
            return input._read().sharding if where.several else where
        return where.home.laid(replicated(where.layout)) if isinstance(where.layout, NamedSharding) else where.home
    if isinstance(where, SingleDeviceSharding):
        return where if input._held().committed else None
    if same_shape:
        return input._read().sharding
    return replicated(where) if isinstance(where, NamedSharding) else None


# -- constants --------------------------------------------------------------------------------------------------------


def _constants(name: str, value: int, doc: str) -> Callable:
    """Declare zeros, zeros_like, new_zeros, or their siblings; return the first."""

    def constant(shape: tuple[int, ...], dtype: Any, where: Any) -> Tensor:
        kept = dtype not in dtypes.WIDE or dtypes.x64_enabled()
        if kept and is_early((value, shape, dtype, where), shape, where):
            return from_array(sent(np.full(shape, value, dtype), where))
        return call(_constant.operator, (), (value, shape, dtype, where))

    def factory(
        *size: Any, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None, **named: Any,
    ) -> Tensor:  # fmt: skip
        shape = checked_sizes(variadic(name, "size", size, named))
        dtype = out.dtype if dtype is None and out is not None else dtype
        dtype = settings.default_dtype if dtype is None else dtypes.as_dtype(dtype)
        return made(constant(shape, dtype, placement(device)), requires_grad, out, name)

    def factory_like(
        input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
        pin_memory: bool = False, memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        dtype = input._dtype if dtype is None else dtypes.as_dtype(dtype)
        where = like(input) if device is None else placement(device)
        return finish(batch_like(constant(tuple(input.shape), dtype, where), input), requires_grad)

    def new(
        input: Tensor, *size: Any, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False, **named: Any,
    ) -> Tensor:  # fmt: skip
        dtype = input._dtype if dtype is None else dtypes.as_dtype(dtype)
        where = like(input, False) if device is None else placement(device)
        shape = checked_sizes(variadic(f"new_{name}", "size", size, named))
        return finish(batch_like(constant(shape, dtype, where), input), requires_grad)

    factory.__doc__ = f"A tensor {doc}, of the given sizes (`{name}(2, 3)` or `{name}((2, 3))`)."
    factory_like.__doc__ = f"A tensor {doc}, of the shape, dtype and device of `input` unless others are given."
    new.__doc__ = f"A tensor {doc}, of the given sizes, of this tensor's dtype and device unless others are given."
    for known, fn, kinds in ((name, factory, (True, False)), (name + "_like", factory_like, (True, False)),
                             ("new_" + name, new, (False, True))):  # fmt: skip
        fn.__name__ = fn.__qualname__ = known
        composite(known, function=kinds[0], method=kinds[1])(fn)
    return factory


zeros: Callable[..., Any] = _constants("zeros", 0, "of zeros")
ones: Callable[..., Any] = _constants("ones", 1, "of ones")
empty: Callable[..., Any] = _constants(
    "empty", 0, "whose values are not to be relied upon (zeros: XLA leaves no memory uninitialised)"
)


def _full(value: Any, size: tuple, dtype: Any, where: Sharding | Devices | None, name: str) -> Tensor:
    if dtype is None:
        dtype = value.dtype if isinstance(value, (Tensor, np.generic)) else number_dtype(value)
    dtype = dtypes.as_dtype(dtype)
    if isinstance(value, Tensor):
        if value.ndim:
            raise TypeError(f"{name}(): fill_value must be a number or a 0-dim tensor, got shape {list(value.shape)}")
        require_no_grad(name, fill_value=value)
    return call(filled.operator, (fill_value(value, dtype),), (size, dtype, where))


@composite(method=False)
def full(
    size: Any, fill_value: Any, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of the given size, filled with `fill_value`, which determines the dtype.

    >>> import xgrad
    >>> xgrad.full((2, 2), 3.5)
    tensor([[3.5000, 3.5000],
            [3.5000, 3.5000]])
    """
    return made(_full(fill_value, checked_sizes(size), dtype, placement(device), "full"), requires_grad, out, "full")


@composite(method=False)
def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor with `fill_value` everywhere, of the shape, dtype and device of `input` unless others are given."""
    where = like(input) if device is None else placement(device)
    result = _full(fill_value, tuple(input.shape), dtype or input.dtype, where, "full_like")
    return finish(batch_like(result, input), requires_grad)


@composite(function=False)
def new_full(
    input: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of the given size with `fill_value` everywhere, of this tensor's dtype and device."""
    where = like(input, False) if device is None else placement(device)
    result = _full(fill_value, checked_sizes(size), dtype or input.dtype, where, "new_full")
    return finish(batch_like(result, input), requires_grad)


# -- ranges -----------------------------------------------------------------------------------------------------------


def _number(value: Any) -> Any:
    """Convert a bound, a number or a 0-dim tensor, to a number."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, complex):
        raise RuntimeError(f"value cannot be converted to type double without overflow: a range is real, got {value}")
    return value


def _check_range(start: Any, end: Any, step: Any) -> None:
    """Raise `RuntimeError` unless steps of `step` lead from `start` to `end`."""
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (isfinite(start) and isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError(
            f"upper bound and lower bound inconsistent with step sign: start {start}, end {end}, step {step}"
        )


@composite(method=False)
def arange(
    start: Any = None, end: Any = None, step: Any = 1, *, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The numbers from `start` (0) up to, and without, `end`; integers unless one of the arguments is a float.

    Raises `RuntimeError` for a step of 0 or away from `end`.

    >>> import xgrad
    >>> xgrad.arange(1, 10, 3)
    tensor([1, 4, 7])
    """
    if end is None:
        start, end = None, start
    if end is None:
        raise TypeError("arange() missing 1 required positional argument: 'end'")
    require_no_grad("arange", start=start, end=end, step=step)
    start, end, step = (_number(v) for v in (0 if start is None else start, end, step))
    if dtype is None and out is not None:
        dtype = out.dtype
    integral = not any(isinstance(v, float) for v in (start, end, step))
    dtype = number_dtype(0 if integral else 0.0) if dtype is None else dtypes.as_dtype(dtype)
    if dtype == dtypes.bool:
        raise NotImplementedError("arange is not implemented for 'Bool': give it an integer dtype, and then bool()")
    _check_range(start, end, step)
    if dtype == dtypes.default_integer():
        start, end, step = int(start), int(end), int(step)
        _check_range(start, end, step)
    n = -((start - end) // step) if all(isinstance(v, int) for v in (start, end, step)) else ceil((end - start) / step)
    first, by = (fill_value(v, _wide(dtype)) for v in (start, step))
    if n and dtype in dtypes.INTEGERS:
        fill_value(start + (n - 1) * step, dtype)
    return made(call(_range.operator, (first, by), (n, dtype, placement(device))), requires_grad, out, "arange")


@composite("range", method=False)
def range_(
    start: Any = 0, end: Any = None, step: Any = 1, *, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The numbers from `start` up to `end`, that one included, of the default floating dtype.  Deprecated: see arange.

    Raises `RuntimeError` for a step of 0 or away from `end`.
    """
    if end is None:
        raise TypeError('range() missing 1 required positional arguments: "end"')
    require_no_grad("range", start=start, end=end, step=step)
    warnings.warn(
        "range is deprecated, as Python's range leaves its end out: use arange(start, end + step, step).",
        UserWarning, stacklevel=2,
    )  # fmt: skip
    start, end, step = (_number(v) for v in (start, end, step))
    if dtype is None:
        dtype = number_dtype(0.0) if out is None else out.dtype
    dtype = dtypes.as_dtype(dtype)
    if dtype in dtypes.INTEGERS and isfinite(start) and isfinite(end):
        start, end, step = int(start), int(end), int(step)
    _check_range(start, end, step)
    n = int((end - start) / step) + 1
    first, by = (fill_value(v, _wide(dtype)) for v in (start, step))
    return made(call(_range.operator, (first, by), (n, dtype, placement(device))), requires_grad, out, "range")


def _spacing(name: str) -> Callable:
    def build(
        start: Any, end: Any, steps: int, base: Any, out: Any, dtype: Any, device: Any, requires_grad: bool
    ) -> Tensor:
        start, end, base = (v.detach() if isinstance(v, Tensor) else v for v in (start, end, base))
        for v in (start, end):
            if isinstance(v, Tensor) and v.ndim:
                raise RuntimeError(
                    f"{name} only supports 0-dimensional start and end tensors, but got {v.ndim} dimension(s)"
                )
        if steps < 0:
            raise RuntimeError("number of steps must be non-negative")
        if dtype is None:
            imaginary = any(isinstance(v, complex) or getattr(v, "dtype", None) in dtypes.COMPLEX for v in (start, end))
            dtype = out.dtype if out is not None else number_dtype(0j if imaginary else 0.0)
        dtype = dtypes.as_dtype(dtype)
        start, end = (fill_value(v, dtype) for v in (start, end))
        result = call(_spaced.operator, (start, end, base), (int(steps), dtype, placement(device)))
        return made(result, requires_grad, out, name)

    return build


_linspace, _logspace = _spacing("linspace"), _spacing("logspace")


@composite(method=False)
def linspace(
    start: Any, end: Any, steps: int, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """`steps` evenly spaced numbers from `start` to `end`, both included."""
    return _linspace(start, end, steps, None, out, dtype, device, requires_grad)


@composite(method=False)
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """`steps` numbers from base**start to base**end, evenly spaced in the exponent."""
    return _logspace(start, end, steps, base, out, dtype, device, requires_grad)


@composite(method=False)
def eye(
    n: int, m: int | None = None, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The matrix of shape (n, m), or (n, n), with ones on its diagonal and zeros elsewhere."""
    n, m = int_of(n), int_of(n if m is None else m)
    if n < 0 or m < 0:
        raise RuntimeError(f"n must be greater or equal to 0, got {n}" if n < 0 else f"m must be >= 0, got {m}")
    dtype = settings.default_dtype if dtype is None else dtypes.as_dtype(dtype)
    return made(call(_eye.operator, (), (n, m, dtype, placement(device))), requires_grad, out, "eye")


@internal(
    differentiable=False,
    samples=tuple(
        [sample(row=3, col=4, offset=1, lower=low, dtype=dtypes.int64, placement=None) for low in (True, False)]
    ),
)
def _triangle_indices(*, row, col, offset, lower, dtype, placement):
    return place(jnp.asarray(_within(row, col, max(-row, min(offset, col)), lower).astype(dtype)), placement)


def _within(row: int, col: int, offset: int, lower: bool) -> np.ndarray:
    """The rows and columns of a triangle's elements; NumPy's own functions make the whole matrix first."""
    if not row or not col:
        return np.zeros((2, 0), int)
    check_bytes(32 * row, f"the rows of a ({row}, {col}) matrix")
    rows = np.arange(row)
    first = np.zeros_like(rows) if lower else np.clip(rows + offset, 0, col)
    counts = (np.clip(rows + offset + 1, 0, col) if lower else col) - first
    check_bytes(32 * int(counts.sum()), f"the indices of a triangle of a ({row}, {col}) matrix")
    before = np.cumsum(counts) - counts
    return np.stack([np.repeat(rows, counts), np.arange(counts.sum()) - np.repeat(before - first, counts)])


def _triangle(name: str, lower: bool) -> None:
    def indices(
        row: int, col: int, offset: int = 0, *, dtype: Any = int, device: Any = None, layout: Any = None,
        pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        if row < 0 or col < 0:
            raise RuntimeError(f"{'row' if row < 0 else 'col'} must be non-negative, got {min(row, col)}")
        dtype = dtypes.as_dtype(dtype)
        return call(_triangle_indices.operator, (), (row, col, offset, lower, dtype, placement(device)))

    indices.__name__ = name
    indices.__doc__ = (
        f"The indices of the {'lower' if lower else 'upper'} triangle of a (row, col) matrix, of shape (2, n)."
    )
    composite(name, method=False)(indices)


_triangle("tril_indices", True)
_triangle("triu_indices", False)
