"""Numbers are operands: another value never compiles anew, has no gradient and leaves the dtype as it is."""

import pytest

import xgrad

from ..oracle import as_torch, leaf
from .test_call import compilations

# An operator as a function of (namespace, its functional module, a (4, 5) tensor, a number); two of the numbers.
NUMBERS = {
    "leaky_relu": (lambda T, F, x, k: F.leaky_relu(x, k), 0.1, 0.3),
    "threshold": (lambda T, F, x, k: F.threshold(x, k, 7.0), 0.1, 0.3),
    "threshold's value": (lambda T, F, x, k: F.threshold(x, 0.1, k), 0.1, 0.3),
    "hardtanh": (lambda T, F, x, k: F.hardtanh(x, -k, k), 0.1, 0.3),
    "hardshrink": (lambda T, F, x, k: F.hardshrink(x, k), 0.1, 0.3),
    "softshrink": (lambda T, F, x, k: F.softshrink(x, k), 0.1, 0.3),
    "elu": (lambda T, F, x, k: F.elu(x, k), 0.1, 0.3),
    "celu": (lambda T, F, x, k: F.celu(x, k), 0.5, 0.25),
    "softplus": (lambda T, F, x, k: F.softplus(x, k), 0.5, 2.0),
    "softplus' threshold": (lambda T, F, x, k: F.softplus(x, 1.0, k), 0.5, 0.2),
    "rrelu": (lambda T, F, x, k: F.rrelu(x, k, 2 * k), 0.1, 0.3),
}


def value_and_gradient(T, function, number):
    x = leaf(T, 4, 5)
    y = function(T, T.nn.functional, x * 1, number)
    return y, *(T.autograd.grad((y * y).sum(), x) if y.requires_grad else ())


@pytest.mark.parametrize("name", NUMBERS)
def test_two_numbers_are_one_program(name):
    function, *numbers = NUMBERS[name]
    value_and_gradient(xgrad, function, numbers[0])
    with compilations() as seen:
        value_and_gradient(xgrad, function, numbers[1])
    assert seen == []


@pytest.mark.parametrize("name", NUMBERS)
def test_number_gives_what_torch_gives(name):
    function, *numbers = NUMBERS[name]
    for number in numbers:
        as_torch(value_and_gradient, function, number)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", NUMBERS)
def test_number_leaves_the_dtype_as_it_is(name, dtype):
    function, *numbers = NUMBERS[name]
    x = leaf(xgrad, 4, 5).to(getattr(xgrad, dtype))
    for number in numbers:
        assert function(xgrad, xgrad.nn.functional, x, number).dtype == x.dtype


@pytest.mark.parametrize(
    ("node", "names"),
    [
        (lambda T, F, x: F.leaky_relu(x, 0.2), {"negative_slope": 0.2}),
        (lambda T, F, x: F.threshold(x, 0.1, 0.2), {"threshold": 0.1}),
        (lambda T, F, x: F.hardtanh(x, -0.1, 0.2), {"min_val": -0.1, "max_val": 0.2}),
        (lambda T, F, x: F.hardshrink(x, 0.1), {"lambd": 0.1}),
        (lambda T, F, x: F.softshrink(x, 0.1), {"lambd": 0.1}),
        (lambda T, F, x: F.elu(x, 0.1), {"alpha": 0.1}),
        (lambda T, F, x: F.celu(x, 0.1), {"alpha": 0.1}),
        (lambda T, F, x: F.softplus(x, 0.1, 0.2), {"beta": 0.1, "threshold": 0.2}),
    ],
)
def test_node_saves_numbers_under_torchs_names(node, names):
    def program(T):
        fn = node(T, T.nn.functional, leaf(T, 4, 5)).grad_fn
        return {name: getattr(fn, f"_saved_{name}") for name in names}

    assert program(xgrad) == names
    as_torch(program)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: xgrad.nn.functional.leaky_relu(x, None), TypeError, "'negative_slope' must be a number, not None"),
        (lambda x: xgrad.nn.functional.leaky_relu(x, x), TypeError, r"must be a number, not a tensor with 2 dim"),
        (lambda x: xgrad.nn.functional.leaky_relu(x, "0.1"), TypeError, "a number .* but got str"),
        (lambda x: xgrad.nn.functional.elu(x, 1j), RuntimeError, "cannot be converted to type Double .* is complex"),
        (lambda x: xgrad.nn.functional.celu(x, 0), RuntimeError, "alpha cannot be 0"),
        (lambda x: xgrad.nn.functional.softshrink(x, -0.5), RuntimeError, "found to be -0.5"),
        (lambda x: xgrad.nn.functional.hardtanh(x, 2, 1), ValueError, r"min_val \(2\) must be less"),
    ],
)  # fmt: skip
def test_what_is_no_number_or_a_wrong_one_is_an_error(call, error, text):
    for _ in range(2):  # a program that exists already must not accept it
        with pytest.raises(error, match=text):
            call(leaf(xgrad, 4, 5))
        call_again = leaf(xgrad, 4, 5)
        xgrad.nn.functional.celu(xgrad.nn.functional.softshrink(call_again, 0.5), 1.0)
