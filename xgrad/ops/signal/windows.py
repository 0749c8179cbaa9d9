"""Window functions: the operators behind xgrad.signal.windows, and hann_window, hamming_window, ...

One operator makes them, from a shape of the table below: a function of the places 0 to M - 1 and of N, the distance of
the ends: M - 1 in a symmetric window, M in a periodic one.  (PyTorch: torch/signal/windows, TensorFactories.cpp.)
"""

from collections.abc import Callable, Iterable, Sequence
from math import pi
from typing import Any

import jax.numpy as jnp
from jax.scipy import special as js

from ...base import dtypes
from ...config import settings
from ...dispatch.call import call
from ...dispatch.declare import composite, internal
from ...dispatch.samples import sample
from ...tensor import Tensor
from ...views.named.arguments import int_of
from ..create.factories import made
from ..create.from_data import place, placement

# name: function of the places n, of N and of the window's parameters.  For M = 1, where N is 0, a window is 1.
_SHAPES: dict[str, Callable] = {
    "bartlett": lambda n, N: 1 - jnp.abs(2 / N * n - 1),
    "cosine": lambda n, N: jnp.sin(pi / (N + 1) * (n + 0.5)),
    "cosines": lambda n, N, *a: sum((-1) ** k * c * jnp.cos(2 * pi * k / N * n) for k, c in enumerate(a)),
    "exponential": lambda n, N, tau, center=None: jnp.exp(-jnp.abs(n - (N / 2 if center is None else center)) / tau),
    "gaussian": lambda n, N, std: jnp.exp(-(((n - N / 2) / std) ** 2) / 2),
    "kaiser": lambda n, N, beta: _kaiser(beta, beta * jnp.sqrt(jnp.maximum(1 - (2 / N * n - 1) ** 2, 0))),
}


def _kaiser(beta: Any, x: Any) -> Any:
    """i0(x) / i0(beta), without overflow."""
    return js.i0e(x) / js.i0e(beta) * jnp.exp(jnp.abs(x) - jnp.abs(beta))


_SAMPLES = tuple(
    [
        sample(*numbers, shape=shape, M=5, periodic=periodic, dtype=dtypes.float64, placement=None)
        for shape, numbers, periodic in (
            ("bartlett", (), True), ("cosine", (), False), ("cosines", (0.5, 0.25), True),
            ("exponential", (1.5,), False), ("gaussian", (0.5,), False), ("kaiser", (3.0,), True),
        )
    ]
)  # fmt: skip


@internal("_window", differentiable=False, samples=_SAMPLES)
def _window(*numbers, shape, M, periodic, dtype, placement):
    wide = jnp.promote_types(dtype, jnp.float32)
    n, N = jnp.arange(M, dtype=dtypes.real_of(wide)), M if periodic and M > 1 else M - 1
    alone = M < 2 and not (shape == "exponential" and len(numbers) == 2)
    values = jnp.ones(1) if alone else _SHAPES[shape](n, N, *(jnp.asarray(a, n.dtype) for a in numbers))
    return place(jnp.broadcast_to(values, (M,)).astype(dtype), placement)


def _made(
    shape: str, M: int, periodic: bool, numbers: Iterable, dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    statics = (shape, M, bool(periodic), dtype, placement(device))
    return made(call(_window.operator, tuple(numbers), statics), requires_grad)


# -- xgrad.signal.windows ---------------------------------------------------------------------------------------------


def _symmetric(
    shape: str, name: str, M: int, numbers: Iterable, sym: bool, dtype: Any, layout: Any, device: Any,
    requires_grad: bool,
) -> Tensor:  # fmt: skip
    """Make a window, after checks of the common arguments."""
    M = int_of(M)
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout not in (None, "strided"):
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    dtype = settings.default_dtype if dtype is None else dtypes.as_dtype(dtype)
    if dtype not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype.name}")
    return _made(shape, M, not sym, numbers, dtype, device, requires_grad)


def _without_numbers(name: str, shape: str, numbers: tuple, doc: str) -> None:
    def window(
        M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        return _symmetric(shape, name, M, numbers, sym, dtype, layout, device, requires_grad)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"{doc}, of `M` points; `sym=False`: a period of one that is M + 1 long."
    composite(name, method=False, namespace="signal.windows")(window)


_without_numbers("bartlett", "bartlett", (), "The triangular window")
_without_numbers("blackman", "cosines", (0.42, 0.5, 0.08), "Blackman's window")
_without_numbers("cosine", "cosine", (), "The window that is half a wave of the sine")
_without_numbers("hamming", "cosines", (0.54, 0.46), "Hamming's window, a cosine raised a little less than Hann's")
_without_numbers("hann", "cosines", (0.5, 0.5), "Hann's window, a raised cosine")
_without_numbers("nuttall", "cosines", (0.3635819, 0.4891775, 0.1365995, 0.0106411), "Nuttall's window of four cosines")

_windows = {"method": False, "namespace": "signal.windows"}


@composite(**_windows)
def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-|n - center| / tau), of `M` points; `center` is the middle, and only of periodic windows another."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    numbers = (tau,) if center is None else (tau, center)
    return _symmetric("exponential", "exponential", M, numbers, sym, dtype, layout, device, requires_grad)


@composite(**_windows)
def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The Gaussian bell of standard deviation `std`, of `M` points."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _symmetric("gaussian", "gaussian", M, (std,), sym, dtype, layout, device, requires_grad)


@composite(**_windows)
def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Kaiser's window of shape `beta`, of `M` points: i0 of half an ellipse."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _symmetric("kaiser", "kaiser", M, (beta,), sym, dtype, layout, device, requires_grad)


@composite(**_windows)
def general_cosine(
    M: int, *, a: Sequence[float], sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The sum of (-1)**k * a[k] * cos(2 pi k n / (M - 1)), of `M` points.

    >>> import xgrad
    >>> xgrad.signal.windows.general_cosine(5, a=[0.5, 0.5])
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    if int_of(M) > 1 and not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    a = tuple(a) if isinstance(a, Iterable) else ()
    if M > 1 and not a:
        raise ValueError("Coefficients cannot be empty")
    return _symmetric("cosines", "general_cosine", M, a, sym, dtype, layout, device, requires_grad)


@composite(**_windows)
def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - (1 - alpha) * cos(2 pi n / (M - 1)), of `M` points."""
    numbers = (alpha, 1.0 - alpha)
    return _symmetric("cosines", "general_hamming", M, numbers, sym, dtype, layout, device, requires_grad)


# -- names in torch itself --------------------------------------------------------------------------------------------


def _periodic(
    shape: str, name: str, window_length: int, periodic: bool, numbers: tuple, dtype: Any, layout: Any, device: Any,
    requires_grad: bool,
) -> Tensor:  # fmt: skip
    """Make a window, after checks of the common arguments."""
    window_length = int_of(window_length)
    if layout not in (None, "strided"):
        raise RuntimeError(f"{name} is not implemented for sparse types, got: {layout}")
    dtype = settings.default_dtype if dtype is None else dtypes.as_dtype(dtype)
    if dtype not in dtypes.FLOATS:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtypes.torch_name(dtype)}")
    if window_length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={window_length}")
    return _made(shape, window_length, periodic, numbers, dtype, device, requires_grad)


def _plain(name: str, shape: str, numbers: tuple, doc: str) -> None:
    def window(
        window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        return _periodic(shape, name, window_length, periodic, numbers, dtype, layout, device, requires_grad)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"{doc}, of `window_length` points; `periodic=False`: symmetric."
    composite(name, method=False)(window)


_plain("bartlett_window", "bartlett", (), "The triangular window")
_plain("blackman_window", "cosines", (0.42, 0.5, 0.08), "Blackman's window")
_plain("hann_window", "cosines", (0.5, 0.5), "Hann's window, a raised cosine")


@composite(method=False)
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - beta * cos(2 pi n / N), of `window_length` points."""
    return _periodic(
        "cosines", "hamming_window", window_length, periodic, (alpha, beta), dtype, layout, device, requires_grad
    )


@composite(method=False)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Kaiser's window of shape `beta`, of `window_length` points."""
    return _periodic("kaiser", "kaiser_window", window_length, periodic, (beta,), dtype, layout, device, requires_grad)
