"""autograd.functional: Jacobians, Hessians, their products with vectors; against torch."""

import pytest
import torch

import xgrad

from ..oracle import data, leaf, outcome, same, same_error

# torch compiles its own forward-mode rules when the first level is entered.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def structure(x):
    """Tuples and tensors as they are nested, with what a tensor requires."""
    if isinstance(x, (tuple, list)):
        return tuple(structure(item) for item in x)
    return x.requires_grad if isinstance(x, (torch.Tensor, xgrad.Tensor)) else type(x).__name__


def agree(program):
    """Values, nesting and requires_grad are torch's, or both raise errors of one type."""
    theirs, ours = outcome(lambda T: program(T, T.autograd.functional), torch), None
    ours = outcome(lambda T: program(T, T.autograd.functional), xgrad)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), f"xgrad: {ours!r}; torch: {theirs!r}"
        return
    assert not isinstance(ours, Exception), repr(ours)
    same(ours, theirs)
    assert structure(ours) == structure(theirs)


def square(x):
    return x * x


def rows(x):
    return x.exp().sum(dim=1)


def both(x, y):
    return x * y, (x + y * y).sum()


def cubes(x, y):
    return (x**3).sum() + (x * y**2).sum()


def complex_data(T, shape):
    return data(T, shape) + data(T, shape, 1) * 1j


FORWARD = {"vectorize": True, "strategy": "forward-mode"}
REVERSE = {"vectorize": True}

VALUES = {
    "vjp of one": lambda T, F: F.vjp(square, data(T, (3,)), data(T, (3,), 1)),
    "vjp of a tuple of one": lambda T, F: F.vjp(square, (data(T, (3,)),), (data(T, (3,), 1),)),
    "vjp with a function to a tuple of one": lambda T, F: F.vjp(lambda x: (x * x,), data(T, (3,)), data(T, (3,), 1)),
    "vjp of several": lambda T, F: F.vjp(both, (data(T, (3,)), data(T, (3,), 1)), (data(T, (3,), 2), data(T, (), 3))),
    "vjp of one element needs no v": lambda T, F: F.vjp(lambda x: x.sum(), data(T, (3,))),
    "vjp of a row needs no v": lambda T, F: F.vjp(lambda x: x.sum().reshape(1), data(T, (3,))),
    "vjp of a scalar": lambda T, F: F.vjp(square, data(T, ())),
    "vjp of empty": lambda T, F: F.vjp(square, data(T, (0, 3)), data(T, (0, 3))),
    "vjp of an unused input": lambda T, F: F.vjp(lambda x, y: x * x, (data(T, (3,)), data(T, (2,))), data(T, (3,))),
    "vjp of a constant": lambda T, F: F.vjp(lambda x: data(T, (2,)), data(T, (3,)), data(T, (2,))),
    "vjp with v of another precision": lambda T, F: F.vjp(square, data(T, (3,)), data(T, (3,)).to(T.float32)),
    "vjp of complex": lambda T, F: F.vjp(square, complex_data(T, (3,)), complex_data(T, (3,))),
    "vjp of the input itself": lambda T, F: F.vjp(lambda x: x, data(T, (3,)), data(T, (3,))),
    "vjp of a leaf without a graph": lambda T, F: F.vjp(square, leaf(T, 3), leaf(T, 3)),
    "vjp recorded, inputs are not": lambda T, F: F.vjp(square, data(T, (3,)), data(T, (3,)), create_graph=True),
    "jvp of one": lambda T, F: F.jvp(rows, data(T, (2, 3)), data(T, (2, 3), 1)),
    "jvp of several": lambda T, F: F.jvp(both, (data(T, (3,)), data(T, (3,), 1)), (data(T, (3,), 2), data(T, (3,), 3))),
    "jvp of one element needs no v": lambda T, F: F.jvp(lambda x: x * data(T, (3,)), data(T, (1,))),
    "jvp of a scalar": lambda T, F: F.jvp(square, data(T, ())),
    "jvp of empty": lambda T, F: F.jvp(square, data(T, (0,)), data(T, (0,))),
    "jvp of a linear function": lambda T, F: F.jvp(lambda x: x * 2, data(T, (3,)), data(T, (3,), 1)),
    "jvp of a constant": lambda T, F: F.jvp(lambda x: data(T, (2,)), data(T, (3,)), data(T, (3,))),
    "jvp of complex": lambda T, F: F.jvp(square, complex_data(T, (3,)), complex_data(T, (3,))),
    "jvp through in-place writes": lambda T, F: F.jvp(
        lambda x: x.clone().mul_(x)[1:].mul_(2), data(T, (3,)), data(T, (3,), 1)
    ),
    "vhp of one": lambda T, F: F.vhp(lambda x: (x**3).sum(), data(T, (2, 2)), data(T, (2, 2), 1)),
    "vhp of several": lambda T, F: F.vhp(
        cubes, (data(T, (3,)), data(T, (3,), 1)), (data(T, (3,), 2), data(T, (3,), 3))
    ),
    "vhp of a scalar": lambda T, F: F.vhp(lambda x: x**3, data(T, ())),
    "vhp of a linear function": lambda T, F: F.vhp(lambda x: x.sum(), data(T, (3,)), data(T, (3,))),
    "vhp of a constant": lambda T, F: F.vhp(lambda x: data(T, ()), data(T, (3,)), data(T, (3,))),
    "vhp of an unused input": lambda T, F: F.vhp(
        lambda x, y: (x**3).sum(), (data(T, (3,)), data(T, (2,))), (data(T, (3,)), data(T, (2,)))
    ),
    "hvp of one": lambda T, F: F.hvp(lambda x: (x**3).sum(), data(T, (2, 2)), data(T, (2, 2), 1)),
    "hvp of several": lambda T, F: F.hvp(
        cubes, (data(T, (3,)), data(T, (3,), 1)), (data(T, (3,), 2), data(T, (3,), 3))
    ),
    "hvp of one element needs no v": lambda T, F: F.hvp(lambda x: x**3, data(T, (1,))),
    "hvp of a linear function": lambda T, F: F.hvp(lambda x: x.sum(), data(T, (3,)), data(T, (3,))),
    "hvp of complex": lambda T, F: F.hvp(lambda x: (x * x).abs().sum(), complex_data(T, (2,)), complex_data(T, (2,))),
    "jacobian": lambda T, F: F.jacobian(rows, data(T, (2, 3))),
    "jacobian of a tuple of one": lambda T, F: F.jacobian(rows, (data(T, (2, 3)),)),
    "jacobian of a function to a tuple of one": lambda T, F: F.jacobian(lambda x: (rows(x),), data(T, (2, 3))),
    "jacobian of several": lambda T, F: F.jacobian(both, (data(T, (3,)), data(T, (3,), 1))),
    "jacobian of a scalar": lambda T, F: F.jacobian(square, data(T, ())),
    "jacobian of several, of two dtypes": lambda T, F: F.jacobian(
        lambda x, y: (x * y, y * 2), (data(T, (3,)), T.ones(3))
    ),
    "jacobian with an integer output": lambda T, F: F.jacobian(lambda x: (x.argmax(), x * x), data(T, (3,))),
    "jacobian of a constant": lambda T, F: F.jacobian(lambda x: data(T, (2,)), data(T, (3,))),
    "jacobian of an unused input": lambda T, F: F.jacobian(lambda x, y: x * x, (data(T, (2,)), data(T, (3,)))),
    "jacobian of an empty input": lambda T, F: F.jacobian(lambda x: x.sum(), data(T, (0, 2))),
    "jacobian of complex": lambda T, F: F.jacobian(lambda x: x.abs(), complex_data(T, (2,))),
    "jacobian of complex to complex": lambda T, F: F.jacobian(square, complex_data(T, (2,))),
    "jacobian recorded": lambda T, F: F.jacobian(square, leaf(T, 3), create_graph=True),
    "jacobian recorded, linear": lambda T, F: F.jacobian(lambda x: x * 2, leaf(T, 3), create_graph=True),
    "jacobian in rows": lambda T, F: F.jacobian(rows, data(T, (2, 3)), **REVERSE),
    "jacobian in rows of several": lambda T, F: F.jacobian(both, (data(T, (3,)), data(T, (3,), 1)), **REVERSE),
    "jacobian in rows with an integer output": lambda T, F: F.jacobian(
        lambda x: (x.argmax(), x * x), data(T, (3,)), **REVERSE
    ),
    "jacobian in rows of a constant": lambda T, F: F.jacobian(lambda x: data(T, (2,)), data(T, (3,)), **REVERSE),
    "jacobian in rows of an unused input": lambda T, F: F.jacobian(
        lambda x, y: x * x, (data(T, (2,)), data(T, (3,))), **REVERSE
    ),
    "jacobian in rows of complex": lambda T, F: F.jacobian(square, complex_data(T, (2,)), **REVERSE),
    "jacobian in rows recorded": lambda T, F: F.jacobian(square, leaf(T, 3), create_graph=True, **REVERSE),
    "jacobian in columns": lambda T, F: F.jacobian(rows, data(T, (2, 3)), **FORWARD),
    "jacobian in columns of several": lambda T, F: F.jacobian(both, (data(T, (3,)), data(T, (3,), 1)), **FORWARD),
    "jacobian in columns of a constant": lambda T, F: F.jacobian(lambda x: data(T, (2,)), data(T, (3,)), **FORWARD),
    "jacobian in columns of complex": lambda T, F: F.jacobian(square, complex_data(T, (2,)), **FORWARD),
    "jacobian in columns of two dtypes": lambda T, F: F.jacobian(
        lambda x, y: (x * y, y * 2), (data(T, (3,)), T.ones(3)), **FORWARD
    ),
    "jacobian in columns of a leaf": lambda T, F: F.jacobian(square, leaf(T, 3), **FORWARD),
    "jacobian in columns, an empty output": lambda T, F: F.jacobian(lambda x: x[:0], data(T, (3,)), **FORWARD),
    "hessian": lambda T, F: F.hessian(lambda x: (x**3).sum(), data(T, (2, 2))),
    "hessian of a tuple of one": lambda T, F: F.hessian(lambda x: (x**3).sum(), (data(T, (2,)),)),
    "hessian of several": lambda T, F: F.hessian(cubes, (data(T, (2,)), data(T, (2,), 1))),
    "hessian of a row": lambda T, F: F.hessian(lambda x: (x**3).sum().reshape(1, 1), data(T, (2,))),
    "hessian of a linear function": lambda T, F: F.hessian(lambda x: x.sum(), data(T, (2,))),
    "hessian recorded": lambda T, F: F.hessian(lambda x: (x**3).sum(), leaf(T, 2), create_graph=True),
    "hessian in rows": lambda T, F: F.hessian(cubes, (data(T, (2,)), data(T, (2,), 1)), vectorize=True),
    "hessian in columns": lambda T, F: F.hessian(
        lambda x: (x**3).sum(), data(T, (2, 2)), vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
}


@pytest.mark.exhaustive
@pytest.mark.one_in(36)
@pytest.mark.parametrize("name", VALUES)
def test_values_and_nesting(name):
    agree(VALUES[name])


def call(name, function, *arguments, **kwargs):
    """A call in each library, with arguments that are made for it."""
    return lambda T: getattr(T.autograd.functional, name)(function, *(make(T) for make in arguments), **kwargs)


X, Y = (lambda T: data(T, (3,))), (lambda T: data(T, (2,)))
TWO = lambda T: (data(T, (3,)), data(T, (2,)))  # noqa: E731
STRICT = {"strict": True}
RECORDED = {"strict": True, "create_graph": True}

ERRORS = {
    "a list": (lambda T: T.autograd.functional.vjp(square, [data(T, (3,))]), "must be either a Tensor or a tuple of"),
    "a number": (call("jvp", square, lambda T: 3.0), "The inputs given to jvp must be either"),
    "a number in a tuple": (
        lambda T: T.autograd.functional.jacobian(both, (data(T, (3,)), 1.0)),
        "value at index 1 has type <class 'float'>",
    ),
    "a function to a list": (call("jacobian", lambda x: [x], X), "outputs of the user-provided function given to jac"),
    "a function to a number": (
        call("hessian", lambda x: 1.0, X),
        "outputs of the user-provided function has type",
    ),
    "vjp without v": (call("vjp", square, X), "v can only be None if the user-provided function returns a single Ten"),
    "jvp without v": (call("jvp", square, X), "can only be None if the input to the user-provided function"),
    "vhp without v": (call("vhp", lambda x: x.sum(), X), "can only be None if the input to the user-provided"),
    "hvp without v": (call("hvp", lambda x: x.sum(), X), "can only be None if the input to the user-provided"),
    "v of another size": (call("vjp", square, X, Y), "v has invalid size: should be"),
    "v of another size in a tuple": (
        call("jvp", lambda x, y: x, TWO, lambda T: (data(T, (3,)), data(T, (3,)))),
        "Entry 1 in v has invalid size",
    ),
    "v of another length": (
        call("jvp", lambda x, y: x, TWO, X),
        "tuple of invalid length: should be 2 but got 1",
    ),
    "several v": (call("vjp", square, X, lambda T: (data(T, (3,)), data(T, (3,)))), "v should contain a single Tensor"),
    "hessian of several outputs": (call("hessian", lambda x: (x.sum(),), X), "given to hessian should return a single"),
    "hessian of a vector": (call("hessian", square, X), "hessian should contain a single element"),
    "vhp of several outputs": (call("vhp", lambda x: (x.sum(),), X, X), "given to vhp should return a single Tensor"),
    "hvp of a vector": (call("hvp", square, X, X), "given to hvp should contain a single element"),
    "integers": (lambda T: T.autograd.functional.jacobian(square, T.arange(3)), "floating point"),
    "integers in columns": (
        lambda T: T.autograd.functional.jacobian(square, T.arange(3), **FORWARD),
        "Expected primal to be floating point or complex",
    ),
    "unknown strategy": (call("jacobian", square, X, strategy="sideways"), "Expected strategy to be either"),
    "unknown outer strategy": (
        call("hessian", lambda x: x.sum(), X, outer_jacobian_strategy="sideways"),
        "Expected strategy to be either",
    ),
    "columns one by one": (call("jacobian", square, X, strategy="forward-mode"), "implemented for `vectorize=True`"),
    "columns recorded": (call("jacobian", square, X, create_graph=True, **FORWARD), "create_graph=True` and `strategy"),
    "columns strict": (call("jacobian", square, X, strict=True, **FORWARD), "`strict=True` and `strategy="),
    "rows strict": (call("jacobian", square, X, strict=True, **REVERSE), "`strict=True` and `vectorized=True`"),
    "vjp strict: detached": (
        call("vjp", lambda x: x.detach(), X, X, **STRICT),
        "Output 0 of the user-provided function",
    ),
    "vjp strict: unused": (
        call("vjp", lambda x, y: x * x, TWO, X, **STRICT),
        "output of the user-provided function is independent of input 1",
    ),
    "vjp strict: linear": (
        call("vjp", lambda x: x * 2, X, X, **RECORDED),
        "jacobian of the user-provided function is independent of input 0",
    ),
    "jvp strict: detached": (call("jvp", lambda x: x.detach(), X, X, **STRICT), "does not require gradients"),
    "jvp strict: unused": (
        call("jvp", lambda x, y: x * x, TWO, TWO, **STRICT),
        "output of the user-provided function is independent of input 1",
    ),
    "jvp strict: linear": (
        call("jvp", lambda x: x * 2, X, X, **RECORDED),
        "jacobian of the user-provided function is independent of input 0",
    ),
    "vhp strict: detached": (call("vhp", lambda x: x.sum().detach(), X, X, **STRICT), "does not require gradients"),
    "vhp strict: unused": (
        call("vhp", lambda x, y: (x**3).sum(), TWO, TWO, **STRICT),
        "output of the user-provided function is independent of input 1",
    ),
    "vhp strict: linear": (
        call("vhp", lambda x: x.sum(), X, X, **STRICT),
        "jacobian of the user-provided function with respect to input 0",
    ),
    "vhp strict: separate": (
        call("vhp", lambda x, y: (x * 2).sum() * y.sum(), TWO, TWO, **RECORDED),
        "hessian of the user-provided function is independent of input 0",
    ),
    "hvp strict: quadratic": (
        call("hvp", lambda x: (x * x).sum(), X, X, **RECORDED),
        "hessian of the user-provided function is independent of input 0",
    ),
    "hessian strict: quadratic": (
        call("hessian", lambda x: (x * x).sum(), X, **RECORDED),
        "jacobian of the user-provided function is independent of input 0",
    ),
    "hvp strict: linear": (
        call("hvp", lambda x: x.sum(), X, X, **STRICT),
        "jacobian of the user-provided function with respect to input 0 is independent",
    ),
    "jacobian strict: detached": (call("jacobian", lambda x: x.detach(), X, **STRICT), "does not require gradients"),
    "jacobian strict: unused": (
        call("jacobian", lambda x, y: (x * y.sum(), x * x), TWO, **STRICT),
        "Output 1 of the user-provided function is independent of input 1",
    ),
    "jacobian strict: linear": (
        call("jacobian", lambda x: x * 2, X, **RECORDED),
        "jacobian of the user-provided function is independent of input 0",
    ),
    "hessian strict: detached": (call("hessian", lambda x: x.sum().detach(), X, **STRICT), "does not require grad"),
    "hessian strict: linear": (
        call("hessian", lambda x: x.sum(), X, **STRICT),
        "jacobian of the user-provided function with respect to input 0 is independent of the input",
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    same_error(*ERRORS[name])


def second_order(T, function, *v, **kwargs):
    """Gradients through a result, of the input and of what the function captured."""
    F = T.autograd.functional
    x, w = leaf(T, 3), leaf(T, 3, seed=5)
    vectors = [leaf(T, *shape, seed=7) for shape in v]
    result = getattr(F, function)(
        lambda x: (w * x**3).sum() if function in ("vhp", "hvp", "hessian") else w * x**3,
        x,
        *vectors,
        create_graph=True,
        **kwargs,
    )
    last = result[-1] if isinstance(result, tuple) else result
    return T.autograd.grad((last * last).sum(), [x, w, *vectors], allow_unused=True)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("function", "v", "kwargs"),
    [
        ("vjp", [(3,)], {}), ("jvp", [(3,)], {}), ("vhp", [(3,)], {}), ("hvp", [(3,)], {}),
        ("jacobian", [], {}), ("jacobian", [], REVERSE), ("hessian", [], {}), ("hessian", [], REVERSE),
    ],
)  # fmt: skip
def test_results_can_be_differentiated(function, v, kwargs):
    same(second_order(xgrad, function, *v, **kwargs), second_order(torch, function, *v, **kwargs))


@pytest.mark.exhaustive
def test_columns_have_the_history_of_what_they_depend_on():
    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=5)
        J = T.autograd.functional.jacobian(lambda x: w * x**3, x, **FORWARD)
        return T.autograd.grad((J * J).sum(), [x, w])

    same(program(xgrad), program(torch))


def test_results_are_recorded_under_no_grad_if_asked_for():
    def program(T):
        with T.no_grad():
            return T.autograd.functional.jvp(square, leaf(T, 3), leaf(T, 3, seed=1), create_graph=True)

    ours, theirs = program(xgrad), program(torch)
    same(ours, theirs)
    assert structure(ours) == structure(theirs) == (True, True)


def test_what_the_function_captured_is_a_constant():
    """The same tensor as argument and by capture: only the argument is differentiated."""

    def program(T):
        x = leaf(T, 3)
        return T.autograd.functional.jacobian(lambda y: y * x, x), x.grad

    same(program(xgrad), program(torch))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kwargs", [{}, REVERSE, FORWARD], ids=["one by one", "rows", "columns"])
@pytest.mark.parametrize(("outputs", "inputs"), [((0,), (3,)), ((2,), (0,)), ((0,), (0,)), ((0, 2), ())])
def test_jacobians_of_nothing_are_empty(outputs, inputs, kwargs):
    """torch raises for most of these, of `torch.stack` of nothing."""
    x = data(xgrad, inputs)
    J = xgrad.autograd.functional.jacobian(lambda x: x.sum() * data(xgrad, outputs), x, **kwargs)
    assert J.shape == (*outputs, *inputs)
    assert J.dtype == xgrad.float64


def test_hessian_of_nothing_is_empty():
    x = data(xgrad, (0, 2))
    assert xgrad.autograd.functional.hessian(lambda x: (x * x).sum(), x).shape == (0, 2, 0, 2)


def test_strict_names_the_input_of_a_constant_jacobian():
    """torch names the output's number there."""
    x, y = leaf(xgrad, 3), leaf(xgrad, 3)
    with pytest.raises(RuntimeError, match="independent of input 1"):
        xgrad.autograd.functional.jacobian(lambda x, y: x * x + y, (x, y), **RECORDED)


def test_columns_nest_in_tuples():
    """torch nests in lists there, against its own documentation."""
    x = data(xgrad, (2,))
    J = xgrad.autograd.functional.jacobian(both, (x, x), **FORWARD)
    assert isinstance(J, tuple)
    assert all(isinstance(row, tuple) for row in J)
