"""Bools and complex numbers, where torch has no kernel for them and where it has."""

import warnings

import pytest
import torch

from ..oracle import as_torch, outcome, same_error

CALLS = {
    "softmax": lambda T, x: x.softmax(0),
    "log_softmax": lambda T, x: x.log_softmax(0),
    "softmin": lambda T, x: T.nn.functional.softmin(x, 0),
    "softmax to floats": lambda T, x: x.softmax(0, dtype=T.float32) if x.dtype == T.bool else x.softmax(0),
    "logsumexp": lambda T, x: x.logsumexp(0),
    "power": lambda T, x: x.pow(x),
    "power of True": lambda T, x: x**True,
    "power of False": lambda T, x: x.pow(False),
    "power of a tensor": lambda T, x: x ** T.tensor(True),
    "power in place": lambda T, x: x.pow_(True),
    "2 to the power": lambda T, x: 2**x,
    "True to the power": lambda T, x: T.pow(True, x),
    "square": lambda T, x: x**2,
    "clamp": lambda T, x: x.clamp(False, True),
    "clamp to integers": lambda T, x: x.clamp(0, 1),
    "clamp_": lambda T, x: x.clamp_(max=True),
    "clamp to tensors": lambda T, x: x.clamp(x, x),
    "clamp to a tensor": lambda T, x: x.clamp(min=x),
    "clamp_max": lambda T, x: x.clamp_max(T.tensor(False)),
    "clamp_min": lambda T, x: x.clamp_min(True),
    "median": lambda T, x: x.median(),
    "median along": lambda T, x: x.median(0),
    "nanmedian": lambda T, x: x.nanmedian(),
    "nanmedian along": lambda T, x: x.nanmedian(0),
    "kthvalue": lambda T, x: x.kthvalue(1),
    "mode": lambda T, x: x.mode()[0],
    "topk": lambda T, x: x.topk(1),
    "sort": lambda T, x: x.sort(stable=True)[0],
    "max": lambda T, x: x.max(),
    "amax": lambda T, x: x.amax(),
    "argmax": lambda T, x: x.argmax(),
    "cummax": lambda T, x: x.cummax(0)[0],
}
NUMBERS = {"bool": [True, False, True], "complex64": [1 + 1j, 2, -1j]}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_taken_or_refused(dtype, name):
    def program(T):
        return CALLS[name](T, T.tensor(NUMBERS[dtype]))

    if isinstance(outcome(program, torch), Exception):
        same_error(program, "not implemented|not support|on a bool tensor|no order|can't be cast|not allowed")
    else:
        as_torch(program, rtol=1e-5)


def test_softmax_of_complex_numbers_as_floats_takes_their_real_part():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch tells so once
        as_torch(lambda T: T.tensor([1 + 1j, 2]).softmax(0, dtype=T.float32))


@pytest.mark.parametrize("p", ["nuc", 2, -2])
def test_norms_of_singular_values_refuse_half_precision(p):
    same_error(lambda T: T.linalg.matrix_norm(T.ones(2, 3, dtype=T.bfloat16), p), "Low precision dtypes not supported")
    same_error(lambda T: T.linalg.norm(T.ones(2, 3, dtype=T.float16), p), "Low precision dtypes not supported")
