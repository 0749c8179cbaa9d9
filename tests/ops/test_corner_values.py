"""NaN, infinity, bools, empty tensors, numbers beyond a dtype: values, gradients and errors are PyTorch's."""

import math

import pytest
import torch

import xgrad
from xgrad.base.limits import x64_for_now

from ..oracle import as_torch, same, same_error

NAN, INF = math.nan, math.inf
TRUTH = [[True, False, True], [False, False, True]]
PLACES = [[0, 0, 1], [2, 2, 2]]


# -- a product with a mask: XLA takes it for a choice, which would hide NaN and infinity ------------------------------

MASKED = {
    "tensor * mask": lambda T, x, mask: x * mask,
    "mask * tensor": lambda T, x, mask: mask * x,
    "mul_": lambda T, x, mask: x.clone().mul_(mask),
    "comparison": lambda T, x, mask: x * (x.abs() < 1),
    "a bool": lambda T, x, mask: x * T.tensor(False),
    "cast": lambda T, x, mask: x * mask.to(x.dtype),
    "written": lambda T, x, mask: x * T.zeros_like(x).copy_(mask),
    "written by a comparison": lambda T, x, mask: x * x.clone().gt_(0),
    "dot": lambda T, x, mask: T.dot(x, mask.to(x.dtype)),
    "addcmul": lambda T, x, mask: T.addcmul(x, x, mask.type_as(x)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", MASKED)
def test_product_with_a_mask_keeps_nan(name, dtype):
    def program(T):
        x = T.tensor([1.0, NAN, INF, -2.0, -INF], dtype=getattr(T, dtype))
        return x, T.tensor([True, False, False, False, True])

    wanted = MASKED[name](torch, *program(torch))
    x, mask = program(xgrad)
    same(MASKED[name](xgrad, x, mask), wanted)
    same(xgrad.compile(lambda x, mask: MASKED[name](xgrad, x, mask))(x, mask), wanted)
    with xgrad.lazy():
        lazily = MASKED[name](xgrad, x, mask)
    same(lazily, wanted)


@pytest.mark.parametrize("number", [1j, complex(0, NAN), complex(0, INF), complex(0, -0.0), 0j, 2 + 0j])
def test_complex_numbers_are_true_by_both_parts(number):
    as_torch(lambda T: [T.tensor([number]).all(), T.tensor([[number, 0]]).any(1), T.tensor([number]).bool()])


# -- reductions -------------------------------------------------------------------------------------------------------

EXTREMA = {
    "amax": lambda T, x: x.amax(1),
    "amin": lambda T, x: x.amin(),
    "aminmax": lambda T, x: sum(T.aminmax(x)),
    "aminmax of rows": lambda T, x: sum(T.aminmax(x, dim=1)),
    "max": lambda T, x: x.max(),
    "median": lambda T, x: x.median(),
    "renorm": lambda T, x: x.renorm(1, 0, 1.0),
}


@pytest.mark.parametrize("values", [[[1.0, NAN], [2.0, 2.0]], [[NAN, NAN], [0.0, 1.0]], [[3.0, 3.0], [INF, INF]]])
@pytest.mark.parametrize("name", EXTREMA)
def test_gradients_of_extrema_with_nan(name, values):
    def program(T):
        x = T.tensor(values, dtype=T.float64, requires_grad=True)
        return T.autograd.grad(EXTREMA[name](T, x).sum(), x)

    as_torch(program)


@pytest.mark.parametrize("name", ["std", "std_mean", "var"])
@pytest.mark.parametrize("values", [[0.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
def test_second_derivative_of_a_deviation(name, values):
    def program(T):
        x = T.tensor(values, dtype=T.float64, requires_grad=True)
        found = getattr(T, name)(x)
        (grad,) = T.autograd.grad(found[0] if name == "std_mean" else found, x, create_graph=True)
        return grad.detach(), T.autograd.grad((grad * T.tensor([1.0, 3.0], dtype=T.float64)).sum(), x)

    as_torch(program)


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin", "argmax", "aminmax", "kthvalue", "mode"])
@pytest.mark.parametrize(("shape", "dim"), [((0,), ()), ((2, 0), ()), ((2, 0), (1,)), ((0,), (0,))])
def test_extrema_of_nothing(name, shape, dim):
    def program(T):
        if name == "aminmax":
            return T.aminmax(T.zeros(shape), **({"dim": dim[0]} if dim else {}))
        return getattr(T.zeros(shape), name)(*(1,) * (name == "kthvalue"), *dim)

    same_error(program, "reduction dim")


REFUSED = {
    "dist of integers": (lambda T: T.dist(T.tensor([1, 2]), T.tensor([2, 1])), "dtype"),
    "cdist of integers": (lambda T: T.cdist(T.ones(1, 2), T.ones(1, 2, dtype=T.int64)), "X2 got: Long"),
    "std of integers": (lambda T: T.tensor([1, 2]).std(), "floating point"),
    "gradient of bytes": (lambda T: T.gradient(T.ones(3, dtype=T.uint8)), "uint8"),
    "vander of one power": (lambda T: T.linalg.vander(T.ones(3), N=1), "N must be greater than 1"),
    "index of bytes": (lambda T: T.ones(3).gather(0, T.zeros(2, dtype=T.uint8)), "Expected dtype int"),
    "take of shorts": (lambda T: T.ones(3).take(T.zeros(2, dtype=T.int16)), "Expected"),
    "select by a mask": (lambda T: T.ones(3).index_select(0, T.ones(3, dtype=T.bool)), "Expected dtype int"),
    "mean of bools": (lambda T: T.tensor(TRUTH).scatter_reduce(1, T.tensor(PLACES), T.tensor(TRUTH), "mean"), "Bool"),
    "singular factor": (lambda T: T.cholesky_inverse(T.tensor([[1.0, 0.0], [2.0, 0.0]])), "diagonal element 2 is zero"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    same_error(*REFUSED[name])


def test_refused_by_another_type():
    with pytest.raises(RuntimeError, match="step must be nonzero"):
        xgrad.arange(0, 1, 0.5, dtype=xgrad.int64)
    with pytest.raises(RuntimeError, match="bfloat16"):
        xgrad.cholesky_inverse(xgrad.ones(2, 2, dtype=xgrad.bfloat16))


def test_results_keep_pytorchs_dtypes():
    as_torch(lambda T: [T.trapezoid(T.zeros(0, dtype=T.int32)), T.unravel_index(T.tensor([4], dtype=T.int32), (2, 3))])
    ones = lambda T: T.ones(1, 2, dtype=T.int64)  # noqa: E731
    as_torch(lambda T: T.nn.functional.pairwise_distance(ones(T), ones(T) * 3), rtol=1e-6)


# -- bools that are scattered -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("other", [TRUTH, [[True] * 3] * 2, [[False] * 3] * 2])
def test_bools_scatter_as_bools(other):
    def program(T):
        x, source, index, rows = T.tensor(TRUTH), T.tensor(other), T.tensor(PLACES), T.tensor([0, 0])
        return [
            *[
                x.scatter_reduce(1, index, source, reduce, include_self=included)
                for reduce in ("sum", "prod", "amax", "amin")
                for included in (True, False)
            ],
            x.scatter_add(1, index, source),
            x.scatter(1, index, source, reduce="add"),
            x.scatter(1, index, source, reduce="multiply"),
            x.index_put((rows,), source[1], accumulate=True),
            x.index_add(0, rows, source),
            x.put(T.tensor([0, 0, 4]), source[1], accumulate=True),
            x.clone().scatter_add_(1, index, source),
        ]

    as_torch(program)


# -- numbers beyond a dtype -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("diagonal", [2**31, -(2**40), 2**63 - 1, -(2**63)])
def test_diagonals_beyond_int32(diagonal):
    program = lambda T: [T.ones(2, 2).tril(diagonal), T.triu(T.ones(2, 2), diagonal), T.ones(2, 2).triu_(diagonal)]  # noqa: E731
    as_torch(program)
    with x64_for_now(False):
        same(program(xgrad), program(torch))


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_linspace_of_integers_reaches_whole_numbers(dtype):
    for ends in ((0, 7), (7, 0)):
        as_torch(lambda T, ends=ends: T.linspace(*ends, 50, dtype=getattr(T, dtype)))
    with x64_for_now(False):
        assert xgrad.linspace(0, 7, 50, dtype=xgrad.int32).tolist() == [7 * i // 49 for i in range(50)]


def test_float_power_has_a_gradient_of_double_precision():
    def program(T):
        x = T.tensor([1.1, 2.0], requires_grad=True)
        w = T.tensor([1.3, -0.5], requires_grad=True)
        return T.autograd.grad(T.float_power(x, w).sum(), (x, w))

    as_torch(program, rtol=1e-7)


# -- memory formats ---------------------------------------------------------------------------------------------------

WITH_FORMAT = {
    "clone": lambda T, x, f: x.clone(memory_format=f),
    "contiguous": lambda T, x, f: x.contiguous(memory_format=f),
    "cpu": lambda T, x, f: x.cpu(memory_format=f),
    "double": lambda T, x, f: x.double(memory_format=f),
    "to": lambda T, x, f: x.to(T.float64, memory_format=f),
    "zeros_like": lambda T, x, f: T.zeros_like(x, memory_format=f),
    "full_like": lambda T, x, f: T.full_like(x, 1.0, memory_format=f),
    "resize_": lambda T, x, f: x.resize_(3, 2, memory_format=f),
}


@pytest.mark.parametrize("name", WITH_FORMAT)
def test_memory_format_is_checked(name):
    call = WITH_FORMAT[name]
    for wrong in ("x", 3):
        same_error(lambda T, wrong=wrong: call(T, T.zeros(2, 3), wrong), "memory_format' must be")
    same_error(lambda T: call(T, T.zeros(2, 3), T.channels_last), "required rank 4")
    as_torch(lambda T: call(T, T.zeros(2, 3), T.contiguous_format))
