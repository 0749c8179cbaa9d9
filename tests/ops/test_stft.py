"""stft and istft: values, derivatives and errors are PyTorch's."""

import numpy as np
import pytest

import xgrad

from ..oracle import same, same_error
from .derivatives import agree, numbers

pytestmark = [
    pytest.mark.filterwarnings("ignore:A window was not provided"),
    pytest.mark.filterwarnings("ignore:stft with return_complex=False is deprecated"),
]

SIGNAL, WINDOW = numbers(2, 20), np.hanning(10)[1:-1]
OPTIONS = [
    {}, {"hop_length": 3}, {"hop_length": 1}, {"hop_length": 11}, {"center": False}, {"normalized": True},
    {"onesided": False}, {"pad_mode": "constant"}, {"center": False, "align_to_window": True},
]  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.one_in(8)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_stft(options):
    width = {"win_length": 6} if "center" in options else {}
    window = WINDOW[: width.get("win_length", 8)]
    agree(lambda T, x, w: T.stft(x, 8, window=w, return_complex=True, **options, **width), SIGNAL, window)


def test_the_window_alone_is_saved_for_the_gradient_of_the_signal():
    x = xgrad.tensor(SIGNAL, requires_grad=True)
    node = xgrad.stft(x, 8, window=xgrad.tensor(WINDOW), return_complex=True).grad_fn
    assert [tuple(saved.shape) for saved in node.saved] == [(8,)]


def test_stft_of_one_signal_as_a_method_in_parts():
    agree(lambda T, x, w: x.stft(8, window=w, return_complex=False), SIGNAL[0], WINDOW)


@pytest.mark.exhaustive
def test_stft_of_complex_numbers():
    agree(lambda T, x, w: T.stft(x, 8, window=w), SIGNAL + 1j * SIGNAL[::-1], WINDOW)
    agree(lambda T, x, w: T.stft(x, 8, window=w), SIGNAL, WINDOW + 0.5j)


def test_frames_that_overlap_often():
    agree(lambda T, x: T.stft(x, 40, hop_length=1, center=False, return_complex=True), numbers(1, 44), order=1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "options",
    [{}, {"length": 15}, {"length": 22}, {"normalized": True}, {"onesided": False}, {"hop_length": 3}],
    ids=str,
)
def test_istft(options):
    rows = 8 if options.get("onesided") is False else 5
    spectrum = numbers(2, rows, 11) + 1j * numbers(2, rows, 11, seed=1)
    agree(lambda T, x, w: T.istft(x, 8, window=w, **options), spectrum, WINDOW, order=1, forward=False)


def test_istft_of_one_spectrum_as_a_method():
    agree(lambda T, x, w: x.istft(8, window=w), numbers(5, 11) + 1j * numbers(5, 11, seed=1), WINDOW)


def test_istft_to_complex_numbers():
    spectrum = numbers(2, 8, 11) + 1j * numbers(2, 8, 11, seed=1)
    agree(lambda T, x, w: T.istft(x, 8, window=w, return_complex=True), spectrum, WINDOW + 0.1j, order=1)


def test_istft_gives_the_signal_back():
    x, w = xgrad.tensor(SIGNAL), xgrad.tensor(WINDOW)
    same(xgrad.istft(x.stft(8, window=w, return_complex=True), 8, window=w, length=20), SIGNAL)


WRONG_FRAMES = {
    "real without return_complex": (lambda T, x: T.stft(x, 8), "requires the return_complex parameter"),
    "too long": (lambda T, x: T.stft(x, 30, center=False, return_complex=True), "expected 0 < n_fft"),
    "hop": (lambda T, x: T.stft(x, 8, 0, return_complex=True), "expected hop_length > 0"),
    "width": (lambda T, x: T.stft(x, 8, win_length=9, return_complex=True), "expected 0 < win_length <= n_fft"),
    "window": (lambda T, x: T.stft(x, 8, window=T.ones(4), return_complex=True), "expected a 1D window tensor"),
    "three dimensions": (lambda T, x: T.stft(x[None], 8, return_complex=True), "expected a 1D or 2D tensor"),
    "both": (lambda T, x: T.stft(x, 8, align_to_window=True, return_complex=True), "align_to_window"),
    "half of complex": (lambda T, x: T.stft(x + 0j, 8, onesided=True), "Cannot have onesided output"),
    "real spectrum": (lambda T, x: T.istft(x, 8), "requires a complex-valued input tensor"),
    "rows": (lambda T, x: T.istft(x + 0j, 8, onesided=True), "expected the frequency dimension"),
    "long hop": (lambda T, x: T.istft(x[:, :8].mT + 0j, 8, 9), "0 < hop_length <= win_length"),
    "gaps": (lambda T, x: T.istft(x[:, :8].mT + 0j, 8, window=T.tensor([0.0] * 8)), "window overlap add min: 1"),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", WRONG_FRAMES)
def test_wrong_frames(case):
    call, text = WRONG_FRAMES[case]
    same_error(lambda T: call(T, T.tensor(SIGNAL)), text)
