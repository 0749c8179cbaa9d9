"""Pooling operators: max_pool, avg_pool, lp_pool, adaptive pools, max_unpool (PyTorch: DilatedMaxPool2d.cpp, ...).

Windows are boxes, so each dimension is pooled in turn, one strided slice for each place in the window: XLA makes one
loop of them.  `lax.reduce_window` is 3 to 6 times slower on CPUs, its gradient 5 to 9 times (3x3 on 64x64).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...base.limits import check_bytes, check_size
from ...dispatch.call import call
from ...dispatch.declare import composite, internal, linear, operator
from ...dispatch.operator import freeze
from ...dispatch.promotion import refuse_complex, require_real, require_real_floating
from ...dispatch.samples import COMPLEX, real, sample, whole
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..index.index_checks import check_range
from ..pointwise.arithmetic import zero
from .convolution import expand

functional: Any = partial(operator, namespace="nn.functional", method=False, out=False)


# -- windows ----------------------------------------------------------------------------------------------------------


def _check(name: str, x: Any, n: int) -> None:
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D input, but got input of size {list(x.shape)}")
    if 0 in x.shape[x.ndim - n - 1 :]:
        raise RuntimeError(f"{name}: Expected non-zero size for the channels and space of input {list(x.shape)}")


def _out_size(name: str, size: int, kernel: int, stride: int, pad: int, dilation: int, ceil_mode: bool) -> int:
    if max(kernel, stride, pad, dilation) >= 1 << 31:
        raise RuntimeError(
            f"{name}: value cannot be converted to type int without overflow: kernel size {kernel}, stride {stride}, "
            f"pad {pad} and dilation {dilation} must be below 2**31"
        )
    if kernel < 1 or stride < 1 or dilation < 1:
        raise RuntimeError(f"{name}: kernel size, stride and dilation should be greater than zero")
    if not 0 <= pad <= (dilation * (kernel - 1) + 1) // 2:
        raise RuntimeError(
            f"{name}: pad should be at most half of effective kernel size and not negative, but got pad={pad}, "
            f"kernel_size={kernel} and dilation={dilation}"
        )
    free = size + 2 * pad - dilation * (kernel - 1) - 1
    out = (free + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (out - 1) * stride >= size + pad:
        out -= 1  # the last window would start in the padding after the input
    if out < 1:
        raise RuntimeError(f"{name}: Given input size {size}, calculated output size {out}. Output size is too small")
    return out


def _windows(name: str, shape: tuple, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> list:
    """The windows, for each dimension an array (place in the window, window) of places in the input."""
    n = len(shape)
    stride = kernel if stride is None or stride == () else stride
    given = {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    sizes = [expand(value, n, what) for what, value in given.items()]
    found = []
    for size, k, s, p, d in zip(shape, *sizes, strict=True):
        out = _out_size(name, size, k, s, p, d, ceil_mode)
        found.append(np.arange(k)[:, None] * d + np.arange(out) * s - p)
    return found


def _adaptive(shape: tuple, output_size: Any) -> list:
    """The windows of adaptive pooling; a shorter one repeats its last place."""
    n = len(shape)
    wanted = expand(output_size, n, "output_size")
    found = []
    for size, out in zip(shape, wanted, strict=True):
        out = size if out is None else out
        if out < 0:
            raise RuntimeError(
                f"adaptive pooling: elements of output_size must be greater than or equal to 0, got {out}"
            )
        check_size((out,), np.dtype("int64"))
        check_bytes(3 * 8 * out, f"the windows of adaptive pooling to {out}")
        start = np.arange(out) * size // max(out, 1)
        end = -(-(np.arange(out) + 1) * size // max(out, 1))
        longest = int(max(end - start, default=1))
        found.append(np.minimum(start + np.arange(longest)[:, None], end - 1))
    return found


def _places(x: Any, places: np.ndarray, axis: int, fill: Any) -> Any:
    """The elements at `places` along `axis`, `fill` outside: a strided slice where they are evenly spaced."""
    size, n = x.shape[axis], len(places)
    step = int(places[1] - places[0]) if n > 1 else 1
    if n == 0 or step < 1 or (np.diff(places) != step).any():
        return jnp.take(x, places, axis=axis)
    first, last = int(places[0]), int(places[-1])
    if first < 0 or last >= size:
        edges = [(0, 0, 0)] * x.ndim
        edges[axis] = (max(-first, 0), max(last + 1 - size, 0), 0)
        x = jax.lax.pad(x, jnp.asarray(fill, x.dtype), edges)
        first, last = first + edges[axis][0], last + edges[axis][0]
    return jax.lax.slice_in_dim(x, first, last + 1, step, axis)


# -- maximum ----------------------------------------------------------------------------------------------------------


def _max(x: Any, windows: list, indices: bool) -> tuple[Any, Any]:
    """The maxima of the windows and, with `indices`, their places: the first of equal ones, in row-major order."""
    n = len(windows)
    low = -jnp.inf if x.dtype in dtypes.INEXACT else jnp.iinfo(x.dtype).min
    where: Any = None
    spatial = x.shape[x.ndim - n :]
    for axis in reversed(range(x.ndim - n, x.ndim)):
        places = windows[axis - (x.ndim - n)]
        size = x.shape[axis]
        unit = int(np.prod(spatial[axis - (x.ndim - n) + 1 :]))
        best = at = None
        for row in places:
            value = _places(x, row, axis, low)
            here: Any = None
            if indices:
                inside = np.clip(row, 0, size - 1).reshape((-1,) + (1,) * (x.ndim - 1 - axis)) * unit
                here = jnp.asarray(inside, jnp.int32)
                here = jnp.broadcast_to(here, value.shape) if where is None else _places(where, row, axis, 0) + here
            if best is None:
                best, at = value, here
                continue
            better = (value > best) | (value != value)
            best = jnp.where(better, value, best)
            at = jnp.where(better, here, at) if at is not None else None
        x, where = best, at
    return x, where


def _scatter(grad: Any, at: Any, spatial: tuple) -> Any:
    """Add each element of `grad` at the place in its channel that `at` has."""
    n = len(spatial)
    lead = grad.shape[: grad.ndim - n]
    rows, size = int(np.prod(lead)), int(np.prod(spatial))
    flat = jnp.zeros((rows, size), grad.dtype)
    where = at.reshape(rows, int(np.prod(grad.shape[grad.ndim - n :])))
    flat = flat.at[jnp.arange(rows)[:, None], where].add(grad.reshape(where.shape))
    return flat.reshape(lead + tuple(spatial))


@internal(
    "max_pool2d_with_indices_backward",
    samples=(sample(real(1, 1, 2, 2), real(1, 1, 3, 3), whole(0, 9, 1, 1, 2, 2)),) + COMPLEX,
)
def max_pool2d_backward(grad_output, self, indices):
    """Put each element of a gradient at its index in a tensor like the input, whose values do not matter."""
    return _scatter(grad_output, indices, self.shape[self.ndim - 2 :])


max_pool2d_backward.derivative(grad_output=linear, self=zero)


def _declare_max(n: int) -> None:
    name = f"max_pool{n}d"

    def windows(x, kernel_size, stride, padding, dilation, ceil_mode):
        require_real(x, name)
        _check(name, x, n)
        return _windows(name, x.shape[x.ndim - n :], kernel_size, stride, padding, dilation, ceil_mode)

    def gradient(grad, self, kernel_size, stride, padding, dilation, ceil_mode):
        # The indices are computed again: to save them makes the forward 4 times slower.
        at = _max(self, windows(self, kernel_size, stride, padding, dilation, ceil_mode), True)[1]
        return _scatter(grad, at, self.shape[self.ndim - n :])

    x = real(1, 2, *(3,) * n)
    windowed = (sample(x, kernel_size=2, stride=1), sample(x, kernel_size=2, stride=2, padding=1, ceil_mode=True))

    @functional(name, function=False, node=f"MaxPool{n}DWithIndicesBackward0", samples=windowed)
    def pool(self, *, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        return _max(self, windows(self, kernel_size, stride, padding, dilation, ceil_mode), False)[0]

    pool.derivative(self=gradient)

    @functional(f"{name}_with_indices", function=False, samples=windowed)
    def pool_with_indices(self, *, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        values, at = _max(self, windows(self, kernel_size, stride, padding, dilation, ceil_mode), True)
        return values, at.astype(dtypes.default_integer())

    pool_with_indices.derivative(
        self=lambda grads, results, shapes: _scatter(grads[0], results[1], shapes[0][len(shapes[0]) - n :])
    )

    def declare(public_name: str, with_indices: bool, doc: str) -> None:
        def public(
            input: Tensor,
            kernel_size: Any,
            stride: Any = None,
            padding: Any = 0,
            dilation: Any = 1,
            ceil_mode: bool = False,
            return_indices: bool = with_indices,
        ) -> Any:
            form = pool_with_indices if with_indices or return_indices else pool
            return form.function(input, kernel_size, stride, padding, dilation, ceil_mode)

        public.__name__, public.__doc__ = public_name, doc
        composite(public_name, method=False, namespace=("nn.functional", ""))(public)

    doc = f"""The maximum of each window, over the last {n} dimension(s); `return_indices`: also where it is.

    The window's `stride` defaults to `kernel_size`; padding counts as minus infinity.  The first of equal elements is
    the maximum and takes the gradient.
    """
    declare(name, False, doc)
    doc = f"""`{name}` with indices: the maximum of each window, and where it is.

    The indices count the elements of the last {n} dimension(s), flattened; `max_unpool{n}d` takes them.
    """
    declare(f"{name}_with_indices", True, doc)
    adaptive = f"adaptive_max_pool{n}d"

    @functional(
        f"{adaptive}_with_indices",
        node=f"AdaptiveMaxPool{n}DBackward0",
        samples=(sample(x, output_size=2), sample(x, output_size=1)),
    )
    def adaptive_pool(self, *, output_size):
        require_real(self, adaptive)
        _check(adaptive, self, n)
        values, at = _max(self, _adaptive(self.shape[self.ndim - n :], output_size), True)
        return values, at.astype(dtypes.default_integer())

    adaptive_pool.function.__doc__ = (
        f"The maxima of `output_size` windows that cover the last {n} dimension(s) evenly, and where they are."
    )
    adaptive_pool.derivative(
        self=lambda grads, results, shapes: _scatter(grads[0], results[1], shapes[0][len(shapes[0]) - n :])
    )

    def public_adaptive(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        found = adaptive_pool.function(input, output_size)
        return found if return_indices else found[0]

    public_adaptive.__name__ = adaptive
    public_adaptive.__doc__ = f"The maxima of `output_size` windows that cover the last {n} dimension(s) evenly."
    composite(adaptive, method=False, namespace="nn.functional")(public_adaptive)
    if n == 1:  # torch.max_pool1d_with_indices exists, and always returns the indices
        FUNCTIONS[""][adaptive] = adaptive_pool.function


def _declare_unpool(n: int) -> None:
    name = f"max_unpool{n}d"

    places = whole(0, 3**n, 1, 1, *(2,) * n)

    @functional(name, function=False, samples=(sample(real(1, 1, *(2,) * n), places, size=(3,) * n),))
    def unpool(self, indices, *, size):
        refuse_complex(self, name)
        if self.shape != indices.shape:
            raise RuntimeError(
                f"{name}: the shape of indices should match the shape of the input, but got {list(indices.shape)} and "
                f"{list(self.shape)}"
            )
        lead = self.shape[: self.ndim - n]
        rows = int(np.prod(lead))
        where = indices.reshape(rows, -1) if rows else indices.reshape(0, 1)
        flat = jnp.zeros((rows, int(np.prod(size))), self.dtype)
        flat = flat.at[jnp.arange(rows)[:, None], where].set(self.reshape(where.shape))
        return flat.reshape(lead + size)

    def gradient(grad, indices):
        flat = grad.reshape(grad.shape[: grad.ndim - n] + (-1,))
        where = indices.reshape(indices.shape[: grad.ndim - n] + (-1,))
        return jnp.take_along_axis(flat, where, axis=-1).reshape(indices.shape)

    unpool.derivative(self=gradient)

    def public(
        input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Tensor:
        stride = kernel_size if stride is None else stride
        sizes = [
            expand(freeze(v), n, w) for v, w in ((kernel_size, "kernel_size"), (stride, "stride"), (padding, "padding"))
        ]
        space = tuple(input.shape)[input.ndim - n :]
        least = tuple((i - 1) * s + k - 2 * p for i, k, s, p in zip(space, *sizes, strict=True))
        size = least if output_size is None else tuple(int(o) for o in output_size)[-n:]
        for wanted, usual, s in zip(size, least, sizes[1], strict=True):
            if not usual - s < wanted < usual + s:
                raise ValueError(
                    f"invalid output_size {list(size)}: each size must be within the stride of {list(least)}"
                )
        check_range(indices, int(np.prod(size)), input.ndim - n)
        return call(unpool.operator, (input, indices), (size,))

    public.__name__ = name
    public.__doc__ = f"Put each maximum back to where `max_pool{n}d` found it, with zeros elsewhere."
    composite(name, method=False, namespace="nn.functional")(public)


# -- mean -------------------------------------------------------------------------------------------------------------


def _sum(x: Any, windows: list) -> Any:
    first = x.ndim - len(windows)
    for axis, places in enumerate(windows, first):
        x = sum(_places(x, row, axis, 0) for row in places)
    return x


def _declare_mean(n: int) -> None:
    name = f"avg_pool{n}d"

    x = real(1, 2, *(3,) * n)
    padded = {"kernel_size": 2, "stride": 2, "padding": 1}
    windowed = (
        sample(x, kernel_size=2, stride=1), sample(x, **padded, ceil_mode=True),
        sample(x, **padded, count_include_pad=False), sample(x, **padded, divisor_override=3),
    )  # fmt: skip

    @functional(name, namespace=("nn.functional", "") if n == 1 else "nn.functional", samples=windowed)
    def pool(
        self, *, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
    ):
        _check(name, self, n)
        require_real_floating(self, name)
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        spatial = self.shape[self.ndim - n :]
        windows = _windows(name, spatial, kernel_size, stride, padding, 1, ceil_mode)
        total = _sum(self, windows)
        if divisor_override is not None:
            return total / divisor_override
        # A window counts its places inside the input or, with `count_include_pad`, inside the padded input.
        pads = expand(padding, n, "padding") if count_include_pad else (0,) * n
        counts = [
            np.sum((places >= -pad) & (places < size + pad), 0) for places, size, pad in zip(windows, spatial, pads)
        ]
        return total / jnp.asarray(_outer(counts), self.dtype)

    pool.derivative(self=linear)
    pool.function.__doc__ = f"""The mean of each window, over the last {n} dimension(s).

    The window's `stride` defaults to `kernel_size`.  Padded zeros count unless `count_include_pad=False`;
    `divisor_override` replaces the count.
    """

    @functional(
        f"adaptive_avg_pool{n}d",
        namespace=("nn.functional", "") if n == 1 else "nn.functional",
        samples=(sample(x, output_size=2), sample(x, output_size=1)),
    )
    def adaptive(self, *, output_size):
        _check(f"adaptive_avg_pool{n}d", self, n)
        require_real_floating(self, f"adaptive_avg_pool{n}d")
        return adaptive_mean(self, n, output_size)

    adaptive.derivative(self=linear)
    adaptive.function.__doc__ = f"The means of `output_size` windows that cover the last {n} dimension(s) evenly."


def _declare_norm(n: int) -> None:
    name = f"lp_pool{n}d"

    def public(
        input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> Tensor:
        if input.ndim not in (n + 1, n + 2):
            raise (IndexError if input.ndim < n + 1 else RuntimeError)(
                f"{name}: Expected {n + 1}D or {n + 2}D input, but got input of size {list(input.shape)}"
            )
        if norm_type == float("inf"):
            return FUNCTIONS["nn.functional"][f"max_pool{n}d"](input.abs(), kernel_size, stride, 0, 1, ceil_mode)
        mean = FUNCTIONS["nn.functional"][f"avg_pool{n}d"](input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
        size = int(np.prod(expand(freeze(kernel_size), n, "kernel_size")))
        # The relu changes no value, but makes the gradient 0 where the power of a zero sum has an infinite one.
        return (mean.sign() * mean.abs().relu() * size).pow(1.0 / norm_type)

    public.__name__ = public.__qualname__ = name
    public.__doc__ = f"""(sum of x ** norm_type) ** (1 / norm_type) of each window, over the last {n} dimension(s).

    The window's `stride` defaults to `kernel_size`.  Where the sum is 0 the gradient is 0.
    For the norm_type inf it is the largest |x|.
    """
    composite(name, method=False, namespace="nn.functional")(public)


def adaptive_mean(x: Any, n: int, output_size: Any) -> Any:
    """The means of windows that cover the last `n` dimensions evenly."""
    for axis, places in enumerate(_adaptive(x.shape[x.ndim - n :], output_size), x.ndim - n):
        longest, out = places.shape
        if longest * out == x.shape[axis]:  # equal windows, side by side
            x = jnp.mean(x.reshape(x.shape[:axis] + (out, longest) + x.shape[axis + 1 :]), axis=axis + 1)
            continue
        # A shorter window repeats its last place: each place counts once.
        once = np.vstack([np.ones_like(places[:1], bool), places[1:] != places[:-1]])
        shape = (-1,) + (1,) * (x.ndim - 1 - axis)
        total: Any = 0
        for row, counts in zip(places, once, strict=True):
            value = _places(x, row, axis, 0)
            total = total + (value if counts.all() else jnp.where(counts.reshape(shape), value, 0))
        x = total / jnp.asarray(once.sum(0).reshape(shape), x.dtype)
    return x


def _outer(counts: list) -> np.ndarray:
    """The product of the counts of each dimension, for every window."""
    found = counts[0]
    for more in counts[1:]:
        found = found[..., None] * more
    return found


for _n in (1, 2, 3):
    _declare_max(_n)
    _declare_unpool(_n)
    _declare_mean(_n)
    _declare_norm(_n)
