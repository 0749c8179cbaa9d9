"""Numbers written into tensors: what fits, what it becomes, and that nothing is changed otherwise, as torch."""

import math

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import as_torch, outcome, same_error

inf, nan = math.inf, math.nan
NUMBERS = {
    "uint8": [255, 300, -1, -255, -256, 2.5, 255.5, 300.5, -0.5, nan, inf, 1j, 1 + 0j, True],
    "int8": [127, 128, -128, -129, 127.9, -128.9],
    "int32": [2**31 - 1, 2**31, 1e10, nan],
    "int64": [2**63 - 1, -(2**63), 1e18, 1e19, -inf],
    "bool": [2, -1, 2.5, nan, 1j, 0j, 0],
    "float16": [65504, 65519, 1e6, -1e6, inf, nan, 1j, 1 + 0j],
    "bfloat16": [3.38e38, 1e39, inf],
    "float32": [1e38, 1e39, -1e300, inf, 1j, 1 + 0j],
    "float64": [1e308, 1 - 1j],
    "complex64": [1e39, 1e39j, 1 + 1j, complex(inf, 0)],
}
WRITERS = {
    "fill_": lambda T, x, v: x.fill_(v),
    "fill": lambda T, x, v: T.fill(x, v),
    "masked_fill_": lambda T, x, v: x.masked_fill_(T.tensor([True, False, True]), v),
    "masked_fill": lambda T, x, v: x.masked_fill(T.tensor([True, False, True]), v),
    "index_fill_": lambda T, x, v: x.index_fill_(0, T.tensor([2]), v),
    "scatter_": lambda T, x, v: x.scatter_(0, T.tensor([1]), v),
    "scatter": lambda T, x, v: x.scatter(0, T.tensor([1]), value=v),
    "item": lambda T, x, v: x.__setitem__(0, v),
    "all": lambda T, x, v: x.__setitem__(slice(None), v),
    "mask": lambda T, x, v: x.__setitem__(T.tensor([True, False, True]), v),
    "places": lambda T, x, v: x.__setitem__([0, 2], v),
    "full": lambda T, x, v: T.full((2,), v, dtype=x.dtype),
    "full_like": lambda T, x, v: T.full_like(x, v),
    "new_full": lambda T, x, v: x.new_full((2,), v),
    "tensor": lambda T, x, v: T.tensor(v, dtype=x.dtype),
    "list": lambda T, x, v: T.tensor([[v]], dtype=x.dtype),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_number(dtype, writer):
    for value in NUMBERS[dtype]:
        tensors = {}

        def program(T, value=value, tensors=tensors):
            x = tensors[T] = T.ones(3, dtype=getattr(T, dtype))
            result = WRITERS[writer](T, x, value)
            return None if result is None else result.double() if dtype == "bfloat16" else result

        def left(T, tensors=tensors):
            x = tensors[T]
            return x.tolist(), x._version

        with np.errstate(invalid="ignore"):
            if isinstance(outcome(program, torch), Exception):
                same_error(program, "without overflow|complex")
            else:
                as_torch(program)
            as_torch(left)


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("dtype", "value"), [("uint8", 300), ("float16", 1e6), ("int64", nan), ("bool", 2.5), ("int64", 2.5)]
)
def test_tensor_of_one_number(dtype, value):
    """`fill_` and assignments copy it; where it stands for a number it has to fit."""

    def program(name):
        return lambda T: WRITERS[name](T, T.ones(3, dtype=getattr(T, dtype)), T.tensor(value))

    for name in ("masked_fill", "masked_fill_", "index_fill_", "mask", "full"):
        if isinstance(outcome(program(name), torch), Exception):
            same_error(program(name), "without overflow")
        else:
            as_torch(program(name))
    if not math.isnan(value):  # which C++ leaves undefined
        for name in ("fill_", "fill", "item", "all"):
            as_torch(program(name))


def test_part_of_a_complex_tensor():
    as_torch(lambda T: (T.zeros(2, dtype=T.bool).fill_(T.tensor(1j)), T.zeros(2).masked_fill_(T.tensor(True), 2 + 0j)))
    same_error(lambda T: T.zeros(2).masked_fill_(T.tensor(True), T.tensor(1j)), "without overflow")
    same_error(lambda T: T.zeros(2).index_fill_(0, T.tensor([0]), T.tensor(1 + 0j)), "Converting complex Scalar")


def test_largest_unsigned_integer():
    as_torch(lambda T: T.zeros(2, dtype=T.uint64).fill_(2**64 - 1).tolist())
    as_torch(lambda T: T.zeros(2, dtype=T.uint32).fill_(-1).tolist())


def test_ranges():
    as_torch(lambda T: (T.arange(5, 0, -1, dtype=T.uint8), T.linspace(0.5, 2.5, 3, dtype=T.int64)))
    as_torch(lambda T: T.arange(0, 1e6, 5e5, dtype=T.float16))
    same_error(lambda T: T.linspace(0, 300, 4, dtype=T.uint8), "300 cannot be converted to type uint8 without overflow")


def test_error_is_caught_as_either():
    for error in (RuntimeError, OverflowError, xgrad.errors.NumberOverflowError):
        with pytest.raises(error, match="value 300 cannot be converted to type uint8 without overflow"):
            xgrad.zeros(2, dtype=xgrad.uint8).fill_(300)
