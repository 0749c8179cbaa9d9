"""xgrad.testing.assert_close against torch's: what is close by default, and the words for what is not."""

import numpy as np
import pytest
import torch

import xgrad

from .oracle import same_error

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def apart(T, dtype, gap):
    x = T.tensor([1.0, 2.0], dtype=getattr(T, dtype))
    return x, x * (1 + gap)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_default_tolerances_are_those_of_the_dtype(dtype):
    gap = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "complex64": 1e-6}.get(dtype, 1e-8)
    for T in (torch, xgrad):
        T.testing.assert_close(*apart(T, dtype, gap))
    same_error(lambda T: T.testing.assert_close(*apart(T, dtype, 100 * gap)), "Tensor-likes are not close!")


def test_numbers_have_those_of_their_type():
    for T in (torch, xgrad):
        T.testing.assert_close(1.0, 1.0 + 1e-8)
        T.testing.assert_close({"a": [1, 2.0]}, {"a": [1, 2.0 + 1e-8]})


UNEQUAL = {
    "far": lambda T: (T.zeros(3, 4), T.zeros(3, 4) + T.eye(3, 4) * 0.125),
    "integers": lambda T: (T.zeros(3, dtype=T.int32), T.ones(3, dtype=T.int32)),
    "bools": lambda T: (T.tensor([True, False]), T.tensor([True, True])),
    "0-dim": lambda T: (T.tensor(1.0), T.tensor(2.0)),
    "number": lambda T: (1, 2),
    "float": lambda T: (1.0, 2.0),
    "bool": lambda T: (True, False),
    "not a number": lambda T: (T.tensor([float("nan"), 1.0]), T.tensor([1.0, 1.0])),
    "infinite": lambda T: (T.tensor([float("inf"), 1.0]), T.tensor([float("inf"), 0.0])),
    "half": lambda T: (T.tensor([1.0], dtype=T.float16), T.tensor([1.5], dtype=T.float16)),
    "bfloat16": lambda T: (T.tensor([1.0], dtype=T.bfloat16), T.tensor([1.5], dtype=T.bfloat16)),
    "complex": lambda T: (T.tensor([1j]), T.tensor([2j])),
    "nested": lambda T: ({"a": [T.ones(2), T.ones(2)]}, {"a": [T.ones(2), T.zeros(2)]}),
    "shape": lambda T: (T.ones(2, 3), T.ones(3)),
    "dtype": lambda T: ([T.ones(2)], [T.ones(2, dtype=T.float64)]),
}


@pytest.mark.parametrize("case", UNEQUAL)
def test_the_text_is_torchs(case):
    texts = []
    for T in (torch, xgrad):
        with pytest.raises(AssertionError) as caught:
            T.testing.assert_close(*UNEQUAL[case](T))
        texts.append(str(caught.value).replace("torch.", "xgrad."))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rtol": 0, "atol": 0.25}, r"Greatest absolute difference: 1\.0 at index \(1,\) \(up to 0\.25 allowed\)"),
        ({"rtol": 0, "atol": 0}, "Tensor-likes are not equal!"),
        ({"rtol": 1e-3}, "Both 'rtol' and 'atol' must be either specified or omitted, but got no atol"),
        ({"msg": "mine"}, "^mine$"),
        ({"msg": lambda text: f"mine: {text}"}, "^mine: Tensor-likes are not close!"),
    ],
)
def test_options(options, match):
    same_error(lambda T: T.testing.assert_close(T.tensor([1.0, 2.0]), T.tensor([1.0, 3.0]), **options), match)


def test_what_the_options_allow():
    for T in (torch, xgrad):
        T.testing.assert_close(T.ones(2), T.ones(2) + 0.5, rtol=0, atol=0.6)
        T.testing.assert_close(T.tensor([np.nan]), T.tensor([np.nan]), equal_nan=True)
        T.testing.assert_close(T.ones(2), T.ones(2, dtype=T.float64), check_dtype=False)
