"""Declares the operators of xgrad.fft: discrete Fourier transforms, their shifts and sample frequencies.

All eighteen transforms are four of `jax.numpy.fft`: the ones of one and of two dimensions are the n-dimensional ones,
and the transforms of signals with a real spectrum (hfft, ihfft) are irfft and rfft with a conjugate and the direction
of the norm exchanged.  All are linear: their gradients save nothing, and are `jax.vjp`'s.
(PyTorch: SpectralOps.cpp, torch/fft.)
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...config import settings
from ...dispatch.call import call
from ...dispatch.declare import composite, internal, linear, operator
from ...dispatch.promotion import conj
from ...dispatch.samples import COMPLEX, SINGLE, real, sample
from ...tensor import Tensor
from ...views.named.arguments import int_of, own_dim
from ..create.factories import made
from ..create.from_data import number_dtype, place, placement

_TRANSFORMS = {
    "fft": "The discrete Fourier transform{}.",
    "ifft": "The inverse discrete Fourier transform{}.",
    "rfft": "The discrete Fourier transform{} of real input: of the last dimension the half that is not redundant.",
    "irfft": "The inverse of rfft{}: real.  The size of its last dimension is even unless it is given.",
    "hfft": "The discrete Fourier transform{} of a Hermitian signal, given by its half: real.",
    "ihfft": "The inverse of hfft{}: of real input, the half that is not redundant.",
}
_OPPOSITE = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
_TO_REAL, _OF_REAL = ("irfft", "hfft"), ("rfft", "ihfft")


def transform(x: Any, base: str, sizes: Sequence[int], dims: Sequence[int], norm: str | None) -> Any:
    """The transform `base` of an array over `dims`, after padding it with zeros or cutting it to `sizes`."""
    if norm not in _OPPOSITE:
        raise RuntimeError(f'Invalid normalization mode: "{norm}": it is "backward", "ortho" or "forward"')
    if x.dtype in dtypes.FLOATS and x.dtype.itemsize < 4:
        raise RuntimeError(f"Unsupported dtype {dtypes.torch_name(x.dtype)}: {base} takes 32 bits or more")
    if x.dtype not in dtypes.INEXACT:
        x = x.astype(settings.default_dtype)
    if base in _OF_REAL and x.dtype in dtypes.COMPLEX:
        real = "a real" if len(dims) == 1 else "a real-valued"
        raise RuntimeError(f"{base} expects {real} input tensor, but got {dtypes.torch_name(x.dtype)}")
    if base not in _OF_REAL:
        x = x.astype(dtypes.complex_of(x.dtype))
    if base == "hfft":
        return jnp.fft.irfftn(conj(x), sizes, dims, _OPPOSITE[norm])
    if base == "ihfft":
        return conj(jnp.fft.rfftn(x, sizes, dims, _OPPOSITE[norm]))
    if not dims:
        return x
    return getattr(jnp.fft, f"{base}n")(x, sizes, dims, norm)


def _positive(sizes: Sequence[int]) -> None:
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int_of(v) for v in (values if isinstance(values, Sequence) else (values,)))


def _sizes_and_dims(x: Any, base: str, s: Any, dim: Any) -> tuple[list[int], list[int]]:
    """The sizes and dimensions of an n-dimensional transform's result, with defaults for missing arguments."""
    dims = None if dim is None else [own_dim(d, x.ndim) for d in _ints(dim)]
    if dims is not None and len(set(dims)) < len(dims):
        raise RuntimeError(f"FFT dims must be unique, but got {dims}")
    given = None if s is None else _ints(s)
    if given is not None and dims is not None and len(given) != len(dims):
        raise RuntimeError(
            f"When given, dim and shape arguments must have the same length, but got {len(dims)} and {len(given)}"
        )
    if given is not None and len(given) > x.ndim:
        raise RuntimeError(f"Got shape with {len(given)} values but input tensor only has {x.ndim} dimensions.")
    if dims is None:
        dims = list(range(x.ndim - (x.ndim if given is None else len(given)), x.ndim))
    if not dims and base not in ("fft", "ifft"):
        raise RuntimeError(f"{base}n must transform at least one axis")
    given = [-1] * len(dims) if given is None else given
    sizes = [x.shape[d] if n == -1 else n for n, d in zip(given, dims)]
    if base in _TO_REAL and given[-1] == -1:
        sizes[-1] = 2 * (x.shape[dims[-1]] - 1)
    _positive(sizes)
    return sizes, dims


def check_ints(values: tuple[Any, ...]) -> None:
    """Raise for values that are not ints, at each call: 2.0 and True equal ints, and would find their kernels."""
    for value in values:
        if value.__class__ is not int and value is not None:
            _ints(value)


def _check(arrays: tuple, statics: tuple) -> None:
    check_ints(statics[:2])


_SAMPLES = (sample(real(2, 3)), sample(real(2, 3), n=4, dim=0, norm="ortho"), sample(real(0, 3), norm="forward"))
_SAMPLES_N = (sample(real(2, 3)), sample(real(2, 3), s=(4, 3), dim=(1, 0), norm="ortho"))


def _declare(base: str, doc: str) -> None:
    def one(self, *, n=None, dim=-1, norm=None):
        dim = own_dim(dim, self.ndim)
        if n is None:
            n = 2 * (self.shape[dim] - 1) if base in _TO_REAL else self.shape[dim]
        _positive([n])
        return transform(self, base, [n], [dim], norm)

    def two(self, *, s=None, dim=(-2, -1), norm=None):
        return transform(self, base, *_sizes_and_dims(self, base, s, dim), norm)

    def many(self, *, s=None, dim=None, norm=None):
        return transform(self, base, *_sizes_and_dims(self, base, s, dim), norm)

    node = "FftC2RBackward0" if base in _TO_REAL else "FftR2CBackward0" if base in _OF_REAL else "FftC2CBackward0"
    for suffix, function, over in (("", one, ""), ("2", two, " over two dimensions"), ("n", many, " over dimensions")):
        function.__doc__ = doc.format(over) + (
            f"\n\n    `{'s' if suffix else 'n'}`: the size{'s' if suffix else ''} of the result in `dim`, for which the"
            " input is cut or filled up with zeros;\n    `norm`: which of both directions is divided by their product"
            ' ("backward": the inverse; "forward"), or each by\n    its square root ("ortho").'
        )
        name = f"fft_{base}{suffix}"
        operator(
            name,
            namespace="fft",
            method=False,
            node=node,
            check=_check,
            samples=(_SAMPLES_N if suffix else _SAMPLES) + COMPLEX * (base not in _OF_REAL) + SINGLE,
        )(function).derivative(self=linear)


for _base, _doc in _TRANSFORMS.items():
    _declare(_base, _doc)


# -- shifts and frequencies -------------------------------------------------------------------------------------------


_SHIFTS = (sample(real(2, 3)), sample(real(2, 3), dim=1), sample(real()), sample(real(0, 3), dim=0))


def _shift(name: str, shift: Any, doc: str) -> None:
    def function(self, *, dim=None):
        dims = range(self.ndim) if dim is None else [own_dim(d, self.ndim) for d in _ints(dim)]
        return shift(self, axes=tuple(dims))

    function.__doc__ = doc
    operator(f"fft_{name}", namespace="fft", method=False, out=False, node="RollBackward0", samples=_SHIFTS + COMPLEX)(
        function
    ).derivative(self=linear)


_shift("fftshift", jnp.fft.fftshift, "Move the zero frequency of the dimensions `dim` (None: of all) to the middle.")
_shift("ifftshift", jnp.fft.ifftshift, "The inverse of fftshift: move the zero frequency to the front.")


@internal(
    differentiable=False,
    samples=tuple([sample(0.25, n=5, half=half, dtype=dtypes.float64, placement=None) for half in (True, False)]),
)
def _frequencies(step, *, n, half, dtype, placement):
    i = jnp.arange(n // 2 + 1) if half else (jnp.arange(n) + n // 2) % n - n // 2
    return place(i.astype(dtype) * step.astype(dtype), placement)


def _frequency_table(name: str, half: bool, doc: str) -> None:
    def frequencies(
        n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
        device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        n = int_of(n)
        if dtype is None:
            dtype = number_dtype(0.0) if out is None else out.dtype
        dtype = dtypes.as_dtype(dtype)
        if dtype not in dtypes.INEXACT:
            raise RuntimeError(f"{name} requires a floating point or complex dtype, but got {dtypes.torch_name(dtype)}")
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
        step = float(np.inf if not n * d else 1 / (n * d))
        return made(call(_frequencies.operator, (step,), (n, half, dtype, placement(device))), requires_grad, out, name)

    frequencies.__name__ = frequencies.__qualname__ = name
    frequencies.__doc__ = doc
    composite(name, method=False, namespace="fft")(frequencies)


_EXAMPLE = """

    >>> import xgrad
    >>> xgrad.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
_frequency_table(
    "fftfreq", False, "The frequencies of the results of `fft` of `n` samples that lie `d` apart." + _EXAMPLE
)
_frequency_table("rfftfreq", True, "The frequencies of the results of `rfft` of `n` samples that lie `d` apart.")
