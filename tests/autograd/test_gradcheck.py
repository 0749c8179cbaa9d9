"""gradcheck: what it accepts, what it finds, what it says; against torch."""

import importlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import xgrad
from xgrad.autograd import forward_ad, gradcheck, gradgradcheck
from xgrad.autograd.gradcheck import GradcheckError
from xgrad.base.limits import x64_for_now

from ..oracle import data, leaf, same, same_error
from . import wrong

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Backwards compatibility. New undefined gradient:UserWarning"),
]


def complex_leaf(T, *shape):
    return (data(T, shape) + data(T, shape, 1) * 1j).requires_grad_()


def checked(function, inputs, **kwargs):
    """gradcheck of a function that is made, and of inputs that are made, for each library."""

    def program(T):
        made = inputs(T)
        return T.autograd.gradcheck(function(T), made, **kwargs)

    return program


def X(T):
    return leaf(T, 2, 2)


def Z(T):
    return complex_leaf(T, 2)


FAULTS = {
    "wrong gradient": (checked(wrong.wrong_gradient, X), "^Jacobian mismatch for output 0 with respect to input 0,\n"),
    "wrong gradient, fast": (
        checked(wrong.wrong_gradient, X, fast_mode=True),
        r"^Jacobian mismatch for output 0 with respect to input 0,(.|\n)*max per-element difference \(slow mode\) is",
    ),
    "wrong in one element": (checked(wrong.wrong_in_one_element, X), "Jacobian mismatch for output 0"),
    "wrong in one element, fast": (
        checked(wrong.wrong_in_one_element, X, fast_mode=True),
        "Jacobian mismatch for output 0",
    ),
    "wrong imaginary part": (
        checked(wrong.wrong_imaginary_part, Z),
        "While considering the imaginary part of complex outputs only, Jacobian mismatch for output 0",
    ),
    "wrong imaginary part, fast": (
        checked(wrong.wrong_imaginary_part, Z, fast_mode=True),
        "While considering the imaginary part of complex outputs only, Jacobian mismatch for output 0",
    ),
    "wrong real part": (checked(wrong.wrong_real_part, Z), "While considering the real part of complex outputs only"),
    "not conjugated": (checked(wrong.not_conjugated, Z), "part of complex outputs only, Jacobian mismatch"),
    "wrong jvp": (
        checked(wrong.wrong_jvp, X, check_forward_ad=True),
        "^Jacobian computed with forward mode mismatch for output 0 with respect to input 0",
    ),
    "wrong jvp, fast": (
        checked(wrong.wrong_jvp, X, check_forward_ad=True, fast_mode=True),
        "^Jacobian computed with forward mode mismatch for output 0 with respect to input 0",
    ),
    "wrong jvp alone": (
        checked(wrong.wrong_jvp, X, check_forward_ad=True, check_backward_ad=False),
        "Jacobian computed with forward mode mismatch",
    ),
    "wrong imaginary jvp": (
        checked(wrong.wrong_imaginary_jvp, Z, check_forward_ad=True),
        "While considering the imaginary part of complex inputs only, Jacobian computed with forward mode mismatch",
    ),
    "dtype of a tangent": (
        checked(wrong.complex_jvp_of_a_real_function, X, check_forward_ad=True, check_grad_dtypes=True),
        "Forward AD gradient has dtype mismatch.",
    ),
    "random backward": (checked(wrong.random_backward, X), r"Backward is not reentrant(.|\n)*nondeterminism was 0.0\."),
    "not multiplied by the gradient": (
        checked(wrong.not_multiplied, lambda T: leaf(T, 1)),
        "backward not multiplied by grad_output",
    ),
    "undefined gradient is one": (
        checked(wrong.undefined_is_one, X),
        "Expected all input grads to be undefined or zero when all output grads are undefined or zero",
    ),
    "undefined gradient is refused": (
        checked(wrong.undefined_is_refused, X),
        "Expected backward function to handle undefined output grads",
    ),
    "undefined tangent is one": (
        checked(wrong.undefined_tangent_is_one, lambda T: (leaf(T, 2), leaf(T, 2, seed=1)), check_forward_ad=True),
        "Mismatch in tangent values for output with index",
    ),
    "batched backward": (
        checked(wrong.reads_its_gradient, X, check_batched_grad=True),
        "While computing batched gradients, got: (.|\n)*gradcheck or gradgradcheck failed while testing batched",
    ),
    "batched jvp": (
        checked(wrong.reads_its_tangent, X, check_forward_ad=True, check_batched_forward_grad=True),
        "While computing batched gradients, got: (.|\n)*batched gradient computation with forward-mode AD",
    ),
    "second derivative": (
        lambda T: T.autograd.gradgradcheck(wrong.wrong_second_derivative(T), X(T)),
        "Jacobian mismatch for output 0 with respect to input 0",
    ),
    "second derivative, fast": (
        lambda T: T.autograd.gradgradcheck(wrong.wrong_second_derivative(T), X(T), fast_mode=True),
        "Jacobian mismatch for output 0 with respect to input 0",
    ),
    "detached": (checked(lambda T: lambda x: x.detach() * 2, X), "Numerical gradient for function expected to be zero"),
    "detached, fast": (
        checked(lambda T: lambda x: x.detach() * 2, X, fast_mode=True),
        "Numerical gradient for function expected to be zero",
    ),
    "not differentiable there": (checked(lambda T: lambda x: x.abs(), lambda T: leaf(T, 1) * 0), "Jacobian mismatch"),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", [n for n in FAULTS if n != "not differentiable there"])
def test_faults_are_found(name):
    error = same_error(*FAULTS[name])
    assert isinstance(error, GradcheckError)
    assert type(error).__name__ == "GradcheckError"


def test_backward_that_trips_over_an_undefined_gradient_fails_the_check():
    """torch lets the AttributeError of `None.mul` pass through gradcheck."""
    with pytest.raises(GradcheckError, match="handle undefined output grads, but it raised AttributeError") as caught:
        gradcheck(wrong.undefined_is_none(xgrad), X(xgrad))
    assert isinstance(caught.value.__cause__, AttributeError)
    assert gradcheck(wrong.undefined_is_none(xgrad), X(xgrad), check_undefined_grad=False)


def test_undefined_gradients_are_warned_about():
    with (
        pytest.warns(UserWarning, match="Backwards compatibility: New undefined gradient") as caught,
        pytest.raises(GradcheckError),
    ):
        gradcheck(wrong.undefined_is_one(xgrad), X(xgrad))
    assert "check_undefined_grad=False" in str(caught[0].message)


def test_error_names_input_output_and_both_numbers():
    def fault(text, x, y):
        return y * 2, wrong.wrong_in_one_element(xgrad)(x)

    x, y = xgrad.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=xgrad.float64, requires_grad=True), leaf(xgrad, 3)
    with pytest.raises(GradcheckError) as caught:
        gradcheck(fault, ("text", x, y))
    text = str(caught.value)
    assert "mismatch for output 1 with respect to input 0" in text  # counted among those that require grad, as torch's
    assert "element (1, 0) of result 1 with respect to element (1, 0) of argument 1 is 7.0, and numerically 6.0" in text
    assert "numerical:tensor([[2.0000, 0.0000" in text
    assert "analytical:tensor([[2., 0." in text


@pytest.mark.parametrize("check_grad_dtypes", [False, True])
def test_wrong_dtype_of_a_gradient(monkeypatch, check_grad_dtypes):
    """The engine casts gradients to their inputs' dtype; this is of the check alone."""
    analytical = importlib.import_module("xgrad.autograd.gradcheck.analytical")
    grad = analytical.grad
    monkeypatch.setattr(analytical, "grad", lambda *a, **k: tuple(g.to(xgrad.float32) for g in grad(*a, **k)))
    if check_grad_dtypes:
        with pytest.raises(GradcheckError, match="Gradient has dtype mismatch"):
            gradcheck(lambda x: x * 2, X(xgrad), check_grad_dtypes=True)
    else:
        assert gradcheck(lambda x: x * 2, X(xgrad))


def test_wrong_batch_of_right_gradients():
    def one_in_a_batch(g):
        try:
            g.sum().item()
        except Exception:  # within a batch values can't be read
            return 1
        return 0

    f = wrong.function(xgrad, lambda x: x * 2, lambda g, x: g * 2 + one_in_a_batch(g))
    assert gradcheck(f, X(xgrad))
    with pytest.raises(GradcheckError, match=r"For output 0 and input 0:\n\n(.|\n)*Got:\n(.|\n)*Expected:\n"):
        gradcheck(f, X(xgrad), check_batched_grad=True)


PASSES = {
    "real": checked(lambda T: lambda x: x.exp(), X),
    "several": checked(
        lambda T: lambda x, y: (x * y, x + 1, y.sum()), lambda T: (leaf(T, 2), leaf(T, 2, seed=1)),
        check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True,
    ),
    "several, fast": checked(
        lambda T: lambda x, y: (x * y, x + 1, y.sum()), lambda T: (leaf(T, 2), leaf(T, 2, seed=1)),
        check_forward_ad=True, fast_mode=True,
    ),
    "complex": checked(lambda T: lambda z: (z * z, z.abs()), Z, check_forward_ad=True),
    "complex, fast": checked(lambda T: lambda z: (z * z, z.abs()), Z, check_forward_ad=True, fast_mode=True),
    "complex to real": checked(lambda T: lambda z: (z * z.conj()).real, Z, check_batched_grad=True),
    "real to complex": checked(lambda T: lambda x: T.complex(x, x * x), X, check_forward_ad=True),
    "complex and real": checked(lambda T: lambda z, x: z * x, lambda T: (Z(T), leaf(T, 2)), check_forward_ad=True),
    "a list": checked(lambda T: lambda x: [x * 2], lambda T: [X(T)]),
    "other arguments": checked(
        lambda T: lambda x, n, y: x**n * y, lambda T: (X(T), 3, data(T, (2, 2), 1)), check_forward_ad=True
    ),
    "the input itself": checked(lambda T: lambda x: x, X),
    "a view": checked(lambda T: lambda x: x * x, lambda T: data(T, (3, 4))[1:, ::2].requires_grad_()),
    "of a non-leaf": checked(lambda T: lambda x: x * x, lambda T: leaf(T, 3).t().clone()),
    "scalar": checked(
        lambda T: lambda x: x * x, lambda T: leaf(T), check_forward_ad=True, check_batched_grad=True,
        check_batched_forward_grad=True,
    ),
    "empty": checked(lambda T: lambda x: x * x, lambda T: leaf(T, 0)),
    "empty, fast": checked(lambda T: lambda x: x * x, lambda T: leaf(T, 0), fast_mode=True),
    "constant": checked(lambda T: lambda x: T.ones(2), X),
    "unused input": checked(lambda T: lambda x, y: x * x, lambda T: (X(T), leaf(T, 2))),
    "in place": checked(lambda T: lambda x: x.clone().mul_(x)[0].mul_(2), X, check_forward_ad=True),
    "random within its tolerance": checked(
        wrong.random_backward, X, nondet_tol=1e-6, check_undefined_grad=False, masked=True
    ),
    "masked": checked(lambda T: lambda x: x * 2, X, masked=True),
    "second": lambda T: T.autograd.gradgradcheck(lambda x: x**3, X(T), check_fwd_over_rev=True),
    "second, fast": lambda T: T.autograd.gradgradcheck(lambda x: x**3, X(T), fast_mode=True, check_batched_grad=True),
    "second, forward alone": lambda T: T.autograd.gradgradcheck(
        lambda x: x**3, X(T), check_rev_over_rev=False, check_fwd_over_rev=True, check_undefined_grad=False
    ),
    "second of a linear function": lambda T: T.autograd.gradgradcheck(lambda x: x * 2, X(T)),
    "second with gradients": lambda T: T.autograd.gradgradcheck(
        lambda x, y: (x * y, x**2), (leaf(T, 2), leaf(T, 2, seed=1)), [leaf(T, 2, seed=2), data(T, (2,), 3)]
    ),
    "second with gaps": lambda T: T.autograd.gradgradcheck(lambda x: x**3, X(T), gen_non_contig_grad_outputs=True),
    "second, complex": lambda T: T.autograd.gradgradcheck(lambda z: z**3, Z(T)),
}  # fmt: skip


@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", PASSES)
def test_right_derivatives_pass(name):
    assert PASSES[name](torch) is True
    assert PASSES[name](xgrad) is True


def test_outputs_without_gradient_do_not_count():
    """torch takes them for the ones that have a gradient, in forward mode, and fails for integers."""
    assert gradcheck(lambda x: (x.argmax() * 1.0, x.argmax(), x * x), X(xgrad), check_forward_ad=True)
    assert gradcheck(lambda x: (x.argmax() * 1.0, x.argmax(), x * x), X(xgrad), check_forward_ad=True, fast_mode=True)


REFUSED = {
    "no input requires grad": (checked(lambda T: lambda x: x, lambda T: data(T, (2,))), "none of them have requires"),
    "no tensor": (checked(lambda T: lambda x: x, lambda T: 3.0), "expects at least one input tensor"),
    "an expanded input": (
        checked(lambda T: lambda x: x, lambda T: data(T, (1,)).expand(2).requires_grad_()),
        r"The 0th input has a dimension with stride 0(.|\n)*call .contiguous",
    ),
    "no mode": (checked(lambda T: lambda x: x, X, check_backward_ad=False), "at least one of check_forward_ad or"),
    "batched without backward": (
        checked(lambda T: lambda x: x, X, check_backward_ad=False, check_forward_ad=True, check_batched_grad=True),
        "Setting check_batched_grad=True requires check_backward_ad to be True",
    ),
    "batched forward without forward": (
        checked(lambda T: lambda x: x, X, check_batched_forward_grad=True),
        "Setting check_batched_forward_grad=True requires check_forward_ad to be True",
    ),
    "no second mode": (
        lambda T: T.autograd.gradgradcheck(lambda x: x, X(T), check_rev_over_rev=False),
        "at least one of check_fwd_over_rev or check_rev_over_rev",
    ),
    "undefined without reverse": (
        lambda T: T.autograd.gradgradcheck(lambda x: x, X(T), check_rev_over_rev=False, check_fwd_over_rev=True),
        "Setting check_undefined_grad=True requires check_rev_over_rev to be True",
    ),
    "batched without reverse": (
        lambda T: T.autograd.gradgradcheck(
            lambda x: x, X(T), check_rev_over_rev=False, check_fwd_over_rev=True, check_undefined_grad=False,
            check_batched_grad=True,
        ),
        "Setting check_batched_grad=True requires check_rev_over_rev to be True",
    ),
    "another shape when perturbed": (
        checked(lambda T: lambda x: x if x[0] > 0 else x[:2], lambda T: (data(T, (3,)) * 0).requires_grad_()),
        r"same shape when inputs are perturbed on index \(0,\) by 1e-06, but got: shapes",
    ),
    "another dtype when perturbed": (
        checked(
            lambda T: lambda x: x if x[0] > 0 else x.to(T.float32), lambda T: (data(T, (3,)) * 0).requires_grad_()
        ),
        r"same dtype when inputs are perturbed on index \(0,\) by 1e-06, but got: dtypes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_checked_is_refused(name):
    error = same_error(*REFUSED[name])
    assert not isinstance(error, GradcheckError)
    with pytest.raises(type(error)):
        REFUSED[name][0](xgrad)


def test_results_that_are_no_tensors_are_refused():
    """A function of NumPy's, say: the check must not pass for lack of anything to check."""
    for returned in (3.0, (leaf(xgrad, 2), None), np.zeros(3)):
        with pytest.raises(TypeError, match=r"output [01] is of type"):
            gradcheck(lambda x, returned=returned: returned, X(xgrad))


@pytest.mark.parametrize("raise_exception", [True, False])
def test_errors_can_be_results(raise_exception):
    f, x = wrong.wrong_gradient(xgrad), X(xgrad)
    if raise_exception:
        with pytest.raises(GradcheckError):
            gradcheck(f, x)
    else:
        assert gradcheck(f, x, raise_exception=False) is False
        assert gradgradcheck(wrong.wrong_second_derivative(xgrad), x, raise_exception=False) is False


def test_float32_is_warned_about(monkeypatch):
    x = xgrad.ones(2, requires_grad=True)
    text = "Input #0 requires gradient and is not a double precision floating point or complex"
    with pytest.warns(UserWarning, match=text) as caught:
        assert gradcheck(lambda x: x * 2, x, eps=1e-2)
    assert caught[0].filename == __file__
    assert "jax_enable_x64" not in str(caught[0].message)
    with (
        pytest.warns(UserWarning, match=text),
        pytest.raises(GradcheckError, match="In float32 finite differences may be mostly rounding"),
    ):
        gradcheck(lambda x: x * 2, x)
    monkeypatch.setattr(xgrad.dtypes, "x64_enabled", lambda: False)
    x = x.detach().to_sparse().requires_grad_()
    with pytest.warns(UserWarning, match=r"64-bit mode is off: call jax.config.update\('jax_enable_x64', True\)"):
        gradcheck(lambda x: x.to_dense() * 2, x, eps=1e-2, masked=True)


def test_double_precision_is_not_warned_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gradcheck(lambda x: x * 2, X(xgrad))


def test_inputs_are_as_they_were():
    x = leaf(xgrad, 2, 2)
    before, version = x.detach().clone(), x._version
    calls = []

    def f(x):
        calls.append(x)
        if len(calls) == 4:
            raise KeyError("in the middle of it")
        return x * x

    with pytest.raises(KeyError):
        gradcheck(f, x)
    assert len(calls) == 4
    same(x, before)
    assert gradcheck(lambda x: x * x, x)
    same(x, before)
    assert x._version == version
    assert x.grad is None
    assert forward_ad.unpack_dual(x).tangent is None


def test_function_may_read_its_inputs_by_other_means():
    def program(T):
        w = leaf(T, 3)
        return T.autograd.gradcheck(lambda _: w * w, w)

    assert program(torch) is program(xgrad) is True


def test_numbers_at_random_leave_the_generator_alone():
    xgrad.manual_seed(3)
    expected = xgrad.rand(4)
    xgrad.manual_seed(3)
    gradcheck(lambda x: x * x, X(xgrad), fast_mode=True, check_batched_grad=True)
    gradgradcheck(lambda x: x**3, X(xgrad))
    same(xgrad.rand(4), expected)


def test_fast_mode_that_fails_where_slow_mode_passes_says_so():
    """A hundred errors just within the tolerance add up along a direction, which is allowed for; others are not."""
    compare = importlib.import_module("xgrad.autograd.gradcheck.compare")
    x = leaf(xgrad, 2)
    problem = compare.Problem(lambda x: x * x, (x,), (x * x,), False)
    tolerances = compare.Tolerances(1e-6, 1e-5, 1e-3, 0.0, False, True, False)
    text = compare._elements(problem, 0, 0, tolerances)
    assert "Fast gradcheck failed but element-wise differences are small" in text
    assert "fast_mode=False" in text


def test_fast_mode_calls_the_function_less():
    def count(fast):
        calls = []
        gradcheck(lambda x: calls.append(0) or x * 2, leaf(xgrad, 3, 3), fast_mode=fast, check_undefined_grad=False)
        return len(calls)

    assert count(False) == 1 + 2 * 9
    assert count(True) == 1 + 2


# -- the module and its older functions --------------------------------------------------------------------------------


def test_imports_are_those_of_torch():
    for T in (torch, xgrad):
        module = importlib.import_module(f"{T.__name__}.autograd.gradcheck")
        assert T.autograd.gradcheck is module.gradcheck
        assert T.autograd.gradgradcheck is module.gradgradcheck
        assert issubclass(module.GradcheckError, RuntimeError)
        assert set(module.__all__) == set(importlib.import_module("torch.autograd.gradcheck").__all__)
        assert all(hasattr(module, name) for name in module.__all__)
    assert xgrad.autograd.gradcheck.GradcheckError is GradcheckError  # an AttributeError in torch


@pytest.mark.exhaustive
def test_the_machinery_is_loaded_when_it_is_used():
    code = """
import sys, xgrad
heavy = [m for m in sys.modules if m.startswith(("xgrad.autograd.gradcheck.", "xgrad.autograd.functional"))]
assert heavy in ([], ["xgrad.autograd.gradcheck.error"]), heavy
assert xgrad.autograd.functional.jacobian.__name__ == "jacobian"
assert "xgrad.autograd.functional" in sys.modules
assert callable(xgrad.autograd.gradcheck)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.filterwarnings("ignore:.get_.*_jacobian. was part of PyTorch's private API:FutureWarning")
def test_older_functions_give_what_torch_gives():
    def program(T):
        module = importlib.import_module(f"{T.__name__}.autograd.gradcheck")
        x, y, z = leaf(T, 2), leaf(T, 3, seed=1), complex_leaf(T, 2)
        return [
            module.get_numerical_jacobian(lambda xs: xs[0] * xs[1].sum(), (x, y)),
            module.get_numerical_jacobian(lambda xs: (xs[0] * x, xs[0].sum()), [y.sum()[None], x], target=x, eps=1e-4),
            module.get_numerical_jacobian(lambda xs: xs[0].abs(), (z,)),
            module.get_numerical_jacobian_wrt_specific_input(
                lambda x, y: (x * 2, y * x.sum()), 1, (x, y), (x, y), 1e-5
            ),
            module.get_analytical_jacobian((x, y), (x * y.sum())),
            module.get_analytical_jacobian((z,), z.abs()),
            module.get_analytical_jacobian((x,), wrong.random_backward(T)(x))[1:],
        ]

    same(program(xgrad), program(torch), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["get_numerical_jacobian", "get_analytical_jacobian"])
def test_older_functions_are_deprecated(name):
    def program(T):
        module = importlib.import_module(f"{T.__name__}.autograd.gradcheck")
        x = leaf(T, 2)
        first, second = (lambda xs: xs[0] * 2, (x,)) if "numerical" in name else ((x,), x * 2)
        with pytest.warns(FutureWarning, match=f"`{name}` was part of PyTorch's private API"):
            getattr(module, name)(first, second, grad_out=2.0)

    same_error(program, "Expected grad_out to be 1.0")


@pytest.mark.filterwarnings("ignore:.get_.*_jacobian. was part of PyTorch's private API:FutureWarning")
@pytest.mark.parametrize("name", ["get_numerical_jacobian", "get_analytical_jacobian"])
def test_older_functions_refuse_complex_outputs(name):
    def program(T):
        module = importlib.import_module(f"{T.__name__}.autograd.gradcheck")
        x = leaf(T, 2)
        first, second = (lambda xs: xs[0] * 1j, (x,)) if "numerical" in name else ((x,), x * 1j)
        getattr(module, name)(first, second)

    same_error(program, "Expected output to be non-complex")


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_without_64_bits_it_computes_in_float64_by_itself(check):
    with x64_for_now(False):
        x, z = xgrad.randn(3, 3, requires_grad=True), xgrad.randn(2, dtype=xgrad.complex64, requires_grad=True)
        assert x.dtype == xgrad.float32
        before = x.tolist()
        assert check(lambda x: x.exp() * 3, (x,))
        assert check(lambda x, z: (x.sin().sum() * z.real * z.imag).sum(), (x, z))
        assert (x.tolist(), x.dtype, x.grad) == (before, xgrad.float32, None)
        assert not check(lambda x: (x * x.detach() * x).sum(), x, raise_exception=False)
        with pytest.raises(RuntimeError) as caught:
            check(lambda y: xgrad.mm(y, x), xgrad.ones(3, 3, requires_grad=True))
        assert "jax_enable_x64" in "".join(caught.value.__notes__)
