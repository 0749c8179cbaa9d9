"""Arithmetic: dtypes, values at the corners, derivatives, options, Python's operators and errors are PyTorch's."""

import operator as python

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import array, data, leaf, outcome, same, same_error
from ..traced import as_torch
from .derivatives import agree, numbers, tangents
from .promotion import VECTORS, agree_on_dtypes

# torch's forward mode loads its decompositions, which it compiles in a way that it deprecates itself.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")

INF, NAN = float("inf"), float("nan")
CORNERS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, INF, -INF, NAN])
LEFT, RIGHT = (a.ravel() for a in np.meshgrid(CORNERS, CORNERS))
WHOLE = np.array([0, 1, -1, 2, -2, 7, -7, 63, 64, 100, -100, 127])
DIVISORS = WHOLE[1:]

SPECIAL = {
    "div floor": lambda T, a, b: T.div(a, b, rounding_mode="floor"),
    "div trunc": lambda T, a, b: T.div(a, b, rounding_mode="trunc"),
    "xlog1py": lambda T, a, b: T.special.xlog1py(a, b),
}


def named(name):
    return SPECIAL.get(name) or (lambda T, a, b: getattr(T, name)(a, b))


# -- dtypes -----------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("op", [python.add, python.truediv, python.mod, python.pow])
def test_result_dtype_of_any_two_operands(op):
    # torch gives a bool for this one alone, and refuses the power of two bool tensors.
    but = [((shape, "bool"), True) for shape in ((2,), ())] if op is python.pow else []
    agree_on_dtypes(lambda T, a, b: op(a, b), but=but)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("op", [python.isub, python.itruediv, python.ifloordiv, python.ipow])
def test_in_place_keeps_its_dtype_or_is_refused(op):
    but = [(((2,), "bool"), True)] if op is python.ipow else []

    def program(T, a, b):
        before = a
        a = op(a, b)
        assert a is before
        return a

    agree_on_dtypes(program, left=VECTORS, but=but)


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["sub", "mul", "floor_divide", "float_power", "div floor"])
def test_functions_promote_as_operators_do(name):
    agree_on_dtypes(named(name), left=VECTORS)


@pytest.mark.exhaustive
def test_alpha_value_and_weight_have_a_say_in_no_dtype():
    agree_on_dtypes(lambda T, a, b: T.add(a, b, alpha=True if a.dtype == b.dtype == T.bool else 2), VECTORS, VECTORS)
    agree_on_dtypes(lambda T, a, b: T.addcmul(a, b, b, value=2), VECTORS, VECTORS, but=[(VECTORS[0], VECTORS[0])])
    agree_on_dtypes(lambda T, a, b: T.lerp(a, b, 0.5), VECTORS, VECTORS)


def test_gradients_have_the_dtypes_of_their_tensors():
    def program(T, op, left, right):
        a = T.tensor([1.5, -2.0], dtype=getattr(T, left)).requires_grad_()
        b = T.tensor([0.5, 3.0], dtype=getattr(T, right)).requires_grad_()
        out = op(a, b)
        return T.autograd.grad(out, (a, b), T.ones_like(out))

    for pair in (("float32", "float64"), ("float64", "complex64"), ("complex128", "float32")):
        for op in (python.mul, python.truediv):
            as_torch(program, op, *pair, rtol=1e-6)


# -- values -----------------------------------------------------------------------------------------------------------


def signed(T, out):
    """A result, and the signs of its zeros."""
    return out, T.where(out == 0, T.signbit(out), False)


VALUES = ["add", "mul", "div", "div floor", "div trunc", "floor_divide", "remainder", "fmod", "pow", "float_power"]


@pytest.mark.parametrize("name", VALUES)
def test_values_at_the_corners(name):
    as_torch(lambda T: signed(T, named(name)(T, T.tensor(LEFT), T.tensor(RIGHT))), rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_at_the_corners_in_half_precision(dtype):
    def program(T, name):
        a, b = (T.tensor(x).to(getattr(T, dtype)) for x in (LEFT, RIGHT))
        return [x.double() for x in signed(T, named(name)(T, a, b))]

    for name in ("div", "floor_divide", "remainder", "pow"):
        as_torch(program, name, rtol=2e-2)


@pytest.mark.parametrize("name", ["div", "div floor", "div trunc", "floor_divide", "remainder", "fmod", "pow"])
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8"])
def test_values_of_integers(name, dtype):
    a, b = (x.ravel() for x in np.meshgrid(WHOLE, DIVISORS))
    if dtype == "uint8":
        a, b = abs(a), abs(b)
    as_torch(lambda T: named(name)(T, T.tensor(a.astype(dtype)), T.tensor(b.astype(dtype))), rtol=1e-6)


def test_integer_powers_beyond_the_width_of_the_dtype_are_zero_or_wrap():
    as_torch(lambda T: T.tensor([2, 3, -2, 1, -1, 0]) ** T.tensor([64, 200, 2**40, 2**40, 2**40 + 1, 2**40]))
    as_torch(lambda T: (2 ** T.tensor([62, 63, 64, 65, 0]), T.tensor([3]) ** 0, 0 ** T.tensor([0, 1])))


def test_division_by_an_integer_zero_is_not_looked_for():
    """torch raises on the CPU, as XLA cannot; the other elements are what they are."""
    for op in (python.floordiv, python.mod):
        error = outcome(lambda T, op=op: op(T.tensor([7, 9]), T.tensor([0, 2])), torch)
        assert "ZeroDivisionError" in str(error)
        ours = op(xgrad.tensor([7, 9]), xgrad.tensor([0, 2]))
        assert ours[1].item() == op(9, 2)


def test_an_empty_tensor_is_an_operand():
    as_torch(lambda T: (T.zeros(0, 3) + T.ones(3), T.zeros(0, 3) / 2, 2 ** T.zeros(0), T.zeros(2, 0) % T.ones(2, 1)))


# -- derivatives ------------------------------------------------------------------------------------------------------

DERIVATIVES = [
    "add", "sub", "mul", "div", "div floor", "div trunc", "remainder", "fmod", "pow", "float_power", "maximum",
    "minimum", "fmax", "fmin", "atan2", "hypot", "logaddexp", "logaddexp2", "xlogy", "xlog1py", "copysign", "nextafter",
    "ldexp", "clamp_min", "clamp_max",
]  # fmt: skip


@pytest.mark.parametrize("name", DERIVATIVES)
def test_gradients_at_the_corners(name):
    weights = np.linspace(1, 2, LEFT.size)

    def program(T):
        a, b = T.tensor(LEFT, requires_grad=True), T.tensor(RIGHT, requires_grad=True)
        return [x * 1 for x in T.autograd.grad(named(name)(T, a, b), (a, b), T.tensor(weights))]

    as_torch(program, rtol=1e-8)


FORMULAS = {
    "sums": lambda T, x, y: T.add(x, y, alpha=3) - T.sub(y, x, alpha=0.5) + T.rsub(x, y, alpha=2),
    "products": lambda T, x, y: x * y / (y + 3),
    "powers": lambda T, x, y: (x + 4) ** y + T.float_power(x + 4, y),
    "remainders": lambda T, x, y: T.remainder(x, y) * T.fmod(x, y) + T.remainder(x, 2) * T.fmod(y, 0.3),
    "fused": lambda T, x, y: T.addcmul(x, y, y, value=2) * T.addcdiv(y, x, y + 3, value=0.5),
    "lerp": lambda T, x, y: T.lerp(x, y, y) + T.lerp(x, y, 0.7) * T.lerp(y, x, 0.2),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FORMULAS)
def test_derivatives_of_a_broadcast_row(name):
    agree(FORMULAS[name], numbers(3, 4), numbers(4, seed=1))


@pytest.mark.parametrize("shapes", [((3, 1), (1, 4)), ((), (3, 4)), ((3, 4), ()), ((0, 1), (4,))], ids=str)
def test_gradients_of_other_broadcast_operands(shapes):
    arrays = [numbers(*shape, seed=i) for i, shape in enumerate(shapes)]
    agree(lambda T, x, y: T.sub(x, y, alpha=3) * y / (x + 5), *arrays, order=1, forward=False)


def test_derivatives_of_complex_operands():
    z, w = numbers(4) + 1j * numbers(4, seed=2), numbers(4, seed=3) + 1j * numbers(4, seed=4)
    agree(lambda T, z, w: T.add(z, w, alpha=2 - 1j) * T.sub(z, w, alpha=1j), z, w, order=1)
    agree(lambda T, z, w: z / w + z**w, z, w)
    agree(lambda T, z, w: T.addcmul(z, w, z, value=1j) + T.addcdiv(z, z, w, value=2j) + z.lerp(w, 0.3), z, w, order=1)


NUMERIC = {
    "2 - x": lambda T, x: 2 - x,
    "2 / x": lambda T, x: 2 / x,
    "2 ** x": lambda T, x: 2**x,
    "-2.0 ** x": lambda T, x: (-2.0) ** x,
    "x % 2": lambda T, x: x % 2,
    "x * 1j": lambda T, x: x * 1j,
    "x / 1j": lambda T, x: x / 1j,
    "True * x": lambda T, x: True * x,
}


@pytest.mark.parametrize("name", NUMERIC)
def test_derivatives_beside_a_number(name):
    agree(NUMERIC[name], np.array([0.5, 1.0, -1.5, 2.0]), order=1)


BESIDE_INTEGERS = {
    "a number": lambda T, x, k: 1 / x + True / (x * x),
    "div": lambda T, x, k: k / x + (k > 1) / x,
    "fmod": lambda T, x, k: x * T.fmod(k, x) + T.fmod(k > 1, x),
    "remainder": lambda T, x, k: x * T.remainder(k, x),
    "addcdiv": lambda T, x, k: T.addcdiv(x, k, x, value=2),
}


@pytest.mark.parametrize("name", BESIDE_INTEGERS)
def test_derivatives_beside_integers(name):
    agree(BESIDE_INTEGERS[name], np.array([0.5, 1.0, -1.5, 2.0]), np.array([1, 2, 3, 1]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("other", [0.3, 1.1, -7, "one", "its own", "each"])
def test_rounded_quotients_are_torchs(dtype, other):
    """XLA would multiply by the reciprocal: -153 / 0.3 would be -510.  Beside halves a number stays as it is."""
    numbers = np.concatenate([np.linspace(-99, 99, 500), np.arange(-200.0, 200)])

    def quotients(T):
        x = T.tensor(numbers).to(getattr(T, dtype))
        given = {"one": T.tensor([0.3], dtype=x.dtype), "its own": T.tensor(1.1, dtype=x.dtype), "each": x.flip(0)}
        y = given.get(other, other)
        found = T.div(x, y, rounding_mode="trunc"), T.div(x, y, rounding_mode="floor"), T.floor_divide(x, y), 7.3 // x
        return T.stack(found).double().numpy()

    np.testing.assert_array_equal(quotients(xgrad), quotients(torch))


def test_rounded_quotients_have_a_gradient_of_zeros_and_floor_divide_has_none():
    agree(lambda T, x, y: T.div(x, y, rounding_mode="floor") + x * T.div(x, y, rounding_mode="trunc"), *np.eye(2) + 2)
    x = xgrad.ones(2, requires_grad=True)
    for quotient in (x // 2, 2 // x):
        with pytest.raises(NotImplementedError, match="derivative for aten::floor_divide is not implemented"):
            quotient.sum().backward()
    assert (x.div(2, rounding_mode="floor")).requires_grad


def test_tangents_of_python_operators_are_torchs():
    for op in (python.add, python.sub, python.mul, python.truediv, python.mod, python.pow):
        arrays = (np.abs(numbers(3, 4)) + 0.1, numbers(4, seed=1))
        for ours, theirs in zip(*(tangents(T, lambda _, x, y, op=op: op(x, y), arrays) for T in (xgrad, torch))):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)


# -- forms ------------------------------------------------------------------------------------------------------------


REFLECTED = [
    lambda x: 2 - x, lambda x: 2.5 + x, lambda x: 3 * x, lambda x: 2 / x, lambda x: 7 // x, lambda x: -7 % x,
    lambda x: 2**x, lambda x: x**2, lambda x: x // 2, lambda x: x % -2, lambda x: x**0.5, lambda x: -x, lambda x: +x,
    lambda x: abs(x), lambda x: 1j - x, lambda x: x + True, lambda x: np.float64(2) * x, lambda x: x + np.int64(2),
    lambda x: x.__rdiv__(2),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("case", range(len(REFLECTED)))
def test_python_operators_with_numbers(case, dtype):
    as_torch(lambda T: REFLECTED[case](T.tensor([1, 2, 3], dtype=getattr(T, dtype))), rtol=1e-6)


def test_divmod_is_no_operator():
    for pair in (lambda T: (T.ones(2), 2), lambda T: (2, T.ones(2))):
        same_error(lambda T, pair=pair: divmod(*pair(T)), "unsupported operand type")


class Asked:
    """An operand that takes over on either side."""

    def __radd__(self, other):
        return "asked"

    __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __rmod__ = __rfloordiv__ = __radd__


@pytest.mark.parametrize("op", [python.add, python.sub, python.mul, python.truediv, python.pow, python.mod])
def test_what_is_no_operand_is_asked_and_else_refused(op):
    assert op(xgrad.ones(2), Asked()) == "asked"
    for other in (None, {}):
        same_error(lambda T, other=other: op(T.ones(2), other), "unsupported operand|expected a Tensor or a number")
    same_error(lambda T: op(None, T.ones(2)), "unsupported operand")


def test_other_names():
    def program(T):
        x, y = data(T, (3, 4)), data(T, (4,), 1)
        functions = [T.subtract, T.multiply, T.divide, T.true_divide, T.negative]
        methods = [x.subtract(y, alpha=2), x.multiply(y), x.divide(y, rounding_mode="floor"), x.true_divide(2)]
        return (
            [f(x, y) if f is not T.negative else f(x) for f in functions],
            methods,
            x.negative(),
            T.rsub(x, 2, alpha=3),
        )

    as_torch(program)


def test_out_takes_the_result():
    def program(T):
        x, y = data(T, (3, 4)), data(T, (4,), 1)
        outs = [T.empty(3, 4, dtype=T.float64) for _ in range(6)]
        found = [
            T.add(x, y, alpha=2, out=outs[0]),
            T.sub(x, 1, out=outs[1]),
            T.div(x, y, rounding_mode="floor", out=outs[2]),
            T.pow(x, 2, out=outs[3]),
            T.remainder(x, y, out=outs[4]),
            T.addcmul(x, x, y, value=2, out=outs[5]),
        ]
        return outs, [a is b for a, b in zip(found, outs)]

    as_torch(program)


def test_out_may_be_an_operand_a_view_or_of_a_wider_category():
    def program(T):
        x, base = data(T, (3, 4)), T.zeros(3, 4, dtype=T.float64)
        T.mul(x, x, out=x)
        T.add(x[0], 1, out=base[1])
        wide = T.zeros(2, dtype=T.complex64)
        T.add(T.tensor([1, 2]), 1, out=wide)
        return x, base, wide, T.div(T.tensor([3]), 2, out=T.zeros(1, dtype=T.float64))

    as_torch(program, rtol=1e-6)


# -- in place ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [python.iadd, python.isub, python.imul, python.itruediv, python.imod])
def test_in_place_operators_differentiate(op):
    def program(T, x, y):
        written = x * 2 + 5
        held, written = written, op(written, y)
        assert held is written
        written = op(written, 2)
        return written * x

    agree(program, numbers(3, 4), np.abs(numbers(4, seed=1)), forward=False)


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_", "remainder_"])
def test_in_place_with_itself(name):
    def program(T):
        x = leaf(T, 3, 4)
        y = x * 2 + 5
        getattr(y, name)(y)
        return y, T.autograd.grad(y.sum(), x)

    if name in ("add_", "sub_"):
        as_torch(program)
    else:
        same_error(program, "modified by an inplace operation")
    as_torch(lambda T: getattr(y := data(T, (3, 4)), name)(y))


def test_in_place_on_a_view_with_options():
    def program(T):
        x, y = leaf(T, 3, 4), leaf(T, 4, seed=1)
        base = x * 1
        base[1].add_(y, alpha=3).mul_(2)
        base.t()[2].sub_(y[:3], alpha=0.5)
        base[0].div_(y, rounding_mode="trunc")
        base[2].addcmul_(y, y, value=2).lerp_(y, 0.3)
        base[:, :2].addcdiv_(y[2:], y[:2] + 3)
        return base, *T.autograd.grad((base * base).sum(), (x, y))

    as_torch(program)


REFUSED = {
    "can't be cast to the desired output type": lambda x, T: x.mul_(1.5),
    "doesn't match the broadcast shape": lambda x, T: x.add_(T.ones(2, 1, 3, dtype=T.int64)),
    "must match the size of tensor b": lambda x, T: x.add_(T.ones(4, dtype=T.int64)),
    "alpha must not be a floating point number": lambda x, T: x.add_(1, alpha=0.5),
    "negative integer powers are not allowed": lambda x, T: x.pow_(-1),
    "rounding_mode to be one of None, 'trunc', or 'floor'": lambda x, T: x.div_(2, rounding_mode="up"),
    "result type .* can't be cast": lambda x, T: x.__itruediv__(2),
}


@pytest.mark.parametrize("match", REFUSED)
def test_a_refused_write_changes_nothing(match):
    same_error(lambda T: REFUSED[match](T.ones(2, 3, dtype=T.int64), T), match)
    x = xgrad.ones(2, 3, dtype=xgrad.int64)
    view, version = x[0], x._version
    for target in (x, view if "broadcast" not in match else x):
        outcome(lambda T, target=target: REFUSED[match](target, T), xgrad)
    assert (x._version, view._version, x.dtype, x.shape) == (version, version, xgrad.int64, (2, 3))
    assert x.tolist() == np.ones((2, 3)).tolist()


def test_a_leaf_refuses_arithmetic_in_place():
    for write in (lambda x: x.add_(1), lambda x: python.imul(x, 2), lambda x: x.div_(2, rounding_mode="floor")):
        same_error(lambda T, write=write: write(leaf(T, 3)), "a leaf Variable that requires grad")


def test_backward_after_a_factor_was_written_is_refused():
    def program(T, write):
        x, y = leaf(T, 3), leaf(T, 3, seed=1) * 1
        out = (x * y).sum()
        write(y)
        out.backward()

    for write in (lambda y: y.add_(1), lambda y: y.mul_(2), lambda y: python.isub(y, y)):
        same_error(lambda T, write=write: program(T, write), "modified by an inplace operation")


# -- powers -----------------------------------------------------------------------------------------------------------


def test_powers_by_a_number_and_by_a_tensor_are_one_function():
    """The short cuts for 0.5, -0.5, 2, 3, -1 and -2 have the derivatives of the general power."""
    x = np.array([0.5, 2.0, 3.0])
    for exponent in (0.5, -0.5, 2, 3, -1, -2, 1.7):
        agree(lambda T, x, k=exponent: x**k, x, order=1 if exponent == 1.7 else 2, forward=False)
        same(
            array(xgrad.tensor(x) ** exponent),
            array(xgrad.tensor(x) ** xgrad.tensor(exponent, dtype=xgrad.float64)),
            rtol=1e-12,
        )


def test_gradient_of_a_power_at_zero():
    zeros = np.array([0.0, 0.0, 0.0, 0.0, 2.0])
    exponents = np.array([0.0, 1.0, 2.0, 0.5, 0.0])
    agree(lambda T, x, k: x**k, zeros, exponents, order=1)
    for k in (0, 1, 2, 3, 0.0, 0.5, 1.5):
        agree(lambda T, x, k=k: x**k, zeros, order=1)
    agree(lambda T, k: 0**k, exponents, order=1)


def test_float_power_is_double_and_in_place_needs_a_double():
    as_torch(lambda T: [T.float_power(T.tensor(x), 2) for x in ([2], [True], [1j])] + [T.float_power(2, T.ones(2))])
    same_error(
        lambda T: T.ones(2).float_power_(2), "base given to float_power_ has dtype Float but .* requires dtype Double"
    )
    same_error(lambda T: T.ones(2).double().float_power_(2j), "dtype Double but .* requires dtype ComplexDouble")
    as_torch(lambda T: T.ones(2).double().mul_(3).float_power_(T.tensor([2.0, 3.0])))


# -- errors -----------------------------------------------------------------------------------------------------------

ERRORS = {
    "size of tensor a \\(2\\) must match the size of tensor b \\(3\\) at non-singleton dimension 1": lambda T: (
        T.ones(4, 2) * T.ones(3)
    ),
    "with two bool tensors is not supported": lambda T: T.sub(T.tensor([True]), True),
    "with a bool tensor is not supported": lambda T: T.ones(1) - T.tensor([True]),
    "Negation, the `-` operator,": lambda T: T.neg(T.tensor([True])),
    "Boolean alpha only supported for Boolean results": lambda T: T.add(T.ones(1), T.ones(1), alpha=True),
    "must not be a complex number": lambda T: T.add(T.ones(1), T.ones(1), alpha=1j),
    "not implemented for 'Bool'": lambda T: T.tensor([True]) % True,
    "not implemented for 'ComplexFloat'": lambda T: T.tensor([1j]) // 2,
    "must be Tensor, not NoneType|expected a Tensor or a number as an array argument, but got NoneType": lambda T: (
        T.add(T.ones(1), None)
    ),
    "(must be Tensor, not str|array argument, but got str)": lambda T: T.mul(T.ones(1), "a"),
    "[Ii]nteger division with addcdiv is no longer supported": lambda T: T.tensor([1]).addcdiv_(
        T.tensor([1]), T.tensor([2])
    ),
    "expected dtype .* for `end`": lambda T: T.lerp(T.ones(1), T.ones(1).double(), 0.5),
    "not implemented for 'Long'": lambda T: T.lerp(T.tensor([1]), T.tensor([2]), 0.5),
    "don't support automatic differentiation": lambda T: T.add(leaf(T, 2), 1, out=T.zeros(2)),
}


@pytest.mark.parametrize("match", ERRORS)
def test_errors(match):
    same_error(ERRORS[match], match)


# -- numbers beside half precision ------------------------------------------------------------------------------------

BESIDE_HALF = {
    "mul": lambda T, x: x * 1e5,
    "mul by a 0-dim tensor": lambda T, x: x * T.tensor(1e5),
    "in place": lambda T, x: (x * 1).mul_(65536.0),
    "div": lambda T, x: x / 1e-6,
    "addcmul": lambda T, x: T.addcmul(x, x, x, value=1e5),
    "addcdiv": lambda T, x: T.addcdiv(x, x, x + 1, value=1e5),
    "lerp": lambda T, x: T.lerp(x, x, 1e5),
}


@pytest.mark.parametrize("name", BESIDE_HALF)
def test_a_number_beyond_half_precision_scales_what_stays_within(name):
    def program(T):
        x = T.tensor([1e-4, 0.0, 2e-3], dtype=T.float16, requires_grad=True)
        y = BESIDE_HALF[name](T, x)
        assert y.dtype == T.float16
        return y, T.autograd.grad(y, x, T.full_like(y, 1e-4)) if name not in (
            "addcdiv",
            "lerp",
        ) else ()  # torch refuses

    for here, there in zip(*(flat(program(T)) for T in (xgrad, torch)), strict=True):
        np.testing.assert_allclose(array(here).astype(float), array(there).astype(float), rtol=4e-3, atol=1e-6)


def flat(results):
    return [results[0], *results[1]]


WRAPPING = {
    "where": lambda T: T.where(T.tensor([True, False]), T.ones(2, dtype=T.int8), 300),
    "where of floats": lambda T: T.where(T.tensor([True, False]), T.ones(2), 1e40),
    "clamp": lambda T: T.full((2,), 100, dtype=T.int8).clamp(max=300),
    "pad": lambda T: T.nn.functional.pad(T.ones(2, dtype=T.int32), (1, 1), value=2**40),
    "pad with nan": lambda T: T.nn.functional.pad(T.ones(2, dtype=T.int32), (1, 1), value=NAN),
    "threshold": lambda T: T.nn.functional.threshold(T.zeros(2, dtype=T.uint8), 1, 2**40),
    "lerp": lambda T: T.lerp(T.zeros(2), T.ones(2), 1j),
}


@pytest.mark.parametrize("name", WRAPPING)
def test_a_number_that_the_dtype_cannot_hold_is_refused(name):
    for T in (torch, xgrad):
        with pytest.raises(RuntimeError, match=r"value .*cannot be converted to type .* without overflow"):
            WRAPPING[name](T)


def test_renorm_is_of_floating_point():
    same_error(lambda T: T.ones(2, 2, dtype=T.int32).renorm(2, 0, 1), "linalg.vector_norm: Expected a floating point")
