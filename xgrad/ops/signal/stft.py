"""stft, istft: compute a signal's short-time Fourier transform (the transforms of windowed frames), and its inverse.

Frames are made of slices of whole hops side by side, so neither they nor their sum (`_overlapped`, the transpose) need
a gather or a scatter.  (PyTorch: SpectralOps.cpp, torch/functional.py.)
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...dispatch.declare import linear, operator
from ...dispatch.promotion import promote
from ...dispatch.samples import COMPLEX, SINGLE, complex_numbers, fixed, positive, real, sample
from ..index.index_checks import on_host
from ..shape.padding import constant_pad_nd, pad_from_input
from .fft import check_ints, transform

MOST_SLICES = 32  # in a program; frames that overlap more often are gathered


def _count(length: int, n: int, hop: int) -> int:
    return (length - n) // hop + 1


def _frames(x: Any, n: int, hop: int) -> Any:
    """(..., frames, n): the frames of `n` elements that begin at every `hop`-th one."""
    count, parts = _count(x.shape[-1], n, hop), -(-n // hop)
    if parts > MOST_SLICES:
        return x[..., hop * np.arange(count)[:, None] + np.arange(n)]
    length = (count + parts - 1) * hop
    x = jnp.pad(x[..., :length], [(0, 0)] * (x.ndim - 1) + [(0, max(length - x.shape[-1], 0))])
    hops = x.reshape(*x.shape[:-1], count + parts - 1, hop)
    return jnp.concatenate([hops[..., j : j + count, :] for j in range(parts)], axis=-1)[..., :n]


def _overlapped(frames: Any, length: int, hop: int) -> Any:
    """Add up frames at their places: (..., length)."""
    signal = jax.ShapeDtypeStruct((*frames.shape[:-2], length), frames.dtype)
    return jax.linear_transpose(lambda x: _frames(x, frames.shape[-1], hop), signal)(frames)[0]


def _padded(x: Any, n: int, mode: str) -> Any:
    return constant_pad_nd(x, 0, pad=(n, n)) if mode == "constant" else pad_from_input(x, pad=(n, n), mode=mode)


def _centred(window: Any, n_fft: int) -> Any:
    """Pad the window with zeros on both sides, to `n_fft`."""
    left = (n_fft - window.shape[0]) // 2
    return jnp.pad(window, (left, n_fft - window.shape[0] - left))


def _check_sizes(arrays: tuple, statics: tuple) -> None:
    check_ints(statics[:3])


@operator(
    out=False,
    check=_check_sizes,
    signature='input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect", '
    "normalized=False, onesided=None, return_complex=None, align_to_window=None",
    samples=(
        sample(real(2, 9), positive(4), n_fft=4, hop_length=2, return_complex=True),
        sample(real(9), None, n_fft=4, center=False, normalized=True, onesided=False, return_complex=True),
    )
    + COMPLEX
    + SINGLE,
)
def stft(
    self, window=None, *, n_fft, hop_length=None, win_length=None, center=True, pad_mode="reflect", normalized=False,
    onesided=None, return_complex=None, align_to_window=None,
):  # fmt: skip
    """The short-time Fourier transform of signals (length,) or (batch, length): (batch, frequencies, frames).

    Frames of `n_fft` begin at every `hop_length`-th element (n_fft // 4) and are multiplied by `window`, of
    `win_length` (n_fft).  `center`: the signal is padded, so that they are centred there.  `onesided`: only the
    frequencies that are not redundant; the default for real signals.  `return_complex=False`: real and imaginary parts
    in a last dimension.

    >>> import xgrad
    >>> xgrad.stft(xgrad.ones(8), 4, window=xgrad.hann_window(4), return_complex=True).shape
    xgrad.Size([3, 9])
    """
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    is_complex = self.dtype in dtypes.COMPLEX or (window is not None and window.dtype in dtypes.COMPLEX)
    if return_complex is None and not is_complex:
        raise RuntimeError(
            "stft requires the return_complex parameter be given for real inputs, and will further require that "
            "return_complex=True in a future PyTorch release."
        )
    shown = f"stft(input {list(self.shape)}, n_fft={n_fft}, hop_length={hop}, win_length={width})"
    if self.dtype not in dtypes.INEXACT:
        raise RuntimeError(f"{shown}: expected a tensor of floating point or complex values")
    if self.ndim not in (1, 2):
        raise RuntimeError(f"{shown}: expected a 1D or 2D tensor")
    x = self if self.ndim == 2 else self[None]
    around = n_fft // 2 if center else (n_fft - width) // 2 if align_to_window else 0
    if around > 0:
        x = _padded(x[None], around, pad_mode if center else "constant")[0]
    if not 0 < n_fft <= x.shape[-1]:
        raise RuntimeError(f"{shown}: expected 0 < n_fft < {x.shape[-1]}, but got n_fft={n_fft}")
    if hop <= 0:
        raise RuntimeError(f"{shown}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < width <= n_fft:
        raise RuntimeError(f"{shown}: expected 0 < win_length <= n_fft, but got win_length={width}")
    if window is not None and window.shape != (width,):
        raise RuntimeError(
            f"{shown}: expected a 1D window tensor of size equal to win_length={width}, but got window with size "
            f"{list(window.shape)}"
        )
    if onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    frames = _frames(x, n_fft, hop)
    if window is not None or width < n_fft:
        window = jnp.ones(width, x.dtype) if window is None else window
        frames, window = promote(frames, _centred(window, n_fft))
        frames = frames * window
    onesided = not is_complex if onesided is None else onesided
    norm = "ortho" if normalized else None
    spectrum = transform(frames, "rfft" if onesided else "fft", [n_fft], [-1], norm).mT
    spectrum = spectrum if self.ndim == 2 else spectrum[0]
    if return_complex is False:
        return jnp.stack([spectrum.real, spectrum.imag], axis=-1)
    return spectrum


stft.derivative(self=linear, window=linear)


def _span(shape: tuple, n_fft: int, hop: int, center: bool, length: int | None) -> tuple[int, int, int]:
    """(the length of the summed frames, the start and the end of the signal in it)."""
    whole = n_fft + hop * (shape[-1] - 1)
    start = n_fft // 2 if center else 0
    if length is not None:
        return whole, start, start + length
    return whole, start, whole - start


def _envelope(window: Any, frames: int, n_fft: int, whole: int, hop: int) -> Any:
    """The sum of the squares of the windows at their places."""
    return _overlapped(jnp.broadcast_to(_centred(window, n_fft) ** 2, (frames, n_fft)), whole, hop)


def _check_envelope(arrays: tuple, statics: tuple) -> None:
    """Raise if the sum of the windows, by which the signal is divided, is 0 somewhere; only for windows on the host."""
    self, window = arrays
    n_fft, hop, width, center, _, _, length, _ = statics
    check_ints((n_fft, hop, width, length))
    hop, width = n_fft // 4 if hop is None else hop, n_fft if width is None else width
    values = np.ones(max(width, 0)) if window is None else on_host(window)
    if values is None or not 0 < hop <= width <= n_fft or values.shape != (width,) or self.ndim not in (2, 3):
        return  # the operator raises the error
    whole, start, end = _span(self.shape, n_fft, hop, center, length)
    parts, left, frames = -(-n_fft // hop), (n_fft - width) // 2, self.shape[-1]
    squares = np.pad(values**2, (left, parts * hop - width - left)).reshape(parts, hop)
    sums = np.zeros((frames + parts - 1, hop), values.dtype)
    for j in range(parts):
        sums[j : j + frames] += squares[j]
    envelope = np.abs(sums.reshape(-1)[start : min(end, whole)])
    if envelope.size and envelope.min() < 1e-11:
        raise RuntimeError(
            f"istft(input {list(self.shape)}, n_fft={n_fft}, hop_length={hop}, win_length={width}): window overlap "
            "add min: 1: somewhere the windows add up to 0, where the signal is lost"
        )


@operator(
    out=False,
    signature="input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, "
    "onesided=None, length=None, return_complex=False",
    check=_check_envelope,
    samples=(
        sample(complex_numbers(2, 3, 4), fixed(positive(4)), n_fft=4, hop_length=2),
        sample(complex_numbers(3, 4), None, n_fft=4, hop_length=2, normalized=True, length=5),
    )
    + SINGLE,
)
def istft(
    self, window=None, *, n_fft, hop_length=None, win_length=None, center=True, normalized=False, onesided=None,
    length=None, return_complex=False,
):  # fmt: skip
    """The signals whose `stft` with the same arguments is `input`, (frequencies, frames) or with a batch.

    `length`: the signals' length.  `return_complex`: True for complex signals.  Raises `RuntimeError` if the windows
    add up to 0 somewhere.
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    shown = f"istft(input {list(self.shape)}, n_fft={n_fft}, hop_length={hop}, win_length={width})"
    if self.dtype not in dtypes.COMPLEX:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    if not self.size:
        raise RuntimeError(f"{shown}: input tensor cannot be empty.")
    if self.ndim not in (2, 3):
        raise RuntimeError(f"{shown}: expected a tensor with 2 or 3 dimensions, but got {self.ndim}")
    size = self.shape[-2]
    onesided = size != n_fft if onesided is None else onesided
    if size != (n_fft // 2 + 1 if onesided else n_fft):
        raise RuntimeError(
            f"{shown}: expected the frequency dimension (3rd to the last) of the input tensor to match "
            f"n_fft{' / 2 + 1' if onesided else ''} when onesided={bool(onesided)}, but got {size}"
        )
    if not 0 < hop <= width:
        raise RuntimeError(f"{shown}: expected 0 < hop_length <= win_length")
    if not 0 < width <= n_fft:
        raise RuntimeError(f"{shown}: expected 0 < win_length <= n_fft")
    if window is None:
        window = jnp.ones(width, dtypes.real_of(self.dtype))
    if window.shape != (width,):
        raise RuntimeError(f"{shown}: Invalid window shape. window has to be 1D and length of `win_length`")
    if return_complex and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if not return_complex and window.dtype in dtypes.COMPLEX:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    frames, norm = self.mT, "ortho" if normalized else None
    if return_complex:
        frames = transform(frames, "ifft", [n_fft], [-1], norm)
    else:
        frames = transform(frames[..., : n_fft // 2 + 1], "irfft", [n_fft], [-1], norm)
    whole, start, end = _span(self.shape, n_fft, hop, center, length)
    frames, window = promote(frames, window)
    signal = _overlapped(frames * _centred(window, n_fft), whole, hop)[..., start:end]
    signal = signal / _envelope(window, self.shape[-1], n_fft, whole, hop)[start:end]
    return jnp.pad(signal, [(0, 0)] * (signal.ndim - 1) + [(0, max(end - whole, 0))])


istft.derivative(self=linear)
