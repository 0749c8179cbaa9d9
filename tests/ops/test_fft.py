"""xgrad.fft: values, derivatives, dtypes and errors are PyTorch's."""

import pytest
import torch

import xgrad

from ..oracle import same, same_error
from ..traced import as_torch
from .derivatives import agree, numbers

REAL, COMPLEX = numbers(4, 5), numbers(4, 5) + 1j * numbers(4, 5, seed=1)
BASES = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
NORMS = [None, "forward", "backward", "ortho"]


def given(base):
    return REAL if base in ("rfft", "ihfft") else COMPLEX


@pytest.mark.parametrize("n", [None, 3, 8])
@pytest.mark.parametrize("base", BASES)
def test_one_dimension(base, n):
    agree(lambda T, x: getattr(T.fft, base)(x, n=n), given(base))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("base", BASES)
def test_norms_along_another_dimension(base, norm):
    agree(lambda T, x: getattr(T.fft, base)(x, dim=0, norm=norm), given(base), order=1, forward=False)


@pytest.mark.parametrize("base", BASES)
def test_two_dimensions(base):
    agree(lambda T, x: getattr(T.fft, base + "2")(x, s=(3, 6), norm="ortho"), given(base))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("base", BASES)
def test_n_dimensions(base):
    agree(lambda T, x: getattr(T.fft, base + "n")(x), given(base))
    agree(lambda T, x: getattr(T.fft, base + "n")(x, s=(-1, 5), dim=(1, 0), norm="forward"), given(base))


@pytest.mark.parametrize("base", BASES)
def test_more_dimensions_than_xla_transforms_at_once(base):
    x = numbers(2, 3, 2, 3) if base in ("rfft", "ihfft") else numbers(2, 3, 2, 3) + 1j
    as_torch(lambda T: getattr(T.fft, base + "n")(T.tensor(x)), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("base", ["fft", "ifft", "irfft", "hfft"])
def test_real_input_is_taken_as_complex(base):
    agree(lambda T, x: getattr(T.fft, base)(x), REAL)


def test_a_hermitian_signal_that_is_none():
    """Of the first and the middle element only the real parts are used, and only they have a gradient."""
    x = COMPLEX[0, :3]
    for n in (4, 5):
        agree(lambda T, x: T.fft.irfft(x, n=n) + T.fft.hfft(x, n=n), x)  # noqa: B023


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "float64", "complex64"])
def test_dtype_of_the_result(base, dtype):
    def program(T):
        out = getattr(T.fft, base)(T.tensor([1, 0, 2]).to(getattr(T, dtype)))
        return str(out.dtype).rpartition(".")[2]

    if dtype == "complex64" and base in ("rfft", "ihfft"):
        same_error(program, "expects a real input tensor, but got")
    else:
        as_torch(program)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["fft", "rfft", "irfft", "hfftn"])
def test_half_precision_is_refused(name, dtype):
    same_error(lambda T: getattr(T.fft, name)(T.ones(4, dtype=getattr(T, dtype))), "Unsupported dtype")


WRONG = {
    "no points": (lambda T, x: T.fft.fft(x, n=0), "Invalid number of data points"),
    "none of an inverse": (lambda T, x: T.fft.irfft(x[:, :1]), "Invalid number of data points"),
    "a float": (lambda T, x: T.fft.fft(x, n=2.0), "must be"),
    "dimension": (lambda T, x: T.fft.fft(x, dim=2), "Dimension out of range"),
    "no dimensions": (lambda T, x: T.fft.fft(x[0, 0]), "tensor has no dimensions"),
    "norm": (lambda T, x: T.fft.fft(x, norm="half"), "Invalid normalization mode"),
    "repeated": (lambda T, x: T.fft.fftn(x, dim=(0, -2)), "FFT dims must be unique"),
    "lengths": (lambda T, x: T.fft.fftn(x, s=(2,), dim=(0, 1)), "same length"),
    "too many": (lambda T, x: T.fft.fftn(x, s=(2, 2, 2)), "only has 2 dimensions"),
    "over nothing": (lambda T, x: T.fft.irfftn(x, dim=()), "must transform at least one axis"),
    "frequencies": (lambda T, x: T.fft.fftfreq(4, dtype=T.int64), "requires a floating point or complex dtype"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    call, text = WRONG[case]
    xgrad.fft.fft(xgrad.tensor(REAL), n=2)  # whose kernel 2.0 must not find
    same_error(lambda T: call(T, T.tensor(REAL)), text)


def test_a_transform_over_no_dimensions_is_a_copy():
    as_torch(lambda T: T.fft.fftn(T.tensor(REAL), dim=()))


def test_an_empty_batch():
    """Of which PyTorch's MKL makes nothing."""
    assert xgrad.fft.rfft(xgrad.zeros(0, 5)).shape == (0, 3)
    assert xgrad.fft.irfftn(xgrad.zeros(0, 4, 5), dim=(1, 2)).shape == (0, 4, 8)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dim", [None, 1, (0, 1)])
@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
def test_shifts(name, dim):
    agree(lambda T, x: getattr(T.fft, name)(x, dim=dim), REAL)


@pytest.mark.parametrize("n", [1, 4, 5])
@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies(name, n):
    as_torch(lambda T: (getattr(T.fft, name)(n), getattr(T.fft, name)(n, 0.25, dtype=T.float64)), rtol=1e-6)


def test_out():
    out = xgrad.zeros(4, 5, dtype=xgrad.complex128)
    assert xgrad.fft.fft(xgrad.tensor(COMPLEX), out=out) is out
    same(out, torch.fft.fft(torch.tensor(COMPLEX)))


def test_nothing_is_saved_for_the_gradient():
    out = xgrad.fft.fft(xgrad.tensor(COMPLEX, requires_grad=True))
    assert not [name for name in dir(out.grad_fn) if name.startswith("_saved_self")]
    assert type(out.grad_fn).__name__ == "FftC2CBackward0"
