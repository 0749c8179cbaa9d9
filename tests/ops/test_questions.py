"""Questions whose answer is no tensor, as torch answers them; options of printing."""

import itertools

import numpy as np
import pytest

import xgrad

from ..oracle import as_torch, same_error

DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "uint16"]


def name(dtype):
    return str(dtype).split(".")[-1]


def test_kinds():
    def program(T):
        x = T.ones(2, 3)
        kinds = [
            f(T.ones(2, dtype=getattr(T, d))) for d in DTYPES for f in (T.is_floating_point, T.is_complex, T.is_signed)
        ]
        return kinds, T.is_tensor(x), T.is_tensor(1), T.numel(x), T.is_same_size(x, x.t()), x.is_same_size(x + 1)

    as_torch(program)


def test_casts_that_are_allowed():
    as_torch(lambda T: [T.can_cast(getattr(T, a), getattr(T, b)) for a, b in itertools.product(DTYPES, DTYPES)])


def test_result_types():
    def program(T):
        operands = [T.ones(2), T.ones((), dtype=T.float64), T.ones(2, dtype=T.int8), T.tensor(True), 1, 2.5, True, 1j]
        return [
            name(T.result_type(a, b))
            for a, b in itertools.product(operands, operands)
            if not isinstance(a, (int, float, complex)) or not isinstance(b, (int, float, complex))
        ]

    as_torch(program)


@pytest.mark.parametrize("value", [[0.0], [[1.0]], 0, -2])
def test_one_element_is_zero_or_not(value):
    as_torch(lambda T: (T.is_nonzero(T.tensor(value)), T.tensor(value).is_nonzero()))


@pytest.mark.parametrize("shape", [(0,), (2,)])
def test_other_numbers_of_elements_are_ambiguous(shape):
    same_error(lambda T: T.is_nonzero(T.ones(shape)), "Boolean value of Tensor with")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "options",
    [
        {"precision": 2}, {"threshold": 5}, {"threshold": 5, "edgeitems": 1}, {"linewidth": 30}, {"profile": "short"},
        {"profile": "full"}, {"sci_mode": True}, {"sci_mode": False}, {"profile": "short", "precision": 6},
    ],
)  # fmt: skip
def test_options_of_printing(options):
    def program(T):
        T.set_printoptions(**options)
        try:
            shown = T.tensor(np.linspace(0.1, 40000, 20).astype(np.float32)), T.tensor([[1.0, 2.5], [3.0, 1e-9]])
            return [repr(x).replace("torch.", "xgrad.") for x in (*shown, T.ones(40, 40), T.arange(12))]
        finally:
            T.set_printoptions(profile="default")

    as_torch(program)


def test_unknown_profile_is_refused():
    with pytest.raises(ValueError, match="profile must be one of default, short, full"):
        xgrad.set_printoptions(profile="long")
