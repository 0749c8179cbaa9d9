"""Questions about tensors and dtypes, and fill_diagonal_."""

import itertools

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import as_torch, same_error
from .derivatives import agree, numbers

NAMES = ["bool", "uint8", "int32", "int64", "bfloat16", "float32", "float64", "complex64", "complex128"]


def test_questions():
    def program(T):
        x, z = T.ones(2, 3), T.ones(2, dtype=T.complex64)
        kinds = [f(t) for f in (T.is_floating_point, T.is_complex, T.is_signed) for t in (x, z, x > 0)]
        return [*kinds, T.numel(x), T.is_tensor(x), T.is_tensor(1), T.is_nonzero(x[0, 0]), x[0, :1].is_nonzero(),
                T.is_same_size(x, x + 1), x.is_same_size(z)]  # fmt: skip

    as_torch(program)


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations_with_replacement(NAMES, 2)))
def test_can_cast_and_result_type(a, b):
    def name(dtype):
        return str(dtype).removeprefix("torch.")

    def program(T):
        x, y = (T.ones(2, dtype=getattr(T, n)) for n in (a, b))
        kinds = [T.result_type(x, y), T.result_type(x, y[0]), T.result_type(x, 2.0), T.result_type(1, y[0])]
        return T.can_cast(x.dtype, y.dtype), T.can_cast(y.dtype, x.dtype), [name(k) for k in kinds]

    as_torch(program)


def test_fill_diagonal():
    agree(lambda lib, x: (x * 2).fill_diagonal_(3.0), numbers(3, 2))
    as_torch(lambda T: [T.zeros(7, 3).fill_diagonal_(1, wrap=w) for w in (False, True)])
    as_torch(lambda T: [T.zeros(3, 3, 3).fill_diagonal_(2), T.zeros(0, 2).fill_diagonal_(2)])


REFUSED = {
    "several": (lambda T: T.is_nonzero(T.ones(2)), "more than one value is ambiguous"),
    "none": (lambda T: T.is_nonzero(T.ones(0)), "no values is ambiguous"),
    "text": (lambda T: T.result_type("a", T.ones(1)), "result_type"),
    "vector": (lambda T: T.ones(3).fill_diagonal_(1), "dimensions must larger than 1"),
    "sizes": (lambda T: T.ones(2, 3, 2).fill_diagonal_(1), "must be of equal length"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    same_error(*REFUSED[name])


def test_what_a_tensor_is_not():
    flags = ("is_quantized", "is_mkldnn", "is_nested", "is_sparse_csr", "is_meta")
    assert [getattr(xgrad.ones(1), f) for f in flags] == [getattr(torch.ones(1), f) for f in flags] == [False] * 5
    assert np.float32 == xgrad.result_type(1, 2.0)
