"""Window functions: PyTorch's values, dtypes and errors."""

import pytest

import xgrad

from ..oracle import same_error
from ..traced import as_torch

NAMES = {
    "bartlett": {}, "blackman": {}, "cosine": {}, "exponential": {"tau": 2.5}, "gaussian": {"std": 1.5}, "hamming": {},
    "hann": {}, "kaiser": {"beta": 5.0}, "general_cosine": {"a": [0.5, 0.3, 0.2]}, "general_hamming": {"alpha": 0.6},
    "nuttall": {},
}  # fmt: skip
PLAIN = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", NAMES)
def test_windows_of_signal(name):
    def program(T):
        window = getattr(T.signal.windows, name)
        return [window(M, sym=sym, dtype=T.float64, **NAMES[name]) for M in (0, 1, 2, 5) for sym in (True, False)]

    as_torch(program, atol=1e-10)


@pytest.mark.parametrize("name", PLAIN)
def test_windows_of_torch(name):
    def program(T):
        window = getattr(T, name)
        return [window(M, periodic, dtype=T.float64) for M in (0, 1, 2, 5) for periodic in (True, False)]

    as_torch(program, atol=1e-10)


def test_numbers_of_windows():
    as_torch(
        lambda T: (
            T.hamming_window(5, True, 0.6, 0.3),
            T.kaiser_window(5, False, 3.0),
            T.kaiser_window(5, False, -3.0),
            T.signal.windows.exponential(5, center=1.0, tau=2.0, sym=False),
        ),
        rtol=1e-5,
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes(dtype):
    assert xgrad.hann_window(4, dtype=dtype).dtype == getattr(xgrad, dtype)
    assert xgrad.hann_window(4, dtype=dtype).tolist() == pytest.approx([0, 0.5, 1, 0.5], abs=1e-6)


def test_a_window_of_large_beta_does_not_overflow():
    assert xgrad.kaiser_window(3, False, 800.0, dtype=xgrad.float64).tolist() == pytest.approx([0, 1, 0], abs=1e-6)


def test_requires_grad():
    assert xgrad.signal.windows.hann(4, requires_grad=True).requires_grad
    assert xgrad.hann_window(4, requires_grad=True).is_leaf


WRONG = {
    "length": (lambda T: T.signal.windows.hann(-1), "requires non-negative window length"),
    "dtype": (lambda T: T.signal.windows.hann(4, dtype=T.float16), "expects float32 or float64 dtypes"),
    "layout": (lambda T: T.signal.windows.kaiser(4, layout=T.sparse_coo), "strided tensors only"),
    "tau": (lambda T: T.signal.windows.exponential(4, tau=0), "Tau must be positive"),
    "center": (lambda T: T.signal.windows.exponential(4, center=1.0), "Center must be None for symmetric windows"),
    "std": (lambda T: T.signal.windows.gaussian(4, std=0.0), "Standard deviation must be positive"),
    "beta": (lambda T: T.signal.windows.kaiser(4, beta=-1), "beta must be non-negative"),
    "coefficients": (lambda T: T.signal.windows.general_cosine(4, a=3), "Coefficients must be a list/tuple"),
    "none": (lambda T: T.signal.windows.general_cosine(4, a=[]), "Coefficients cannot be empty"),
    "plain length": (lambda T: T.hann_window(-1), "non-negative window_length"),
    "plain dtype": (lambda T: T.hann_window(4, dtype=T.int64), "expects floating point dtypes"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    call, text = WRONG[case]
    same_error(call, text)
