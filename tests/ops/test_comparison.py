"""Comparisons, tests of values, logic and bits: results, dtypes, forms and refusals are PyTorch's."""

import operator as python

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import array, leaf, outcome, same_error
from ..traced import as_torch
from .promotion import DTYPES, VECTORS, agree_on_dtypes

INF, NAN = float("inf"), float("nan")
CORNERS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, INF, -INF, NAN])
LEFT, RIGHT = (a.ravel() for a in np.meshgrid(CORNERS, CORNERS))
WHOLE = np.array([0, 1, -1, 2, -2, 7, -8, 63, 64, 100, -100, 127, -128])

COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
LOGIC = ["logical_and", "logical_or", "logical_xor"]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]
SHIFTS = ["bitwise_left_shift", "bitwise_right_shift"]
TESTS = ["isnan", "isinf", "isfinite", "isreal", "isposinf", "isneginf", "signbit", "logical_not"]


def tensors(T, dtype, *arrays):
    return [T.tensor(a).to(getattr(T, dtype)) for a in arrays]


# -- comparisons ------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", [python.eq, python.lt])
def test_result_dtype_of_any_two_operands(op):
    agree_on_dtypes(lambda T, a, b: op(a, b))


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_at_the_corners(name):
    def program(T):
        a, b = T.tensor(LEFT), T.tensor(RIGHT)
        return getattr(T, name)(a, b), getattr(a, name)(b), getattr(python, name)(a, b), getattr(python, name)(a, 1)

    as_torch(program)


@pytest.mark.parametrize("name", ["eq", "lt", "ge"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int64", "float16", "bfloat16"])
def test_comparisons_of_other_dtypes(name, dtype):
    def program(T):
        a, b = tensors(T, dtype, WHOLE.clip(0) if dtype == "uint8" else WHOLE, np.roll(WHOLE.clip(0), 1))
        return getattr(T, name)(a, b), getattr(T, name)(a, 7), getattr(T, name)(a, 0.5), getattr(T, name)(a[:, None], b)

    as_torch(program)


def test_comparison_promotes_as_arithmetic_does():
    """A number is compared in the tensor's dtype: 2**24 + 1 is no float32, and 300 no uint8."""

    def program(T):
        single = T.tensor([2.0**24], dtype=T.float32)
        byte = T.tensor([44, 255], dtype=T.uint8)
        return [
            single == 2**24 + 1,
            single == T.tensor(2**24 + 1),
            single == T.tensor([2**24 + 1]),
            single.double() == T.tensor([2**24 + 1]),
            byte == 300,
            byte == -1,
            byte < T.tensor([300, 300]),
            T.tensor([1]) == 1.5,
            T.tensor([True]) == 1,
            T.tensor([0.1], dtype=T.float32) == 0.1,
            T.tensor([0.1], dtype=T.float32) == T.tensor([0.1], dtype=T.float64),
            T.tensor([1 + 0j]) == 1,
        ]

    as_torch(program)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", [python.eq, python.ne, python.lt, python.le, python.gt, python.ge])
def test_numbers_on_either_side(op):
    numbers = [1, 2.0, True, np.float64(2), np.int64(2)] + ([1j] if op in (python.eq, python.ne) else [])
    as_torch(lambda T: [(op(T.tensor([1, 2, 3]), k), op(k, T.tensor([1, 2, 3]))) for k in numbers])
    as_torch(lambda T: 0 < T.tensor(1.0) < 2)


@pytest.mark.parametrize("other", [None, "a", [1.0], (), {}, object()], ids=lambda x: type(x).__name__)
def test_what_is_no_operand_is_unequal_and_has_no_order(other):
    assert (xgrad.ones(1) == other) is (torch.ones(1) == other) is False
    assert (xgrad.ones(1) != other) is (torch.ones(1) != other) is True
    for op in (python.lt, python.ge):
        same_error(lambda T, op=op: op(T.ones(1), other), "not supported between instances")


def test_equal_operators_leave_tensors_hashable_and_findable():
    a, b = xgrad.ones(2), xgrad.ones(2)
    assert len({a, b, a}) == 2
    assert 1.0 in a
    assert 2.0 not in a


def test_other_names():
    names = ["not_equal", "less", "less_equal", "greater", "greater_equal"]
    as_torch(lambda T: [getattr(T, n)(T.tensor(LEFT), T.tensor(RIGHT)) for n in names])
    as_torch(lambda T: [getattr(T.tensor([1, 2]), n)(2) for n in names])


# -- forms ------------------------------------------------------------------------------------------------------------


def test_comparisons_in_place_keep_the_dtype():
    def program(T):
        x = T.tensor(LEFT)
        found = [getattr(T, name)(x, 0.5) for name in COMPARISONS]
        for name in (*COMPARISONS, *LOGIC):
            y = x.clone()
            assert getattr(y, f"{name}_")(T.tensor(RIGHT)) is y
            found.append(y)
        return found, x.clone().logical_not_(), T.tensor([1, 0, 3]).ge_(1), x.clone().greater_equal_(0)

    as_torch(program)


def test_a_comparison_in_place_leaves_a_gradient_of_zeros():
    def program(T):
        x, y = leaf(T, 3, 4), leaf(T, 4, seed=1)
        base = x * 1
        base[1].ge_(y)
        (base * base).sum().backward()
        return base, x.grad, y.grad if y.grad is not None else T.zeros(4, dtype=T.float64)

    as_torch(program)


@pytest.mark.exhaustive
def test_results_have_no_history():
    x = xgrad.ones(2, requires_grad=True)
    results = [getattr(x, name)(x) for name in (*COMPARISONS, *LOGIC)] + [getattr(xgrad, name)(x) for name in TESTS]
    results += [xgrad.isclose(x, x), xgrad.isin(x, x)]
    assert not any(r.requires_grad or r.grad_fn is not None for r in results)


def test_out_takes_the_result_in_its_dtype():
    def program(T):
        a, b = T.tensor(LEFT), T.tensor(RIGHT)
        outs = [T.empty(LEFT.size, dtype=d) for d in (T.bool, T.float32, T.int64, T.uint8, T.int8)]
        found = [T.lt(a, b, out=outs[0]), T.eq(a, 1, out=outs[1]), T.logical_or(a, b, out=outs[2])]
        found += [T.ne(a, b, out=outs[3]), T.bitwise_not(T.tensor(WHOLE[:9]).to(T.int8), out=outs[4][:9])]
        return outs[:4], outs[4][:9], [f is o for f, o in zip(found[:4], outs)]

    as_torch(program)


def test_python_truth_of_a_comparison():
    assert bool(xgrad.tensor(1.0) < 2)
    same_error(lambda T: bool(T.ones(2) == 1), "more than one value is ambiguous")


# -- tests of values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TESTS)
def test_tests_of_values_in_every_dtype(name):
    def program(T):
        # float16, as torch has it: no test of complex32 is asked for.
        return [
            getattr(T, name)(x)
            for dtype in ("float64", "float32", "bfloat16", "float16", "int64", "uint8", "bool")
            for x in tensors(T, dtype, CORNERS if "float" in dtype else np.array([0, 1, 3]))
        ]

    as_torch(program)


def test_tests_of_complex_values():
    z = np.array([1 + 0j, 1j, complex(NAN, 1), complex(0, INF), 0, complex(1, NAN)])
    names = ["isnan", "isinf", "isfinite", "isreal", "logical_not"]
    as_torch(lambda T: [getattr(T, name)(T.tensor(z)) for name in names])
    for name in ("isposinf", "isneginf", "signbit"):
        same_error(lambda T, name=name: getattr(T, name)(T.tensor(z)), "complex|Complex")


TOLERANCES = [{}, {"rtol": 0.5}, {"atol": 1.0, "rtol": 0.0}, {"equal_nan": True}, {"rtol": 0.0, "atol": 0.0}]


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", TOLERANCES, ids=str)
def test_closeness_at_the_corners(options):
    def program(T):
        a, b = T.tensor(LEFT), T.tensor(RIGHT)
        whole = T.tensor(WHOLE), T.tensor(np.roll(WHOLE, 1))
        z = T.tensor([1 + 1j, complex(NAN, 0), complex(INF, 0)]), T.tensor([1 + 1.4j, complex(NAN, 0), complex(INF, 0)])
        pairs = [(a, b), whole, z, (T.tensor([True, False]), T.tensor([True, True])), (a[:3, None], b[:4])]
        close = [T.isclose(*p, **options) for p in pairs]
        return close, [T.allclose(*p, **options) for p in pairs], a.isclose(b, **options), a.allclose(a, **options)

    as_torch(program)


def test_closeness_takes_tolerances_by_position():
    as_torch(lambda T: (T.isclose(T.ones(1), T.zeros(1), 0.1, 2.0, True), T.allclose(T.ones(1), T.zeros(1), 0.1, 2.0)))


def test_equality_of_tensors_is_of_shape_and_values():
    def program(T):
        x = T.tensor([1.0, 2.0])
        others = [x.clone(), x.double(), x[:, None], T.tensor([1, 2]), T.tensor([1.0, NAN]), T.zeros(0)]
        return [T.equal(x, y) for y in others], [y.equal(y) for y in others]

    as_torch(program)


def test_membership():
    def program(T):
        x, among = T.tensor([[1, 5], [2, 7]]), T.tensor([2, 1, 9])
        return [
            T.isin(x, among),
            T.isin(x, among, invert=True),
            T.isin(x, among, assume_unique=True),
            T.isin(x, T.tensor([2.0])),
            T.isin(x, 5),
            T.isin(2, among),
            T.isin(x.double(), T.tensor([NAN, 7.0])),
            T.isin(x, T.zeros(0, dtype=T.int64)),
            T.isin(T.zeros(0, 2, dtype=T.int64), among),
        ]

    as_torch(program)


# -- logic and bits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOGIC)
def test_logic_takes_all_but_zero_as_true(name):
    def program(T):
        whole, truth = T.tensor([0, 2, -1]), T.tensor([True, False, True])
        f = getattr(T, name)
        return f(T.tensor(LEFT), T.tensor(RIGHT)), f(whole, truth), f(truth, T.tensor([[0.0], [0.5]])), f(whole, whole)

    as_torch(program)


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", [python.and_, python.lshift])
def test_result_dtype_of_bits(op):
    agree_on_dtypes(lambda T, a, b: op(a, b))


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", [python.ior, python.irshift])
def test_bits_in_place_keep_the_dtype_or_are_refused(op):
    agree_on_dtypes(lambda T, a, b: op(a, b), left=VECTORS)


@pytest.mark.parametrize("name", [*BITS, *SHIFTS])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_bits_of_integers(name, dtype):
    a, b = (x.ravel() for x in np.meshgrid(WHOLE, WHOLE))
    if dtype == "uint8":
        a, b = abs(a), abs(b)

    def program(T):
        x, y = tensors(T, dtype, a, b)
        return getattr(T, name)(x, y), getattr(T, name)(x, 3), getattr(x, f"{name}_")(y)

    as_torch(program)


BINARY = [python.and_, python.or_, python.xor]


@pytest.mark.parametrize("op", [*BINARY, python.lshift, python.rshift])
def test_python_operators_on_bits(op):
    def program(T):
        x = T.tensor([1, 2, 3])
        written = getattr(python, f"i{op.__name__.strip('_')}")(y := x.clone(), 1)
        assert written is y
        return op(x, 1), op(6, x), op(x, T.tensor([[1], [0]])), written, op(x, T.tensor(1, dtype=T.int8)), ~x

    as_torch(program)


@pytest.mark.parametrize("op", BINARY)
def test_python_operators_on_truth_values(op):
    def program(T):
        mask, other = T.tensor([True, True, False]), T.tensor([True, False, False])
        return op(mask, other), op(mask, True), op(False, mask), op(mask, 2), op(mask, T.tensor([1, 2, 3])), ~mask

    as_torch(program)


# -- errors -----------------------------------------------------------------------------------------------------------

ERRORS = {
    "size of tensor a \\(2\\) must match the size of tensor b \\(3\\)": lambda T: T.ones(2) == T.ones(3),
    "size of tensor a .* must match the size of tensor b": lambda T: T.logical_and(T.ones(2), T.ones(3)),
    "not implemented for 'ComplexFloat'": lambda T: T.tensor([1j]) >= 1,
    "not implemented for 'Float'": lambda T: T.ones(1) ^ 1,
    "not implemented for 'Double'": lambda T: T.tensor([1]) | T.ones(1).double(),
    "not implemented for 'Bool'": lambda T: T.tensor([True]) << T.tensor([True]),
    "only implemented on integer and Boolean-type tensors": lambda T: ~T.ones(1),
    "Float did not match Long": lambda T: T.allclose(T.ones(1), T.tensor([1])),
    "rtol must be greater than or equal to zero": lambda T: T.isclose(T.ones(1), T.ones(1), rtol=-1.0),
    "atol must be greater than or equal to zero": lambda T: T.allclose(T.ones(1), T.ones(1), atol=-1.0),
    "expected a Tensor or a number|must be Tensor": lambda T: T.eq(T.ones(1), "a"),
    "can't be cast to the desired output type": lambda T: T.tensor([True]).bitwise_and_(2),
    "doesn't match the broadcast shape": lambda T: T.ones(1).eq_(T.ones(2)),
    "a leaf Variable that requires grad": lambda T: leaf(T, 2).eq_(1),
}


@pytest.mark.parametrize("match", ERRORS)
def test_errors(match):
    same_error(ERRORS[match], match)


def test_a_refused_write_changes_nothing():
    x = xgrad.tensor([True, False])
    for write in (lambda: x.bitwise_and_(2), lambda: x.lt_(xgrad.ones(3)), lambda: x.bitwise_or_(0.5)):
        assert isinstance(outcome(lambda T, write=write: write(), xgrad), Exception)
    assert x._version == 0
    assert array(x).tolist() == [True, False]


def test_every_dtype_equals_itself():
    as_torch(lambda T: [(x := T.ones(2, dtype=getattr(T, d))) == x for d in DTYPES])
